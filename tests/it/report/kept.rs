//! The last report over restarts.

use crate::case::Outcome;
use crate::reset::layout::{machine, plain};
use crate::served::{blockctl_at, json_of, request, Served};
use blockd::aidl::ErrorCode::ErrorCode;
use blockd::aidl::Logical::Logical;
use blockd::aidl::ResetReport::ResetReport;
use blockd::service::json;
use blockd::service::last_report::FILE;
use emmc::card::{Effect, Fault};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn folder() -> Result<TempDir, String> {
    tempfile::tempdir().map_err(|e| e.to_string())
}

fn run(served: &Served, name: &str) -> Result<ResetReport, String> {
    served
        .reset()?
        .run(&request(name), None)
        .map_err(|e| format!("{e:?}"))
}

fn last(served: &Served) -> Result<Option<ResetReport>, String> {
    served.reset()?.lastReport().map_err(|e| format!("{e:?}"))
}

/// All of a report, to compare.
fn all(report: &ResetReport) -> String {
    format!("{report:?}")
}

pub fn restart() -> Outcome {
    let state = folder()?;
    let card = machine(plain());
    let serve = || Served::new(card.clone(), &[], Some(state.path()));
    let served = serve()?;
    assert!(last(&served)?.is_none());
    let report = run(&served, "userdata")?;
    assert_eq!(last(&served)?.as_ref().map(all), Some(all(&report)));
    drop(served);

    let file = state.path().join(FILE);
    let text = fs::read_to_string(&file).map_err(|e| e.to_string())?;
    let value: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    assert_eq!(value, json::report(&report));
    assert_eq!(value["format_version"], 1);
    let mode = file.metadata().map_err(|e| e.to_string())?.mode();
    assert_eq!(mode & 0o777, 0o600);

    let served = serve()?;
    assert_eq!(last(&served)?.as_ref().map(all), Some(all(&report)));
    // A failure is no report, and takes none away.
    assert!(run(&served, "nosuch").is_err());
    assert_eq!(last(&served)?.as_ref().map(all), Some(all(&report)));
    let second = run(&served, "ragged")?;
    assert_ne!(all(&second), all(&report));
    drop(served);
    assert_eq!(last(&serve()?)?.as_ref().map(all), Some(all(&second)));
    let files = fs::read_dir(state.path()).map_err(|e| e.to_string())?;
    assert_eq!(files.count(), 1);
    // It is the folder that remembers.
    assert!(last(&Served::new(card.clone(), &[], None)?)?.is_none());
    Ok(())
}

