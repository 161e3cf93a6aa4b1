//! The power-loss test by hand: `cache latency check` where acknowledgements of the run before are
//! there, then `cache latency write`, whose lines go to the host, until the power fails.
//!
//! `blockd.latency=` is `write`, `flush` (each record is flushed) or `none` (only check).

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde_json::json;

use super::{parameter, tool, Port};

/// What was captured of the run before.
const ACKS: &str = "/acks";
const PARTITION: &str = "userdata";
/// The host ends this machine long before.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(port: &mut Port) -> Result<()> {
    if Path::new(ACKS).exists() {
        let words = ["cache", "latency", "check", "--acks", ACKS, PARTITION];
        let checked = tool::call_by("local", &words)?;
        port.send(&json!({"checked": checked.json()}))?;
    }
    let flush: &[&str] = match parameter("latency")?.as_deref() {
        Some("none") => return Ok(()),
        Some("flush") => &["--flush"],
        Some("write") => &[],
        other => bail!("blockd.latency={other:?}"),
    };
    // With a pause the lines keep up with the records, as those of a fast console do.
    let words = "cache latency write --yes --hot-size 1M --hot-writes 2 --pause 10";
    let mut write = Command::new("/system/bin/blockctl");
    write.args(["--connect", "local"]);
    write.args(words.split(' ')).args(flush).arg(PARTITION);
    let mut child = write
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("blockctl")?;
    let output = child.stdout.take().context("no standard output")?;
    for line in BufReader::new(output).lines() {
        port.send(&json!({"printed": line?}))?;
    }
    let mut messages = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut messages)?;
    }
    let status = child.wait()?;
    // Its card has no power any more: soon this machine has none either.
    thread::sleep(PATIENCE);
    bail!("it ended by itself: {status} {messages}")
}
