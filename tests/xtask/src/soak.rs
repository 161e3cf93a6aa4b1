//! `test soak`: many clients at once against the real service.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::{binaries, paths};

/// Runs it on this machine.
///
/// # Errors
/// A client got a wrong answer, something is left, or something of somebody else's was touched.
pub fn run(cycles: usize, clients: usize, json: bool, broken: Option<&str>) -> Result<()> {
    let programs = binaries::programs()?;
    let folder = paths::target().join("bench");
    fs::create_dir_all(&folder)?;
    let mut soak = Command::new(programs.join("blockd-bench"));
    soak.arg("soak").arg("--folder").arg(&folder);
    soak.arg("--blockd").arg(programs.join("blockd"));
    soak.args(["--cycles", &cycles.to_string()]);
    soak.args(["--clients", &clients.to_string()]);
    if let Some(how) = broken {
        soak.args(["--broken", how]);
    }
    let begin = Instant::now();
    let output = soak
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("blockd-bench")?;
    let line = String::from_utf8_lossy(&output.stdout);
    let outcome: Value = serde_json::from_str(line.trim())
        .with_context(|| format!("the suite ended with {} and no result", output.status))?;
    if json {
        println!("{outcome}");
    } else {
        println!(
            "{} attachments by {} clients ({} killed) in {:.1} s; left: {} loop devices, {} mapped \
             devices, {} mounts, {} descriptors; of others touched: {}",
            outcome["cycles"],
            outcome["clients"],
            outcome["killed"],
            begin.elapsed().as_secs_f64(),
            outcome["leaked_loop"],
            outcome["leaked_dm"],
            outcome["leaked_mounts"],
            outcome["leaked_fds"],
            outcome["foreign_touched"],
        );
    }
    ensure!(output.status.success(), "the machine is not as it was");
    Ok(())
}
