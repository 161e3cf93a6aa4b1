//! Data to stdout, everything else to stderr.

use blockd::error::Failure;
use serde_json::{json, Value};
use std::io::Write;

/// How results and failures are printed.
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// As `--json` and `--quiet` say.
    pub fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    /// True where results are JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A result: the value as one line of JSON, or the text.
    pub fn result(&self, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.json {
            print(&format!("{}\n", value()));
        } else if !self.quiet {
            print(&text());
        }
    }

    /// A result that `--quiet` does not silence: what the command is for.
    pub fn data(&self, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        let text = if self.json {
            format!("{}\n", value())
        } else {
            text()
        };
        print(&text);
    }

    /// A failure: with `--json` the only line on stdout, otherwise on stderr.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            print(&format!("{}\n", failure_json(failure)));
            return;
        }
        eprintln!("blockctl: {}: {failure}", failure.code);
        if !failure.step.is_empty() {
            eprintln!("  at:  {}", failure.step);
        }
        if !failure.remedy.is_empty() {
            eprintln!("  try: {}", failure.remedy);
        }
    }
}

/// `{"error":{…}}`.
pub fn failure_json(failure: &Failure) -> Value {
    json!({"error": {
        "code": failure.code.name(),
        "step": failure.step,
        "errno": failure.errno.map(|e| e as i32),
        "message": failure.message,
        "remedy": failure.remedy,
    }})
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    if let Err(error) = written {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("blockctl: cannot write to stdout: {error}");
        }
    }
}
