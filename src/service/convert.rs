//! AIDL types to the use cases' types and back. No decision, no I/O.

use crate::aidl;
use crate::device::Command;
use crate::error::{Code, Failure, Result};
use crate::fact::{Fact, NamedFact};
use crate::reset::board::Status;
use crate::reset::ends::ends;
use crate::reset::plan::model::Cost;
use crate::reset::plan::{Plan, TargetPlan};
use crate::reset::report::{Report, TargetReport, FORMAT_VERSION};
use crate::reset::request::{Assurance, Marker, MarkerFile, Method, Request, Verify};
use crate::reset::step::Step;
use crate::service::ipc::{self, ParcelFileDescriptor};
use crate::units::{Bytes, Sectors};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// A request as the use case wants it.
///
/// # Errors
/// `INVALID_REQUEST` for numbers that mean nothing.
pub fn request(request: &aidl::ResetRequest::ResetRequest) -> Result<Request> {
    let length = match request.lengthBytes {
        -1 => None,
        length => Some(bytes("lengthBytes", length)?),
    };
    Ok(Request {
        disk: request.disk.clone(),
        partitions: request.partitions.clone(),
        offset: bytes("offsetBytes", request.offsetBytes)?,
        length,
        method: known("method", Method::from_number(request.method.0))?,
        min_assurance: known(
            "minAssurance",
            Assurance::from_number(request.minAssurance.0),
        )?,
        max_chunk: bytes("maxChunkBytes", request.maxChunkBytes)?,
        verify: known("verify", Verify::from_number(request.verify.0))?,
        marker: known("marker", Marker::from_number(request.marker.0))?,
        marker_file: request.markerFile.as_ref().map(marker_file).transpose()?,
        merges_done: request.mergesDone,
        ignore_quirks: request.ignoreQuirks,
    })
}

/// A marker file with a descriptor of its own.
///
/// # Errors
/// `INVALID_REQUEST` where no descriptor is free.
pub fn marker_file(fd: &ParcelFileDescriptor) -> Result<MarkerFile> {
    ipc::dup(fd)
        .map(|fd| MarkerFile(Arc::new(File::from(fd))))
        .map_err(|error| {
            Failure::new(
                Code::InvalidRequest,
                "request",
                format!("cannot duplicate the marker file's descriptor: {error}"),
            )
        })
}

fn known<T>(field: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| {
        Failure::new(
            Code::InvalidRequest,
            "request",
            format!("{field} has a value that this version does not know"),
        )
        .remedy("client and service are of different versions")
    })
}

