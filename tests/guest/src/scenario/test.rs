//! The integration tests, run inside: their JSON lines go on to the host.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use super::Port;

const PROGRAM: &str = "/system/bin/it";
/// The real APEX files, if the host had them.
const APEX_FILES: &str = "/apex-files";
/// `blockd.require=all` on the kernel's command line: nothing may be skipped.
const REQUIRE: &str = "blockd.require=";

pub(super) fn run(port: &mut Port) -> Result<()> {
    let command_line = std::fs::read_to_string("/proc/cmdline")?;
    let require = command_line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(REQUIRE));
    let mut command = Command::new(PROGRAM);
    command
        .arg("--guest")
        .env("TMPDIR", "/tmp")
        .env("RUST_BACKTRACE", "1");
    if let Some(require) = require {
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
    let lines = BufReader::new(tests.stdout.take().context("no standard output")?).lines();
    for line in lines {
        let line = line?;
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
