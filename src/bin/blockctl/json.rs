//! AIDL types as JSON: the AIDL names in snake case, enums by their names.

use blockd::aidl;
use blockd::reset::board::State;
use blockd::reset::request::{Assurance, Logical, Marker, Method, Physical, Verify};
use serde_json::{json, Value};

/// The name of an enum's number, or the number where this version does not know it.
macro_rules! name {
    ($type:ty, $number:expr) => {
        <$type>::from_number($number.0).map_or(json!($number.0), |v| json!(v.name()))
    };
}

/// A plan.
pub fn plan(plan: &aidl::ResetPlan::ResetPlan) -> Value {
    json!({
        "disk": plan.disk,
        "card_name": plan.cardName,
        "cid": plan.cid,
        "method": name!(Method, plan.method),
        "physical": name!(Physical, plan.physical),
        "assurance": name!(Assurance, plan.assurance),
        "erase_group_bytes": plan.eraseGroupBytes,
        "erased_value": plan.erasedValue,
        "verify": name!(Verify, plan.verify),
        "marker": name!(Marker, plan.marker),
        "attempt": plan.attempt,
        "sanitize": plan.sanitize,
        "max_chunk_bytes": plan.maxChunkBytes,
        "targets": plan.targets.iter().map(target).collect::<Vec<_>>(),
        "steps": plan.steps,
        "notes": plan.notes,
    })
}

fn target(target: &aidl::ResetTarget::ResetTarget) -> Value {
    json!({
        "partition": target.partition,
        "node": target.node,
        "start_bytes": target.startBytes,
        "length_bytes": target.lengthBytes,
        "head_bytes": target.headBytes,
        "middle_bytes": target.middleBytes,
        "tail_bytes": target.tailBytes,
        "overwritten_bytes": target.overwrittenBytes,
        "erase_groups": target.eraseGroups,
        "commands": target.commands.iter().map(command).collect::<Vec<_>>(),
        "limit_millis": target.limitMillis,
        "erase_commands": target.eraseCommands,
        "kernel_erase_commands": target.kernelEraseCommands,
        "model_millis": target.modelMillis,
        "kernel_model_millis": target.kernelModelMillis,
        "samples": target.samples,
    })
}

fn command(command: &aidl::MmcCommand::MmcCommand) -> Value {
    json!({
        "index": command.index,
        "argument": command.argument,
        "response": command.response,
    })
}

/// A report.
pub fn report(report: &aidl::ResetReport::ResetReport) -> Value {
    json!({
        "format_version": report.formatVersion,
        "software_version": report.softwareVersion,
        "token": report.token,
        "started_unix_millis": report.startedUnixMillis,
        "elapsed_millis": report.elapsedMillis,
        "plan": plan(&report.plan),
        "targets": report.targets.iter().map(target_report).collect::<Vec<_>>(),
        "logical": name!(Logical, report.logical),
        "physical": name!(Physical, report.physical),
        "assurance": name!(Assurance, report.assurance),
        "format_needed": report.formatNeeded,
        "steps": steps(&report.steps),
        "warnings": report.warnings,
    })
}

/// Step times.
pub fn steps(steps: &[aidl::StepTime::StepTime]) -> Value {
    steps
        .iter()
        .map(|step| json!({"step": step.step, "micros": step.micros}))
        .collect()
}

fn target_report(target: &aidl::TargetReport::TargetReport) -> Value {
    json!({
        "partition": target.partition,
        "start_bytes": target.startBytes,
        "erased_bytes": target.erasedBytes,
        "overwritten_bytes": target.overwrittenBytes,
        "commands": target.commands.iter().map(command).collect::<Vec<_>>(),
        "erase_micros": target.eraseMicros,
        "canaries": target.canaries,
        "canaries_found": target.canariesFound,
        "samples": target.samples,
        "samples_wrong": target.samplesWrong,
        "neighbours": target.neighbours,
        "neighbours_changed": target.neighboursChanged,
        "detection_probability": target.detectionProbability,
    })
}

/// A status.
pub fn status(status: &aidl::ResetStatus::ResetStatus) -> Value {
    json!({
        "state": name!(State, status.state),
        "step": status.step,
        "elapsed_millis": status.elapsedMillis,
        "message": status.message,
        "marker_present": status.markerPresent,
    })
}