/// What a run had done that failed after it had destroyed something; no page certifies it.
pub fn failed() -> Outcome {
    let state = folder()?;
    let card = machine(plain());
    let served = Served::new(card.clone(), &[], Some(state.path()))?;
    run(&served, "ragged")?;
    card.with_card(|card| card.inject(Fault::new(38, 1, Effect::Later(1 << 19))));
    assert!(run(&served, "userdata").is_err());
    let report = last(&served)?.ok_or("no report")?;
    assert_eq!(report.error, ErrorCode::DEVICE_FAILED);
    assert!(report.message.starts_with("erase: "), "{}", report.message);
    assert_eq!(report.assurance.0, 0);
    assert_eq!(report.logical, Logical::NOT_CHECKED);
    assert_eq!(report.targets[0].partition, "userdata");
    let output = blockctl_at(&served.socket(), &["reset", "report"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("INCOMPLETE"), "{text}");
    assert!(
        !text.contains("worth:") || text.contains("worth: none"),
        "{text}"
    );
    let page = state.path().join("page.html");
    let arguments = ["reset", "report", "--html", &page.display().to_string()];
    let refused = blockctl_at(&served.socket(), &arguments)?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(!page.exists());
    // The next success is the last report.
    run(&served, "userdata")?;
    let report = last(&served)?.ok_or("no report")?;
    assert_eq!(report.error, ErrorCode::OK);
    Ok(())
}

pub fn damaged() -> Outcome {
    let state = folder()?;
    let card = machine(plain());
    let serve = || Served::new(card.clone(), &[], Some(state.path()));
    let report = run(&serve()?, "userdata")?;
    let file = state.path().join(FILE);
    let good = fs::read(&file).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&good).into_owned();

    // Cut short anywhere but behind the last brace: never taken for whole, never a crash.
    let mut wrong: Vec<Vec<u8>> = (0..good.len() - 1)
        .step_by(97)
        .map(|length| good[..length].to_vec())
        .collect();
    assert!(wrong.len() > 20, "{}", wrong.len());
    for (from, to) in [
        ("\"format_version\":1", "\"format_version\":2"),
        ("\"format_version\":1", "\"format_version\":\"1\""),
        ("\"token\":", "\"tocen\":"),
        ("secure-erase", "wishful-erase"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        wrong.push(text.replacen(from, to, 1).into_bytes());
    }
    wrong.push(vec![0xff; 4096]);
    wrong.push("[".repeat(1 << 20).into_bytes());
    for bytes in wrong {
        fs::write(&file, &bytes).map_err(|e| e.to_string())?;
        if last(&serve()?)?.is_some() {
            return Err(format!(
                "taken for whole: {}",
                String::from_utf8_lossy(&bytes)
            ));
        }
    }
    // The next report replaces it.
    let second = run(&serve()?, "userdata")?;
    assert_eq!(last(&serve()?)?.as_ref().map(all), Some(all(&second)));
    // The check itself: what was written at first is still understood.
    fs::write(&file, &good).map_err(|e| e.to_string())?;
    assert_eq!(last(&serve()?)?.as_ref().map(all), Some(all(&report)));
    Ok(())
}

/// The erase is done: that its report cannot be kept makes no failure of it.
pub fn folder_gone() -> Outcome {
    let state = folder()?;
    let missing = state.path().join("missing");
    let served = Served::new(machine(plain()), &[], Some(&missing))?;
    let report = run(&served, "userdata")?;
    let warning = report.warnings.last().map_or("", String::as_str);
    assert!(warning.contains("could not be kept"), "{warning}");
    assert!(warning.contains("missing/last-reset.json"), "{warning}");
    assert_eq!(last(&served)?.as_ref().map(all), Some(all(&report)));
    Ok(())
}

/// blockd as init starts it, on the socket in `folder`; ended when dropped.
struct Daemon {
    child: Child,
    folder: TempDir,
}

impl Daemon {
    fn start(state: &Path) -> Result<Daemon, String> {
        let folder = folder()?;
        let child = Command::new(env!("CARGO_BIN_EXE_blockd"))
            .args(["--interfaces", "reset", "--serve"])
            .arg(format!("unix:{}", folder.path().join("socket").display()))
            .arg("--state")
            .arg(state)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        Ok(Daemon { child, folder })
    }

    fn report(&self) -> Result<Value, String> {
        let socket = self.folder.path().join("socket");
        json_of(&blockctl_at(
            &socket,
            &["--wait", "20", "--json", "reset", "report"],
        )?)
    }

    /// Ends it; what it has logged.
    fn log(mut self) -> Result<String, String> {
        self.child.kill().map_err(|e| e.to_string())?;
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut text).map_err(|e| e.to_string())?;
        }
        Ok(text)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn binaries() -> Outcome {
    let state = folder()?;
    let served = Served::new(machine(plain()), &[], Some(state.path()))?;
    let report = json::report(&run(&served, "userdata")?);
    drop(served);
    assert_eq!(Daemon::start(state.path())?.report()?, report);

    let shown = state.path().to_string_lossy();
    let local = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_blockctl"))
            .args(["--json", "--state", &shown])
            .args(arguments)
            .output()
            .map_err(|e| e.to_string())
    };
    assert_eq!(
        json_of(&local(&["--connect", "local", "reset", "report"])?)?,
        report
    );
    let elsewhere = local(&["--connect", "unix:/x", "reset", "report"])?;
    assert_eq!(json_of(&elsewhere)?["error"]["code"], "INVALID_REQUEST");

    fs::write(state.path().join(FILE), "{\"format_version\":1,").map_err(|e| e.to_string())?;
    let daemon = Daemon::start(state.path())?;
    assert_eq!(daemon.report()?, Value::Null);
    let log = daemon.log()?;
    assert!(
        log.contains("taken for none") && log.contains(FILE),
        "{log}"
    );
    Ok(())
}

/// docs/report.md has every key, and no key that is not there.
pub fn documented() -> Outcome {
    fn keys(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    found.push(key.clone());
                    keys(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let served = Served::new(machine(plain()), &[], None)?;
    let mut found = Vec::new();
    keys(&json::report(&run(&served, "ragged")?), &mut found);
    found.sort();
    found.dedup();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/report.md");
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let mut documented: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(key, _)| key.to_owned())
        .collect();
    documented.sort();
    documented.dedup();
    assert_eq!(documented, found);
    Ok(())
}