fn bytes(field: &str, value: i64) -> Result<Bytes> {
    u64::try_from(value).map(Bytes).map_err(|_| {
        Failure::new(
            Code::InvalidRequest,
            "request",
            format!("{field} is negative ({value})"),
        )
    })
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn millis(cost: Option<Cost>) -> i64 {
    cost.map_or(-1, |cost| long(cost.time.as_millis() as u64))
}

fn length(sectors: Sectors) -> i64 {
    long(sectors.to_bytes().0)
}

fn command(command: &Command, sent: bool) -> aidl::MmcCommand::MmcCommand {
    aidl::MmcCommand::MmcCommand {
        index: i32::from(command.index),
        argument: i64::from(command.argument),
        response: if sent {
            i64::from(command.response)
        } else {
            -1
        },
    }
}

/// Commands for the wire: all of them, or those at both ends and the number of the others.
fn commands(all: &[Command], sent: bool) -> (Vec<aidl::MmcCommand::MmcCommand>, i64) {
    let (first, omitted, last) = ends(all);
    let shown = first.iter().chain(last);
    (
        shown.map(|c| command(c, sent)).collect(),
        long(omitted as u64),
    )
}

/// A plan for the wire.
pub fn plan(plan: &Plan) -> aidl::ResetPlan::ResetPlan {
    aidl::ResetPlan::ResetPlan {
        disk: plan.disk.clone(),
        cardName: plan.card_name.clone(),
        cid: plan.cid.clone(),
        method: aidl::Method::Method(plan.choice.method as i32),
        physical: aidl::Physical::Physical(plan.physical as i32),
        assurance: aidl::Assurance::Assurance(plan.assurance as i32),
        eraseGroupBytes: length(plan.erase_group),
        erasedValue: i32::from(plan.erased_value),
        verify: aidl::Verify::Verify(plan.verify as i32),
        marker: aidl::Marker::Marker(plan.marker.place as i32),
        attempt: i32::try_from(plan.marker.attempt).unwrap_or(i32::MAX),
        sanitize: plan.sanitize.is_some(),
        maxChunkBytes: long(plan.max_chunk.0),
        targets: plan.targets.iter().map(|t| target_plan(plan, t)).collect(),
        steps: plan.steps(),
        notes: plan.notes.clone(),
    }
}

fn target_plan(plan: &Plan, target: &TargetPlan) -> aidl::ResetTarget::ResetTarget {
    let limit: Duration = target.chunks().map(|chunk| chunk.limit).sum();
    let all: Vec<Command> = target.chunks().flat_map(|c| c.commands.clone()).collect();
    let (commands, omitted) = commands(&all, false);
    aidl::ResetTarget::ResetTarget {
        partition: target.partition.name.clone(),
        node: target.partition.node.clone(),
        startBytes: length(target.range.start),
        lengthBytes: length(target.range.length),
        headBytes: length(target.parts.head.length),
        middleBytes: length(target.parts.middle.length),
        tailBytes: length(target.parts.tail.length),
        overwrittenBytes: long(target.overwritten().0),
        eraseGroups: if plan.rca.is_some() {
            long(target.parts.middle.length.0 / plan.erase_group.0)
        } else {
            0
        },
        commands,
        omittedCommands: omitted,
        limitMillis: long(limit.as_millis() as u64),
        eraseCommands: target.cost.map_or(0, |cost| long(cost.commands)),
        kernelEraseCommands: target.kernel_cost.map_or(-1, |cost| long(cost.commands)),
        modelMillis: millis(target.cost),
        kernelModelMillis: millis(target.kernel_cost),
        samples: target.samples.len() as i32,
    }
}

/// A report for the wire.
pub fn report(report: &Report) -> aidl::ResetReport::ResetReport {
    aidl::ResetReport::ResetReport {
        formatVersion: FORMAT_VERSION,
        softwareVersion: report.software_version.clone(),
        token: report.token.clone(),
        startedUnixMillis: long(report.started.as_millis() as u64),
        elapsedMillis: long(report.elapsed.as_millis() as u64),
        plan: plan(&report.plan),
        targets: report.targets.iter().map(target_report).collect(),
        sanitizeCommands: report
            .sanitize_commands
            .iter()
            .map(|c| command(c, true))
            .collect(),
        logical: aidl::Logical::Logical(report.logical as i32),
        physical: aidl::Physical::Physical(report.physical as i32),
        assurance: aidl::Assurance::Assurance(report.assurance as i32),
        formatNeeded: true,
        steps: report
            .steps
            .iter()
            .map(|(s, t)| step_time(*s, *t))
            .collect(),
        warnings: report.warnings.clone(),
        error: aidl::ErrorCode::ErrorCode(report.failure.as_ref().map_or(0, |f| f.code as i32)),
        message: report
            .failure
            .as_ref()
            .map(|failure| format!("{}: {failure}", failure.step))
            .unwrap_or_default(),
    }
}

fn step_time(step: Step, time: Duration) -> aidl::StepTime::StepTime {
    aidl::StepTime::StepTime {
        step: step.name().to_owned(),
        micros: long(time.as_micros() as u64),
    }
}

/// Down to a millionth: more digits say nothing, and so few survive JSON exactly. Rounded down, so
/// that only a certainty reads 1.
fn probability(p: f64) -> f64 {
    (p * 1e6).floor() / 1e6
}

fn target_report(target: &TargetReport) -> aidl::TargetReport::TargetReport {
    let erases = target.commands.iter().filter(|c| c.index == Command::ERASE);
    let erases = erases.count();
    let (commands, omitted) = commands(&target.commands, true);
    aidl::TargetReport::TargetReport {
        partition: target.partition.clone(),
        startBytes: long(target.start.0),
        erasedBytes: long(target.erased.0),
        overwrittenBytes: long(target.overwritten.0),
        commands,
        omittedCommands: omitted,
        eraseCommands: erases as i64,
        eraseMicros: long(target.erase_time.as_micros() as u64),
        canaries: target.canaries as i32,
        canariesFound: target.canaries_found as i32,
        samples: target.samples as i32,
        samplesWrong: target.samples_wrong as i32,
        neighbours: target.neighbours as i32,
        neighboursChanged: target.neighbours_changed as i32,
        detectionProbability: probability(target.detection_probability),
    }
}

/// A status for the wire.
pub fn status(status: &Status, marker_present: bool) -> aidl::ResetStatus::ResetStatus {
    aidl::ResetStatus::ResetStatus {
        state: aidl::ResetState::ResetState(status.state as i32),
        step: status.step.map_or("", |step| step.name()).to_owned(),
        elapsedMillis: long(status.elapsed.as_millis() as u64),
        message: status.message.clone(),
        markerPresent: marker_present,
    }
}

/// A fact for the wire.
pub fn fact(named: &NamedFact) -> aidl::Fact::Fact {
    let (known, value, source) = match &named.fact {
        Fact::Known { value, source } => (true, value.clone(), source.clone()),
        Fact::Unknown { reason, .. } => (false, String::new(), reason.clone()),
    };
    aidl::Fact::Fact {
        name: named.name.clone(),
        known,
        value,
        source,
    }
}
