//! `test`: everything on this machine, then the integration tests again in the guest.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

use crate::vm::cpio::Content;
use crate::vm::machine::Machine;
use crate::vm::setup;
use crate::{binaries, demo, latency, paths, powercut};

/// The emulated processor is slow, and so are loop devices that are really removed.
const GUEST_TIMEOUT: Duration = Duration::from_secs(900);

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs the tests on this machine and in the guest; the last line says how many.
///
/// # Errors
/// A case failed, or a run broke.
pub fn run(host: bool, guest: bool, only: Option<&str>) -> Result<()> {
    let mut total = Count::default();
    if host {
        let begin = Instant::now();
        total.add(on_host()?);
        eprintln!("on this machine: {:.1} s", begin.elapsed().as_secs_f64());
    }
    if guest {
        let begin = Instant::now();
        match setup::all() {
            Ok(equipment) => {
                total.add(in_guest(&equipment, only)?);
                total.add(of_the_guest(&equipment, only)?);
            }
            Err(e) if env::var("BLOCKD_REQUIRE").is_ok_and(|v| v == "all") => return Err(e),
            Err(e) => {
                println!("guest ... ignored, {e:#}");
                total.skipped += 1;
            }
        }
        eprintln!("in the guest: {:.1} s", begin.elapsed().as_secs_f64());
    }
    let Count {
        passed,
        failed,
        skipped,
    } = total;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ensure!(failed == 0, "{failed} cases failed");
    ensure!(passed > 0, "no case ran");
    Ok(())
}

/// `cargo test` of the whole workspace, shown as it runs and counted by its summaries.
fn on_host() -> Result<Count> {
    let mut tests = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(paths::root())
        .args(["test", "--quiet", "--workspace", "--no-fail-fast"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test")?;
    let mut count = Count::default();
    let mut broken = false;
    for line in BufReader::new(tests.stdout.take().context("no standard output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(summary) = line.strip_prefix("test result: ") {
            let one = summary_line(summary).with_context(|| format!("summary `{line}`"))?;
            broken |= summary.starts_with("FAILED") && one.failed == 0;
            count.add(one);
        }
    }
    let status = tests.wait()?;
    if broken || (!status.success() && count.failed == 0) {
        bail!("cargo test ended with {status} but names no failed case");
    }
    Ok(count)
}

/// `ok. 16 passed; 0 failed; 1 ignored; …`
fn summary_line(text: &str) -> Option<Count> {
    let number = |word: &str| {
        let field = text
            .split([';', '.'])
            .map(str::trim)
            .find(|field| field.ends_with(word))?;
        field.split(' ').next()?.parse().ok()
    };
    Some(Count {
        passed: number(" passed")?,
        failed: number(" failed")?,
        skipped: number(" ignored")?,
    })
}

fn in_guest(equipment: &setup::Equipment, only: Option<&str>) -> Result<Count> {
    let program = binaries::integration_test()?;
    binaries::check_static(&program)?;
    let prepare = |machine: &mut Machine| {
        machine.timeout = GUEST_TIMEOUT;
        machine.tree.program("system/bin/it", &program)?;
        if let Ok(require) = env::var("BLOCKD_REQUIRE") {
            machine.parameters.push(format!("blockd.require={require}"));
        }
        if let Some(part) = only {
            machine.parameters.push(format!("blockd.only={part}"));
        }
        add_apex_files(machine)
    };
    let mut count = Count::default();
    let mut begin = Instant::now();
    let show = |line: &Value| {
        let case = &line["it"];
        let Some(name) = case["test"].as_str() else {
            return;
        };
        let result = case["result"].as_str().unwrap_or_default();
        match result {
            "ok" => count.passed += 1,
            "ignored" => count.skipped += 1,
            _ => count.failed += 1,
        }
        let text = case["text"].as_str().unwrap_or_default();
        let seconds = begin.elapsed().as_secs_f64();
        println!("guest test {name} ... {result} {text} ({seconds:.1} s)");
        begin = Instant::now();
    };
    let findings = demo::reset::boot(equipment, "test", prepare, show)?;
    let lines: Vec<&Value> = findings.lines.iter().map(|line| &line["it"]).collect();
    let summary = lines.iter().find(|line| line["summary"].is_object());
    let summary = &summary.context("the tests in the guest sent no summary")?["summary"];
    let listed = summary["listed"].as_u64();
    ensure!(
        listed == Some(count.passed + count.failed + count.skipped),
        "the guest listed {listed:?} cases but told of {}",
        count.passed + count.failed + count.skipped
    );
    let told = ["passed", "failed", "ignored"].map(|key| summary[key].as_u64());
    ensure!(
        told == [Some(count.passed), Some(count.failed), Some(count.skipped)],
        "the guest's summary {summary} does not agree with its lines {count:?}"
    );
    eprintln!("the guest ran {:.1} s", findings.seconds);
    Ok(count)
}

/// Cases that boot guests of their own.
fn of_the_guest(equipment: &setup::Equipment, only: Option<&str>) -> Result<Count> {
    let wanted = |names: &str| only.is_none_or(|part| names.contains(part));
    let count = Mutex::new(Count::default());
    let begin = Instant::now();
    let told = |name: &str, result: Result<()>| {
        let mut count = count.lock().unwrap_or_else(|e| e.into_inner());
        let seconds = begin.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                count.passed += 1;
                println!("guest test {name} ... ok (until {seconds:.1} s)");
            }
            Err(e) => {
                count.failed += 1;
                println!("guest test {name} ... failed {e:#} (until {seconds:.1} s)");
            }
        }
    };
    if wanted("powercut_recovery") {
        powercut::short(equipment, &told)?;
    }
    if wanted("latency_cut") {
        latency::short(equipment, &told)?;
    }
    Ok(count.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// The real APEX files, where the tests on this machine look for them too.
fn add_apex_files(machine: &mut Machine) -> Result<()> {
    let named = env::var_os("BLOCKD_APEX_DIR").map(PathBuf::from);
    let beside = paths::root().join("../shared/apex");
    let found = named
        .into_iter()
        .chain([beside])
        .find(|d| d.join("sharedlibs.apex").exists());
    let Some(directory) = found else {
        return Ok(());
    };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("apex-files/{}", entry.file_name().to_string_lossy());
        if entry.path().is_file() {
            machine
                .tree
                .add(&name, 0o644, Content::File(fs::read(entry.path())?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let text =
            "ok. 16 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let count = Count {
            passed: 16,
            failed: 2,
            skipped: 1,
        };
        assert_eq!(summary_line(text), Some(count));
        assert_eq!(summary_line("ok."), None);
    }
}
