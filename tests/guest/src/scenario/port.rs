//! The line to the host: a virtio-serial port that carries JSON lines.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

/// The port's name is fixed in the host's `vm::run` too.
const PORT: &str = "/dev/virtio-ports/blockd.results";

/// The open port.
#[derive(Debug)]
pub struct Port {
    writer: File,
    reader: BufReader<File>,
}

impl Port {
    /// Opens the port.
    ///
    /// # Errors
    /// The machine has no such port.
    pub fn open() -> Result<Self> {
        let writer = OpenOptions::new()
            .read(true)
            .write(true)
            .open(PORT)
            .context(PORT)?;
        let reader = BufReader::new(writer.try_clone()?);
        Ok(Self { writer, reader })
    }

    /// Sends one line.
    ///
    /// # Errors
    /// The host is gone.
    pub fn send(&mut self, value: &Value) -> Result<()> {
        self.writer
            .write_all(format!("{value}\n").as_bytes())
            .context("results port")
    }

    /// Tells the host that a point is reached and waits until it answers: the host reads and
    /// resets its counters in between.
    ///
    /// # Errors
    /// The host is gone or answers something else.
    pub fn mark(&mut self, name: &str) -> Result<()> {
        self.send(&json!({ "mark": name }))?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer).context("results port")?;
        ensure!(
            answer == "go\n",
            "the host answered `{answer}` to mark {name}"
        );
        Ok(())
    }
}

/// The kernel's taint bits (0 after a clean run, but for unsigned or out-of-tree modules).
pub fn tainted() -> Option<u64> {
    fs::read_to_string("/proc/sys/kernel/tainted")
        .ok()?
        .trim()
        .parse()
        .ok()
}
