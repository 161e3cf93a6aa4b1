//! `blockctl reset`.

use crate::args::{Cli, Reset, ResetArguments};
use crate::certificate::place::Place;
use crate::output::Output;
use crate::progress;
use blockd::aidl;
use blockd::client::Client;
use blockd::error::{Code, Failure, Result};
use blockd::reset::board::State;
use blockd::reset::request::{Assurance, Logical, Marker, Method, Physical};
use blockd::service::error::failure;
use blockd::service::json;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;

/// Runs one verb.
pub fn run(
    cli: &Cli,
    verb: &Reset,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    if let Reset::Run {
        dry_run: false,
        yes: false,
        ..
    } = verb
    {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                Code::InvalidRequest,
                "confirm",
                "a reset destroys data and nobody is there to be asked",
            )
            .remedy("say --yes, or --dry-run to see the plan"));
        }
    }
    let client = connect()?;
    let reset = client.reset()?;
    match verb {
        Reset::Plan(arguments) => show_plan(&*reset, arguments, output),
        Reset::Run {
            arguments, dry_run, ..
        } if *dry_run => show_plan(&*reset, arguments, output),
        Reset::Run {
            arguments,
            yes,
            html,
            ..
        } => {
            let request = request(arguments)?;
            let certificate = certificate(html.as_deref(), output)?;
            if !yes {
                let plan = reset.plan(&request).map_err(|s| failure(&s))?;
                confirm(&plan)?;
            }
            let shown = progress::receiver(cli.progress, cli.quiet);
            let report = reset.run(&request, shown.as_ref().map(|(receiver, _)| receiver));
            drop(shown);
            let report = report.map_err(|s| failure(&s))?;
            if certify(certificate, &report)? {
                output.result(|| json::report(&report), || report_text(&report));
            }
            Ok(())
        }
        Reset::Status => {
            let status = reset.status().map_err(|s| failure(&s))?;
            output.data(|| json::status(&status), || status_text(&status));
            Ok(())
        }
        Reset::Cancel => {
            reset.cancel().map_err(|s| failure(&s))?;
            output.result(
                || serde_json::json!({"asked": true}),
                || "asked; `blockctl reset status` shows when it has stopped\n".to_owned(),
            );
            Ok(())
        }
        Reset::Report { html } => {
            let certificate = certificate(html.as_deref(), output)?;
            match reset.lastReport().map_err(|s| failure(&s))? {
                Some(report) => {
                    if certify(certificate, &report)? {
                        output.data(|| json::report(&report), || report_text(&report));
                    }
                }
                None if certificate.is_some() => {
                    return Err(Failure::new(
                        Code::InvalidRequest,
                        "certificate",
                        format!("nothing to certify: {NO_REPORT}"),
                    )
                    .remedy("reports outlive the service where it was started with --state DIR"))
                }
                None => output.data(|| Value::Null, || format!("{NO_REPORT}\n")),
            }
            Ok(())
        }
        Reset::Finish { marker, token } => {
            let file = match marker.as_str() {
                "misc" => None,
                path => Some(open_marker(path)?),
            };
            reset.finish(token, file.as_ref()).map_err(|s| failure(&s))
        }
    }
}

const NO_REPORT: &str =
    "no reset has destroyed anything since the service started, and no report was kept";

/// The place that `--html` names.
fn certificate(path: Option<&Path>, output: &Output) -> Result<Option<Place>> {
    path.map(|path| Place::new(path, output.is_json()))
        .transpose()
}

/// Writes the certificate where one was asked for. True where stdout is left for the report.
fn certify(place: Option<Place>, report: &aidl::ResetReport::ResetReport) -> Result<bool> {
    if place.is_some() && report.error != aidl::ErrorCode::ErrorCode::OK {
        return Err(Failure::new(
            Code::NotVerified,
            "certificate",
            format!(
                "nothing to certify: the last reset is incomplete, {}",
                report.message
            ),
        )
        .remedy("do not pass this device on: run the reset again"));
    }
    let Some(place) = place else {
        return Ok(true);
    };
    let is_stdout = matches!(place, Place::Stdout);
    if let Err(mut failure) = place.write(report) {
        // The reset itself succeeded, and this may be the only copy of what it did.
        eprint!("{}", report_text(report));
        failure.message = format!("the reset is done, but {}", failure.message);
        return Err(failure);
    }
    Ok(!is_stdout)
}

