//! `blockctl cache latency`. No service is asked: it needs root and the raw partition, and what it
//! prints must leave the device record by record.

use super::args::{LatencyCheck, LatencyWrite};
use super::place;
use crate::output::Output;
use blockd::cache::latency::acks::{Ack, Acks, Seconds, Start};
use blockd::cache::latency::check::{Finding, Known};
use blockd::cache::latency::record::{Record, RunId};
use blockd::cache::latency::write::{self, Listener, Options};
use blockd::cache::latency::{self, hot_of};
use blockd::cache::raw::{Raw, Wanted};
use blockd::device::{Host, Storage};
use blockd::error::{Code, Failure, Result};
use blockd::units::Bytes;
use nix::errno::Errno;
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// `cache latency write`.
pub fn write(arguments: &LatencyWrite, output: &Output) -> Result<()> {
    let host = Host::new();
    let raw = place::guarded(&host, &arguments.partition, &arguments.guards)?;
    let cache = cache_of(&raw);
    let hot = arguments.hot_size.unwrap_or_else(|| hot_of(cache));
    let options = Options {
        hot,
        hot_writes: arguments.hot_writes,
        flush: arguments.flush,
        records: arguments.records,
        pause: Duration::from_millis(arguments.pause),
    };
    match cache {
        Some(cache) => eprintln!("card cache {cache}, hot zone {hot}"),
        None => eprintln!("the size of the card's cache is unknown, hot zone {hot}"),
    }
    let mut printer = Printer(output.is_json());
    write::write(&host, &raw, new_run(&host)?, &options, &mut printer)
}

/// The card's cache by its EXT_CSD, where that could be read.
fn cache_of(raw: &Raw) -> Option<Bytes> {
    let kilobits = raw.disk.ext_csd.value()?.cache_kilobits();
    Some(Bytes(u64::from(kilobits) * 1024 / 8))
}

/// A name that no other run has.
fn new_run(host: &Host) -> Result<RunId> {
    let path = "/proc/sys/kernel/random/uuid";
    let read = host.sysfs().read(path).ok();
    read.and_then(|text| RunId::parse(text.trim()))
        .ok_or_else(|| {
            Failure::new(
                Code::Unsupported,
                "write",
                format!("{path} gives no name for this run"),
            )
            .remedy("mount /proc")
        })
}

/// One line a record, on standard output at once.
struct Printer(bool);

impl Printer {
    fn line(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
        let line = match self.0 {
            true => json().to_string(),
            false => text(),
        };
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{line}")
            .and_then(|()| stdout.flush())
            .map_err(|e| {
                let mut failure = Failure::new(
                    Code::Cancelled,
                    "write",
                    "nobody takes the acknowledgements: without them the test is worth nothing",
                )
                .remedy("capture standard output off the device");
                failure.errno = e.raw_os_error().map(Errno::from_raw);
                failure
            })
    }
}

impl Listener for Printer {
    fn started(&mut self, start: &Start) -> Result<()> {
        self.line(|| start.to_json(), || start.to_string())
    }

    fn acknowledged(&mut self, ack: &Ack) -> Result<()> {
        self.line(|| ack.to_json(), || ack.to_string())
    }
}

/// `cache latency check`.
pub fn check(arguments: &LatencyCheck, output: &Output) -> Result<ExitCode> {
    let known = known(arguments)?;
    let host = Host::new();
    let wanted = Wanted {
        partition: arguments.partition.clone(),
        disk: arguments.disk.clone(),
        merges_done: true,
    };
    let raw = Raw::find(&host, &wanted)?;
    let finding = latency::check(&host, &raw, &known)?;
    output.data(|| to_json(&finding), || text(&finding, &known));
    Ok(ExitCode::from(finding.exit()))
}

fn known(arguments: &LatencyCheck) -> Result<Known> {
    if let Some(path) = &arguments.acks {
        return Acks::parse(&read(path)?).map(Known::Acks);
    }
    Ok(match arguments.last_seq {
        Some(sequence) => Known::Last {
            sequence,
            time: arguments.last_time,
        },
        None => Known::Nothing,
    })
}

fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|e| {
        let shown = path.display();
        let text = format!("cannot read the acknowledgements in {shown}");
        let mut failure = Failure::new(Code::InvalidRequest, "acks", text)
            .remedy("name the file with the captured lines of `cache latency write`");
        failure.errno = e.raw_os_error().map(Errno::from_raw);
        failure
    })?;
    // A console's log may have any bytes between the lines.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn nanos(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn to_json(finding: &Finding) -> Value {
    let record = |record: &Record| {
        json!({
            "run": record.run.to_string(),
            "sequence": record.sequence,
            "monotonic_nanos": nanos(Some(record.time)),
        })
    };
    json!({
        "verdict": finding.verdict.name(),
        "survivor": finding.survivor.as_ref().map(record),
        "acknowledged": finding.acknowledged.map(|(sequence, time)| json!({
            "sequence": sequence,
            "monotonic_nanos": nanos(time),
        })),
        "lost_records": finding.lost,
        "age_nanos": nanos(finding.age),
        "resolution_nanos": nanos(finding.resolution),
        "text": finding.text,
    })
}

fn text(finding: &Finding, known: &Known) -> String {
    let seconds = |time: Duration| format!("{} s", Seconds(time));
    let mut text = format!("{}\n", finding.text);
    if let Some(record) = &finding.survivor {
        text.push_str(&format!(
            "  there:         record {} of run {}, {}\n",
            record.sequence,
            record.run,
            seconds(record.time)
        ));
    }
    if let Some((sequence, time)) = finding.acknowledged {
        let time = time.map_or(String::new(), |time| format!(", {}", seconds(time)));
        text.push_str(&format!("  acknowledged:  record {sequence}{time}\n"));
    }
    if let Known::Acks(acks) = known {
        if acks.ignored > 0 {
            text.push_str(&format!(
                "  passed over:   {} line(s) that are no acknowledgements\n",
                acks.ignored
            ));
        }
    }
    text
}
