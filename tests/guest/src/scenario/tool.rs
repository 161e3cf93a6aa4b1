//! Running `blockctl` as a person would.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
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
    /// The process's arguments, for messages.
    pub call: String,
    /// From start to end of the process.
    pub elapsed: Duration,
}

impl Answer {
    /// The answer, if the call succeeded.
    pub fn good(self) -> Result<Self> {
        ensure!(
            self.exit == 0,
            "{}: exit status {}: {} {}",
            self.call,
            self.exit,
            self.output,
            self.messages
        );
        Ok(self)
    }

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

/// Runs `blockctl --json WORD…` over binder.
pub(super) fn call<S: AsRef<OsStr>>(words: &[S]) -> Result<Answer> {
    call_by("binder", words)
}

/// Runs `blockctl --connect PLACE --json WORD…`.
pub(super) fn call_by<S: AsRef<OsStr>>(place: &str, words: &[S]) -> Result<Answer> {
    let begin = Instant::now();
    let mut command = Command::new(BLOCKCTL);
    command
        .args(["--connect", place, "--wait", REGISTRATION, "--json"])
        .args(words);
    let call = format!("{command:?}");
    let result = command.stdin(Stdio::null()).output().context(BLOCKCTL)?;
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
        call,
        elapsed,
    })
}