fn show_plan(
    reset: &dyn aidl::IFactoryReset::IFactoryReset,
    arguments: &ResetArguments,
    output: &Output,
) -> Result<()> {
    let plan = reset.plan(&request(arguments)?).map_err(|s| failure(&s))?;
    output.data(|| json::plan(&plan), || plan_text(&plan));
    Ok(())
}

fn request(arguments: &ResetArguments) -> Result<aidl::ResetRequest::ResetRequest> {
    let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let marker = arguments.marker();
    let marker_file = match marker {
        Marker::File => Some(open_marker(&arguments.marker)?),
        Marker::Misc | Marker::None => None,
    };
    Ok(aidl::ResetRequest::ResetRequest {
        disk: arguments.disk.clone(),
        partitions: arguments.partitions.clone(),
        offsetBytes: long(arguments.offset.0),
        lengthBytes: arguments.length.map_or(-1, |length| long(length.0)),
        method: aidl::Method::Method(arguments.method as i32),
        minAssurance: aidl::Assurance::Assurance(arguments.min_assurance as i32),
        maxChunkBytes: long(arguments.max_chunk.0),
        verify: aidl::Verify::Verify(arguments.verify as i32),
        marker: aidl::Marker::Marker(marker as i32),
        markerFile: marker_file,
        mergesDone: arguments.merges_done,
        ignoreQuirks: arguments.ignore_quirks,
    })
}

fn open_marker(path: &str) -> Result<blockd::service::ipc::ParcelFileDescriptor> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| {
            let mut failure = Failure::new(
                Code::InvalidRequest,
                "marker",
                format!("cannot open the marker file {path}"),
            );
            failure.errno = e.raw_os_error().map(nix::errno::Errno::from_raw);
            failure.remedy("say --marker misc, --marker none, or the path of a file that exists")
        })?;
    Ok(blockd::service::ipc::parcel_fd(file.into()))
}

/// Asks on the terminal.
fn confirm(plan: &aidl::ResetPlan::ResetPlan) -> Result<()> {
    let names: Vec<&str> = plan.targets.iter().map(|t| t.partition.as_str()).collect();
    let names = names.join(" ");
    eprint!(
        "{}\nEverything on {names} will be gone. Type the name(s) to go on: ",
        plan_text(plan)
    );
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if read.is_ok() && line.trim() == names {
        return Ok(());
    }
    Err(Failure::new(
        Code::Cancelled,
        "confirm",
        "not confirmed; nothing was touched",
    ))
}

/// `64 MiB (67108864 bytes)`.
pub fn bytes(number: i64) -> String {
    let number = u64::try_from(number).unwrap_or(0);
    let exact = blockd::units::Bytes(number).to_string();
    if exact.ends_with(" B") {
        format!("{number} bytes")
    } else {
        format!("{exact} ({number} bytes)")
    }
}

fn plan_text(plan: &aidl::ResetPlan::ResetPlan) -> String {
    let mut text = format!(
        "Reset of {} on {} ({})\n",
        plan.targets
            .iter()
            .map(|t| t.partition.as_str())
            .collect::<Vec<_>>()
            .join(", "),
        plan.disk,
        plan.cardName
    );
    let _ = writeln!(
        text,
        "  method      {}\n  worth       {} if it verifies (card: {})\n  group       {}\n  marker      {}",
        Method::from_number(plan.method.0).map_or("?", |m| m.name()),
        Assurance::from_number(plan.assurance.0).map_or("?", |a| a.name()),
        Physical::from_number(plan.physical.0).map_or("?", |p| p.name()),
        bytes(plan.eraseGroupBytes),
        Marker::from_number(plan.marker.0).map_or("?", |m| m.name()),
    );
    for target in &plan.targets {
        let _ = writeln!(
            text,
            "  {:<11} {}, {} at byte {}",
            target.partition,
            target.node,
            bytes(target.lengthBytes),
            target.startBytes
        );
        let _ = writeln!(
            text,
            "              erased {}, overwritten {}; ragged head {}, tail {}",
            bytes(target.lengthBytes - target.overwrittenBytes),
            bytes(target.overwrittenBytes),
            bytes(target.headBytes),
            bytes(target.tailBytes)
        );
        text.push_str(&comparison(target));
    }
    text.push_str("Steps\n");
    for (number, step) in plan.steps.iter().enumerate() {
        let _ = writeln!(text, "  {:>2}. {step}", number + 1);
    }
    text.push_str("Know that\n");
    for note in &plan.notes {
        let _ = writeln!(text, "  - {note}");
    }
    text
}

