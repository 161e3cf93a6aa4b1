//! `blockctl cache fua`.

use super::args::Fua;
use super::place;
use crate::args::Cli;
use crate::output::Output;
use crate::progress;
use blockd::aidl::FuaReport::FuaReport;
use blockd::aidl::FuaRow::FuaRow;
use blockd::cache::fua::{Measurements, Request};
use blockd::client::Client;
use blockd::device::medium::OpenFile;
use blockd::device::{block, host, Host, Storage};
use blockd::error::Result;
use blockd::service::error::failure;
use blockd::service::{fua, ipc};
use blockd::units::Bytes;
use serde_json::{json, Value};
use std::fmt::Write;
use std::fs::File;
use std::time::Duration;

/// Measures and prints.
pub fn run(
    cli: &Cli,
    arguments: &Fua,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let request = Request {
        length: arguments.size,
        runs: arguments.runs,
        block: arguments.block_size,
        sequential_block: arguments.seq_block_size,
        operations: arguments.operations,
        limit: Duration::from_secs(arguments.limit),
    };
    let shown = progress::receiver(cli.progress, cli.quiet);
    let receiver = shown.as_ref().map(|(receiver, _)| receiver);
    let report = match &arguments.partition {
        Some(name) => {
            // The service has no right to a raw partition; this process needs it in any case.
            let host = Host::new();
            let file = claim(&host, name, arguments)?;
            let observer = receiver.map(fua::observer);
            let medium = OpenFile::new(file);
            let report = Measurements::new().measure(host.sysfs(), medium, &request, observer)?;
            fua::report(&report)
        }
        None => {
            let file = place::scratch_file(arguments.place.as_deref())?;
            let diagnostics = connect()?.diagnostics()?;
            let request = fua::to_aidl(&request, ipc::parcel_fd(file.into()));
            let report = diagnostics.measureFua(&request, receiver);
            report.map_err(|s| failure(&s))?
        }
    };
    drop(shown);
    output.data(|| to_json(&report), || text(&report));
    Ok(())
}

fn claim(host: &Host, name: &str, arguments: &Fua) -> Result<File> {
    let raw = place::guarded(host, name, &arguments.guards)?;
    raw.claim(host, |node| block::claim(&host::node_path(node)))
}

fn mean(row: &FuaRow) -> f64 {
    let runs = &row.bytesPerSecond;
    runs.iter().map(|b| *b as f64).sum::<f64>() / runs.len().max(1) as f64
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn iops(row: &FuaRow) -> f64 {
    mean(row) / f64::from(row.blockBytes.max(1))
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn to_json(report: &FuaReport) -> Value {
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| {
            json!({
                "pattern": row.pattern,
                "path": row.path,
                "block_bytes": row.blockBytes,
                "operations": row.operations,
                "bytes_per_second": row.bytesPerSecond,
                "mean_mib_per_second": hundredths(mib(mean(row))),
                "mean_iops": hundredths(iops(row)),
                "spread_percent": row.spreadPercent,
                "change_percent": row.changePercent,
                "latency_nanos": row.latencyNanos,
            })
        })
        .collect();
    json!({
        "length_bytes": report.lengthBytes,
        "elapsed_millis": report.elapsedMillis,
        "rows": rows,
        "notes": report.notes,
    })
}

/// Microseconds with three digits that count.
fn micros(nanos: Option<&i64>) -> String {
    let micros = nanos.copied().unwrap_or(0) as f64 / 1000.0;
    match micros {
        m if m < 10.0 => format!("{m:.2}"),
        m if m < 100.0 => format!("{m:.1}"),
        m => format!("{m:.0}"),
    }
}

fn text(report: &FuaReport) -> String {
    let runs = report.rows.first().map_or(0, |r| r.bytesPerSecond.len());
    let mut text = format!(
        "{} overwritten, {runs} run{} each, {:.1} s\n\n",
        Bytes(u64::try_from(report.lengthBytes).unwrap_or(0)),
        if runs == 1 { "" } else { "s" },
        report.elapsedMillis as f64 / 1000.0
    );
    let _ = writeln!(
        text,
        "{:<10} {:<6} {:>8} {:>9} {:>9} {:>8} {:>7}   {:>31}  MiB/s of each run",
        "pattern",
        "path",
        "block",
        "MiB/s",
        "IOPS",
        "change",
        "spread",
        "latency µs p50/p95/p99/max"
    );
    let mut last = "";
    for row in &report.rows {
        if row.pattern != last && !last.is_empty() {
            text.push('\n');
        }
        last = &row.pattern;
        let change = match row.path.as_str() {
            "direct" => "-".to_owned(),
            _ => format!("{:+.1} %", row.changePercent),
        };
        let latency: Vec<String> = (0..4).map(|n| micros(row.latencyNanos.get(n))).collect();
        let each: Vec<String> = row
            .bytesPerSecond
            .iter()
            .map(|b| format!("{:.2}", mib(*b as f64)))
            .collect();
        let _ = writeln!(
            text,
            "{:<10} {:<6} {:>8} {:>9.2} {:>9.0} {:>8} {:>5.1} %   {:>31}  {}",
            row.pattern,
            row.path,
            Bytes(u64::try_from(row.blockBytes).unwrap_or(0)).to_string(),
            mib(mean(row)),
            iops(row),
            change,
            row.spreadPercent,
            latency.join(" / "),
            each.join(" ")
        );
    }
    text.push_str(
        "\nchange: against direct of the same pattern; spread: largest minus smallest run\n",
    );
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
