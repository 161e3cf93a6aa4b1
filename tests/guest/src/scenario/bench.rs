//! The same range erased by three callers, each counted by the host between two marks: blockd,
//! the kernel's BLKSECDISCARD, mmc-utils.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde_json::json;

use super::{reset, tool, Port};

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

    reset::kernel(port)?;

    let node = fs::read_link(format!("/dev/block/by-name/{TARGET}"))?;
    let name = node.file_name().context("partition without a name")?;
    let directory = std::path::Path::new("/sys/class/block").join(name);
    let number = |file: &str| -> Result<u64> {
        let text = fs::read_to_string(directory.join(file))?;
        Ok(text.trim().parse()?)
    };
    let (start, sectors) = (number("start")?, number("size")?);
    port.mark("begin mmc-utils")?;
    let begin = Instant::now();
    let mut command = Command::new("/system/bin/mmc");
    command.args(["erase", "secure-erase"]);
    // Sectors, both inclusive, as CMD35 and CMD36 take them.
    command.args([start.to_string(), (start + sectors - 1).to_string()]);
    let result = command.arg(DISK).stdin(Stdio::null()).output();
    let result = result.with_context(|| format!("{command:?}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    port.mark("end mmc-utils")?;
    ensure!(
        result.status.success(),
        "{command:?}: {} {}{}",
        result.status,
        String::from_utf8_lossy(&result.stdout),
        String::from_utf8_lossy(&result.stderr)
    );
    port.send(&json!({"bench": "mmc-utils", "seconds": seconds}))
}
