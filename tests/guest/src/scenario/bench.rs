//! The same range erased by three callers, each counted by the host between two marks: blockd,
//! the kernel's BLKSECDISCARD by blkdiscard, mmc-utils.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde_json::json;

use super::{tool, Port};

/// The partition that all of them erase.
const TARGET: &str = "userdata";
const DISK: &str = "/dev/block/mmcblk0";

pub(super) fn run(port: &mut Port) -> Result<()> {
    // Asked once before, so that nobody pays for the first page of a program.
    tool::call_by("local", &["card", "info"])?.good()?;
    port.mark("begin blockd")?;
    let words = ["reset", "run", "--marker", "none", "--yes", TARGET];
    let answer = tool::call_by("local", &words)?.good()?;
    port.mark("end blockd")?;
    port.send(&json!({
        "bench": "blockd",
        "seconds": answer.elapsed.as_secs_f64(),
        "steps": answer.output["steps"],
    }))?;

    let by_name = format!("/dev/block/by-name/{TARGET}");
    let mut command = Command::new("/system/bin/blkdiscard");
    // Without --force it looks for a file system, and there is none.
    command.args(["--secure", &by_name]);
    timed(port, "kernel", "blkdiscard", &mut command)?;

    let node = fs::read_link(&by_name)?;
    let name = node.file_name().context("partition without a name")?;
    let directory = std::path::Path::new("/sys/class/block").join(name);
    let number = |file: &str| -> Result<u64> {
        let text = fs::read_to_string(directory.join(file))?;
        Ok(text.trim().parse()?)
    };
    let (start, sectors) = (number("start")?, number("size")?);
    let mut command = Command::new("/system/bin/mmc");
    command.args(["erase", "secure-erase"]);
    // Sectors, both inclusive, as CMD35 and CMD36 take them.
    command.args([start.to_string(), (start + sectors - 1).to_string()]);
    timed(port, "mmc-utils", "mmc-utils", command.arg(DISK))
}

/// Runs a program between the marks of `phase`, and sends its time as that of `name`.
fn timed(port: &mut Port, phase: &str, name: &str, command: &mut Command) -> Result<()> {
    port.mark(&format!("begin {phase}"))?;
    let begin = Instant::now();
    let result = command.stdin(Stdio::null()).output();
    let result = result.with_context(|| format!("{command:?}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    port.mark(&format!("end {phase}"))?;
    ensure!(
        result.status.success(),
        "{command:?}: {} {}{}",
        result.status,
        String::from_utf8_lossy(&result.stdout),
        String::from_utf8_lossy(&result.stderr)
    );
    port.send(&json!({"bench": name, "seconds": seconds}))
}
