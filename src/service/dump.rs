//! `dumpsys`: what a service shows of itself. Read-only; it sends nothing to a card and waits for
//! nobody, so that it answers while a reset runs.

use crate::aidl;
use crate::device::Sysfs;
use crate::diagnostics;
use crate::reset::board::Status;
use crate::service::access::{Counts, Gate};
use crate::service::ipc::{self, DumpArg, DumpWriter, StatusCode};
use crate::service::json;
use crate::service::last_report::Peek;
use serde_json::{json, Map, Value};
use std::fmt::Write;

const USAGE: &str = "usage: dumpsys NAME [--json]\n";

/// Text for people and members for programs.
pub struct Dump {
    text: String,
    members: Map<String, Value>,
}

/// Answers a `dump` call with what `look` says, if the caller may see it.
///
/// # Errors
/// None: a caller that may not look is told so in words.
pub fn answer(
    gate: &Gate,
    writer: DumpWriter<'_>,
    arguments: &[DumpArg<'_>],
    look: impl FnOnce() -> Dump,
) -> Result<(), StatusCode> {
    if let Err(who) = gate.check_dump() {
        // As AOSP's services say it.
        let name = gate.interface().service_name();
        ipc::write_dump(
            writer,
            &format!("Permission Denial: can't dump {name} {who}\n"),
        );
        return Ok(());
    }
    let words: Vec<String> = arguments.iter().map(ipc::dump_word).collect();
    let text = match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        // `dumpsys -a`, as in a bug report, passes it on.
        [] | ["-a"] => with_head(gate, look()).text,
        ["--json"] | ["-a", "--json"] | ["--json", "-a"] => {
            format!("{}\n", Value::Object(with_head(gate, look()).members))
        }
        _ => USAGE.to_owned(),
    };
    ipc::write_dump(writer, &text);
    Ok(())
}

/// Name, version, and how many calls there were.
fn with_head(gate: &Gate, dump: Dump) -> Dump {
    let name = gate.interface().service_name();
    let Counts {
        let_through,
        refused,
    } = gate.counts();
    let mut members = dump.members;
    members.insert("service".to_owned(), json!(name));
    members.insert("version".to_owned(), json!(crate::VERSION));
    members.insert(
        "calls".to_owned(),
        json!({"let_through": let_through, "refused": refused}),
    );
    Dump {
        text: format!(
            "{name}, blockd {}\ncalls: {let_through} let through, {refused} refused\n{}",
            crate::VERSION,
            dump.text
        ),
        members,
    }
}

fn members<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Of `IFactoryReset`: where it stands, and the last report with its plan.
pub fn reset(status: &Status, last: &Peek) -> Dump {
    let step = status.step.map_or("", |step| step.name());
    let mut text = format!("state: {}", status.state);
    if !step.is_empty() {
        let _ = write!(text, ", step {step}");
    }
    let _ = write!(text, ", {} ms", status.elapsed.as_millis());
    for more in [&status.what, &status.message] {
        if !more.is_empty() {
            let _ = write!(text, ", {more}");
        }
    }
    text.push('\n');
    let limit = status.extent.limit.map(|limit| limit.as_millis() as u64);
    if let Some(total) = status.extent.total {
        let done = match status.extent.done {
            Some(done) => done.to_string(),
            None => "?".to_owned(),
        };
        let _ = writeln!(text, "bytes: {done} of {total}");
    }
    if let Some(limit) = limit {
        let _ = writeln!(text, "limit of the step: {limit} ms");
    }
    let report = match last {
        Peek::None => {
            text.push_str("last report: none\n");
            Value::Null
        }
        Peek::Busy => {
            text.push_str("last report: it is being written\n");
            Value::Null
        }
        Peek::Report(report) => {
            text.push_str(&report_text(report));
            report.clone()
        }
    };
    Dump {
        text,
        members: members([
            ("state", json!(status.state.name())),
            ("step", json!(step)),
            ("partitions", json!(status.what)),
            ("elapsed_millis", json!(status.elapsed.as_millis() as u64)),
            ("done_bytes", json!(status.extent.done)),
            ("total_bytes", json!(status.extent.total)),
            ("limit_millis", json!(limit)),
            ("message", json!(status.message)),
            ("last_report", report),
        ]),
    }
}

fn report_text(report: &Value) -> String {
    let word = |key: &str| match &report[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut text = format!(
        "last report: run {}, {} ms, logical {}, physical {}, assurance {}\n",
        word("token"),
        word("elapsed_millis"),
        word("logical"),
        word("physical"),
        word("assurance")
    );
    let list = |text: &mut String, name: &str, value: &Value| {
        for line in value.as_array().into_iter().flatten() {
            let line = line
                .as_str()
                .map_or_else(|| line.to_string(), str::to_owned);
            let _ = writeln!(text, "  {name}: {line}");
        }
    };
    list(&mut text, "plan", &report["plan"]["steps"]);
    list(&mut text, "warning", &report["warnings"]);
    if report["message"]
        .as_str()
        .is_some_and(|message| !message.is_empty())
    {
        let _ = writeln!(text, "  failed: {} {}", word("error"), word("message"));
    }
    text
}

/// Of `IDiagnostics`: the doctor's findings that need no command to a card, which would wait for a
/// running erase.
pub fn diagnostics(sysfs: &dyn Sysfs) -> Dump {
    let findings = diagnostics::without_cards(sysfs);
    let text = findings
        .iter()
        .map(|f| format!("{}: {}: {} ({})\n", f.topic, f.severity, f.text, f.evidence))
        .collect();
    let list = findings
        .iter()
        .map(|f| {
            json!({
                "topic": f.topic,
                "severity": f.severity.name(),
                "text": f.text,
                "evidence": f.evidence,
                "remedy": f.remedy,
            })
        })
        .collect();
    Dump {
        text,
        members: members([("findings", list)]),
    }
}

/// Of `IImageDevices`: the devices, or why they cannot be listed; then lines of other parts.
pub fn images(devices: Result<Vec<aidl::ImageDevice::ImageDevice>, String>, more: &str) -> Dump {
    let mut text = String::new();
    let list = match &devices {
        Ok(devices) => {
            for d in devices {
                let _ = writeln!(
                    text,
                    "{}: {} of {}+{}, {} bytes",
                    d.node, d.name, d.backingFile, d.offsetBytes, d.sizeBytes
                );
            }
            devices.iter().map(json::image_device).collect()
        }
        Err(why) => {
            let _ = writeln!(text, "{why}");
            Value::Null
        }
    };
    text.push_str(more);
    let failed = devices.err();
    Dump {
        text,
        members: members([
            ("devices", list),
            ("active", more.lines().map(Value::from).collect()),
            ("message", json!(failed.unwrap_or_default())),
        ]),
    }
}