/// Ours beside what the kernel's secure discard would send.
fn comparison(target: &aidl::ResetTarget::ResetTarget) -> String {
    let seconds = |millis: i64| format!("{:.1} s", millis as f64 / 1000.0);
    match (target.eraseCommands, target.kernelEraseCommands) {
        (0, _) => String::new(),
        (ours, -1) => format!(
            "              {ours} x CMD38, {} by the model card\n",
            seconds(target.modelMillis)
        ),
        (ours, kernel) => format!(
            "              {ours} x CMD38, {} by the model card; the kernel's secure discard: {kernel} x, {}\n",
            seconds(target.modelMillis),
            seconds(target.kernelModelMillis)
        ),
    }
}

fn report_text(report: &aidl::ResetReport::ResetReport) -> String {
    let mut text = String::new();
    if report.error != aidl::ErrorCode::ErrorCode::OK {
        let _ = writeln!(
            text,
            "INCOMPLETE, run {}: {}\nDo not pass this device on: run the reset again. Sent until then:",
            report.token, report.message
        );
    }
    for target in &report.targets {
        let commands = target.eraseCommands;
        let _ = writeln!(
            text,
            "{}: erased {} by {commands} erase command{} in {:.3} s, overwrote {}",
            target.partition,
            bytes(target.erasedBytes),
            if commands == 1 { "" } else { "s" },
            target.eraseMicros as f64 / 1e6,
            bytes(target.overwrittenBytes)
        );
        if report.error != aidl::ErrorCode::ErrorCode::OK {
            continue;
        }
        let _ = writeln!(
            text,
            "  read back: {} of {} canaries left, {} of {} samples wrong, {} of {} neighbouring \
             sectors changed",
            target.canariesFound,
            target.canaries,
            target.samplesWrong,
            target.samples,
            target.neighboursChanged,
            target.neighbours
        );
        let _ = writeln!(
            text,
            "  a card that skips 1 group in 100 is found with a probability of {:.1} %",
            target.detectionProbability * 100.0
        );
    }
    let _ = writeln!(
        text,
        "logical: {}, physical: {}, worth: {}",
        Logical::from_number(report.logical.0).map_or("?", |l| l.name()),
        Physical::from_number(report.physical.0).map_or("?", |p| p.name()),
        Assurance::from_number(report.assurance.0).map_or("?", |a| a.name())
    );
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if report.error != aidl::ErrorCode::ErrorCode::OK {
        return text;
    }
    let _ = writeln!(
        text,
        "Erased in {:.1} s; the partition{} must be formatted now. Run {}",
        report.elapsedMillis as f64 / 1000.0,
        if report.targets.len() == 1 { "" } else { "s" },
        report.token
    );
    text
}

fn status_text(status: &aidl::ResetStatus::ResetStatus) -> String {
    let state = State::from_number(status.state.0).map_or("?", |s| s.name());
    let mut text = state.to_owned();
    if !status.step.is_empty() {
        let _ = write!(
            text,
            ", step {}, {:.1} s",
            status.step,
            status.elapsedMillis as f64 / 1000.0
        );
    }
    if !status.message.is_empty() {
        let _ = write!(text, ": {}", status.message);
    }
    text.push('\n');
    text
}
