//! The integration tests, run inside: their JSON lines go on to the host.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

use super::{parameter, Port};
use crate::stacks;

const PROGRAM: &str = "/system/bin/it";
/// The real APEX files, if the host had them.
const APEX_FILES: &str = "/apex-files";
/// A case that takes longer hangs.
const SILENCE: Duration = Duration::from_secs(300);
/// On the kernel's command line: run the cases that have this in their name.
const ONLY: &str = "only";
/// On the kernel's command line: `all` means that nothing may be skipped.
const REQUIRE: &str = "require";

pub(super) fn run(port: &mut Port) -> Result<()> {
    let mut command = Command::new(PROGRAM);
    command
        .arg("--guest")
        .env("TMPDIR", "/tmp")
        .env("RUST_BACKTRACE", "1");
    if let Some(part) = parameter(ONLY)? {
        command.arg(part);
    }
    if let Some(require) = parameter(REQUIRE)? {
        command.env("BLOCKD_REQUIRE", require);
    }
    if Path::new(APEX_FILES).exists() {
        command.env("BLOCKD_APEX_DIR", APEX_FILES);
    }
    let mut tests = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(PROGRAM)?;
    let output = BufReader::new(tests.stdout.take().context("no standard output")?);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .try_for_each(|l| sender.send(l))
    });
    loop {
        let line = match receiver.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                stacks::all().iter().for_each(|line| println!("{line}"));
                tests.kill()?;
                bail!("the tests have said nothing for {} s", SILENCE.as_secs());
            }
        };
        match serde_json::from_str::<Value>(&line) {
            Ok(value) => port.send(&json!({ "it": value }))?,
            // What a case prints by itself belongs to the console.
            Err(_) => println!("{line}"),
        }
    }
    let status = tests.wait()?;
    // A failed case is the host's to judge; a crash is not.
    ensure!(
        matches!(status.code(), Some(0 | 1)),
        "the tests ended with {status}"
    );
    Ok(())
}
