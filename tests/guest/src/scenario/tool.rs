//! Running `blockctl` as a person would, over binder.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{json, Value};

const BLOCKCTL: &str = "/system/bin/blockctl";
/// init starts the services before the scenario: a longer wait, seconds, means a fault.
const REGISTRATION: &str = "20";

/// What one call of the tool brought.
#[derive(Debug)]
pub(super) struct Answer {
    /// Exit code.
    pub exit: i32,
    /// Its only line on standard output, parsed; null if there is none.
    pub output: Value,
    /// Standard error.
    pub messages: String,
    /// From start to end of the process.
    pub elapsed: Duration,
}

impl Answer {
    /// Everything, for the host.
    pub fn json(&self) -> Value {
        json!({
            "exit": self.exit,
            "output": self.output,
            "messages": self.messages,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

/// Runs `blockctl --json WORD…`.
pub(super) fn call<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Result<Answer> {
    let begin = Instant::now();
    let result = Command::new(BLOCKCTL)
        .args(["--connect", "binder", "--wait", REGISTRATION, "--json"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context(BLOCKCTL)?;
    let elapsed = begin.elapsed();
    let text = String::from_utf8(result.stdout).context("blockctl's output")?;
    let output = match text.trim() {
        "" => Value::Null,
        line => serde_json::from_str(line).with_context(|| format!("blockctl said `{line}`"))?,
    };
    Ok(Answer {
        exit: result.status.code().context("blockctl was killed")?,
        output,
        messages: String::from_utf8_lossy(&result.stderr).into_owned(),
        elapsed,
    })
}
