//! A program of the host's choice: its JSON lines go on to the host.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use nix::mount::{mount, MsFlags};
use serde_json::{json, Value};

use super::Port;

/// What to run, as a JSON list: the path, then the arguments.
const COMMAND: &str = "/program.json";
/// Mounted on /data where it is there.
const DISK: &str = "/dev/block/vda";

pub(super) fn run(port: &mut Port) -> Result<()> {
    let words: Vec<String> = serde_json::from_slice(&fs::read(COMMAND).context(COMMAND)?)?;
    let (program, arguments) = words.split_first().context("no program is named")?;
    if Path::new(DISK).exists() {
        let flags = MsFlags::MS_NOATIME;
        mount(Some(DISK), "/data", Some("ext4"), flags, None::<&str>)
            .with_context(|| format!("mount {DISK}"))?;
    }
    let mut child = Command::new(program)
        .args(arguments)
        .env("TMPDIR", "/tmp")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| program.clone())?;
    let output = child.stdout.take().context("no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match serde_json::from_str::<Value>(&line) {
            Ok(value) => port.send(&json!({ "out": value }))?,
            Err(_) => println!("{line}"),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
