//! Counting what the kernel does: event histograms and traced functions (tracefs).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Room for traced calls, KiB per processor.
const BUFFER_KIB: &str = "4096";

/// Counts hits of one event by one of its fields. The kernel aggregates, so nothing is lost.
#[derive(Debug)]
pub struct Histogram {
    directory: PathBuf,
    trigger: String,
    key: String,
}

impl Histogram {
    /// Starts to count `event` (`mmc/mmc_request_start`) by `key`, if `filter` holds.
    ///
    /// # Errors
    /// The kernel has no such event, field or histograms.
    pub fn start(event: &str, key: &str, filter: Option<&str>) -> Result<Self> {
        let directory = Path::new(TRACEFS).join("events").join(event);
        let condition = filter.map(|f| format!(" if {f}")).unwrap_or_default();
        let trigger = format!("hist:keys={key}:size=4096{condition}");
        fs::write(directory.join("trigger"), &trigger)
            .with_context(|| format!("trigger `{trigger}` of {event}"))?;
        Ok(Self {
            directory,
            trigger,
            key: key.to_owned(),
        })
    }

    /// Hits by value of the key.
    ///
    /// # Errors
    /// The histogram cannot be read, or it dropped hits.
    pub fn read(&self) -> Result<BTreeMap<u64, u64>> {
        parse(&fs::read_to_string(self.directory.join("hist"))?, &self.key)
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        // Nothing else uses this event's trigger; the guest ends soon anyway.
        let _ = fs::write(self.directory.join("trigger"), format!("!{}", self.trigger));
    }
}

/// Parses lines as `{ cmd_opcode:         38 } hitcount:          1`.
fn parse(text: &str, key: &str) -> Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(dropped) = line.strip_prefix("Dropped:") {
            ensure!(
                dropped.trim() == "0",
                "the histogram dropped {dropped} hits"
            );
        }
        let Some(entry) = line.strip_prefix('{') else {
            continue;
        };
        let fields: Vec<_> = entry.split_whitespace().collect();
        let [name, value, "}", "hitcount:", count] = fields[..] else {
            bail!("histogram line `{line}`");
        };
        ensure!(
            name.strip_suffix(':') == Some(key),
            "histogram line `{line}`"
        );
        *counts.entry(value.parse()?).or_default() += count.parse::<u64>()?;
    }
    Ok(counts)
}

/// Records calls of kernel functions that match patterns.
#[derive(Debug)]
pub struct FunctionTrace(PathBuf);

impl FunctionTrace {
    /// Starts to trace the functions in an instance of its own.
    ///
    /// # Errors
    /// The kernel has no function tracer or no such function.
    pub fn start(instance: &str, patterns: &[&str]) -> Result<Self> {
        let directory = Path::new(TRACEFS).join("instances").join(instance);
        fs::create_dir(&directory).context("make a trace instance")?;
        let trace = Self(directory);
        trace.write("set_ftrace_filter", &patterns.join(" "))?;
        let selected = trace.read("set_ftrace_filter")?;
        ensure!(
            !selected.trim().is_empty(),
            "no function matches {patterns:?}"
        );
        trace.write("buffer_size_kb", BUFFER_KIB)?;
        trace.write("current_tracer", "function")?;
        Ok(trace)
    }

    /// The functions that are traced.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn functions(&self) -> Result<Vec<String>> {
        Ok(self
            .read("set_ftrace_filter")?
            .split_whitespace()
            .map(str::to_owned)
            .collect())
    }

    /// Forgets all calls so far.
    ///
    /// # Errors
    /// tracefs refuses.
    pub fn clear(&self) -> Result<()> {
        self.write("trace", "")
    }

    /// Calls by function since the start or the last [`clear`](Self::clear).
    ///
    /// # Errors
    /// tracefs cannot be read, or the buffer ran over.
    pub fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for line in self.read("trace")?.lines() {
            if line.starts_with('#') {
                ensure!(!line.contains("LOST"), "the trace buffer ran over");
                continue;
            }
            // `  blockd-77  [001] ...1.  12.345678: blk_mq_freeze_queue <-caller`
            let Some((call, _)) = line.rsplit_once(" <-") else {
                continue;
            };
            let function = call.rsplit(' ').next().unwrap_or_default();
            *counts.entry(function.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }

    /// The first calls since the last [`clear`](Self::clear), as the kernel prints them: who
    /// called what from where.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn first_calls(&self, count: usize) -> Result<Vec<String>> {
        let trace = self.read("trace")?;
        let calls = trace.lines().filter(|line| !line.starts_with('#'));
        Ok(calls
            .take(count)
            .map(|line| line.trim().to_owned())
            .collect())
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(file), text).with_context(|| format!("write `{text}` to {file}"))
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.0.join(file)).with_context(|| format!("read {file}"))
    }
}

impl Drop for FunctionTrace {
    fn drop(&mut self) {
        let _ = self.write("current_tracer", "nop");
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = "# event histogram
#
# trigger info: hist:keys=cmd_opcode:vals=hitcount:sort=hitcount:size=4096 [active]
#

{ cmd_opcode:         38 } hitcount:          1
{ cmd_opcode:         13 } hitcount:         12

Totals:
    Hits: 13
    Entries: 2
    Dropped: 0
";

    #[test]
    fn histograms_parse() {
        let counts = parse(HISTOGRAM, "cmd_opcode").unwrap();
        assert_eq!(counts, BTreeMap::from([(38, 1), (13, 12)]));
        assert!(parse(HISTOGRAM, "other").is_err());
        assert!(parse(&HISTOGRAM.replace("Dropped: 0", "Dropped: 3"), "cmd_opcode").is_err());
    }
}
