//! The FUA measurement between AIDL and the use case.

use crate::aidl;
use crate::aidl::IProgress::IProgress;
use crate::cache::fua::report::{Figures, Report};
use crate::cache::fua::{Observer, Progress, Request};
use crate::device::medium::OpenFile;
use crate::error::{Code, Failure, Result};
use crate::service::ipc::{self, Strong};
use crate::units::Bytes;
use std::fs::File;
use std::time::Duration;

/// The client's file, with a descriptor of our own, and what is to be done with it.
///
/// # Errors
/// `INVALID_REQUEST` for negative numbers, and where no descriptor is free.
pub fn request(request: &aidl::FuaRequest::FuaRequest) -> Result<(OpenFile, Request)> {
    let positive = |field: &str, value: i64| {
        u64::try_from(value).map_err(|_| invalid(format!("{field} is negative ({value})")))
    };
    let count = |field: &str, value: i32| {
        u32::try_from(value).map_err(|_| invalid(format!("{field} is negative ({value})")))
    };
    let what = Request {
        length: Bytes(positive("lengthBytes", request.lengthBytes)?),
        runs: count("runs", request.runs)?,
        block: Bytes(u64::from(count("blockBytes", request.blockBytes)?)),
        sequential_block: Bytes(u64::from(count(
            "sequentialBlockBytes",
            request.sequentialBlockBytes,
        )?)),
        operations: count("operations", request.operations)?,
        limit: Duration::from_millis(positive("limitMillis", request.limitMillis)?),
    };
    let Some(file) = &request.file else {
        return Err(invalid("no file was passed".to_owned()));
    };
    let fd = ipc::dup(file)
        .map_err(|error| invalid(format!("cannot duplicate the file's descriptor: {error}")))?;
    Ok((OpenFile::new(File::from(fd)), what))
}

fn invalid(text: String) -> Failure {
    Failure::new(Code::InvalidRequest, "request", text)
}

/// The request for the wire; `file` goes with it.
pub fn to_aidl(request: &Request, file: ipc::ParcelFileDescriptor) -> aidl::FuaRequest::FuaRequest {
    let int = |n: u64| i32::try_from(n).unwrap_or(i32::MAX);
    aidl::FuaRequest::FuaRequest {
        file: Some(file),
        lengthBytes: long(request.length.0),
        runs: int(u64::from(request.runs)),
        blockBytes: int(request.block.0),
        sequentialBlockBytes: int(request.sequential_block.0),
        operations: int(u64::from(request.operations)),
        limitMillis: long(request.limit.as_millis() as u64),
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A report for the wire.
pub fn report(report: &Report) -> aidl::FuaReport::FuaReport {
    aidl::FuaReport::FuaReport {
        rows: report.rows.iter().map(row).collect(),
        lengthBytes: long(report.length.0),
        elapsedMillis: long(report.elapsed.as_millis() as u64),
        notes: report.notes.clone(),
    }
}

fn row(figures: &Figures) -> aidl::FuaRow::FuaRow {
    aidl::FuaRow::FuaRow {
        pattern: figures.row.pattern.name().to_owned(),
        path: figures.row.path.name().to_owned(),
        blockBytes: figures.row.block.0 as i32,
        operations: figures.row.operations as i32,
        bytesPerSecond: figures.bytes_per_second.iter().map(|b| *b as i64).collect(),
        spreadPercent: hundredths(figures.spread_percent),
        changePercent: hundredths(figures.change_percent),
        latencyNanos: figures.latency_nanos.iter().map(|n| long(*n)).collect(),
    }
}

/// More digits of a measurement say nothing.
fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Passes progress on; a client that has died ends the measurement.
pub fn observer(progress: &Strong<dyn IProgress>) -> Observer {
    let progress = progress.clone();
    Box::new(move |now: &Progress| {
        let told = progress.onProgress(
            &now.step,
            long(now.elapsed.as_millis() as u64),
            long(now.done.0),
            long(now.total.0),
            -1,
        );
        if let Err(error) = &told {
            log::info!("measureFua: the client is gone: {error:?}");
        }
        told.is_ok()
    })
}
