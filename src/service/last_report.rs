//! The last report, kept in a folder over restarts where there is one.

use crate::aidl::ResetReport::ResetReport;
use crate::files::{Draft, Existing};
use crate::service::json;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Name of the file in the folder.
pub const FILE: &str = "last-reset.json";
/// A larger file is none of ours: long lists are kept by their ends.
const LARGEST: u64 = 4 << 20;
/// It names the card by its serial number.
const MODE: u32 = 0o600;

/// The report of the last run that destroyed anything.
pub struct LastReport {
    file: Option<PathBuf>,
    /// As JSON: the types that Soong generates cannot be cloned.
    report: Mutex<Option<Value>>,
}

/// The last report for somebody who does not wait.
pub enum Peek {
    /// There is none.
    None,
    /// It is being written at this moment.
    Busy,
    /// As `blockctl --json reset report` prints it.
    Report(Value),
}

impl LastReport {
    /// With what the folder has. A file that cannot be understood is logged and taken for none; it
    /// stays until the next report replaces it.
    pub fn open(folder: Option<&Path>) -> LastReport {
        let file = folder.map(|folder| folder.join(FILE));
        let report = file.as_deref().and_then(|path| match read(path) {
            Ok(report) => report,
            Err(why) => {
                log::warn!("{}: {why}; taken for none", path.display());
                None
            }
        });
        LastReport {
            file,
            report: Mutex::new(report),
        }
    }

    /// Keeps a report. Where the folder cannot be written, the report gets a warning that says so.
    pub fn put(&self, report: &mut ResetReport) {
        let mut last = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let mut value = json::report(report);
        if let Some(file) = &self.file {
            if let Err(error) = write(file, &value) {
                let warning = format!(
                    "the report could not be kept in {}: {error}",
                    file.display()
                );
                log::error!("{warning}");
                report.warnings.push(warning);
                value = json::report(report);
            }
        }
        *last = Some(value);
    }

    /// The report, unless it would have to be waited for.
    pub fn peek(&self) -> Peek {
        match self.report.try_lock() {
            Ok(last) => last.clone().map_or(Peek::None, Peek::Report),
            Err(TryLockError::Poisoned(last)) => {
                last.into_inner().clone().map_or(Peek::None, Peek::Report)
            }
            Err(TryLockError::WouldBlock) => Peek::Busy,
        }
    }

    /// The report.
    pub fn get(&self) -> Option<ResetReport> {
        let last = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let report = json::parse_report(last.as_ref()?);
        report.map_err(|why| log::error!("last report: {why}")).ok()
    }
}

fn read(path: &Path) -> Result<Option<Value>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| e.to_string())?,
    };
    let mut text = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut text)
        .map_err(|e| e.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("larger than {LARGEST} bytes"));
    }
    let value: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    json::parse_report(&value)?;
    Ok(Some(value))
}

fn write(path: &Path, value: &Value) -> io::Result<()> {
    Draft::new(path, MODE)?.publish(format!("{value}\n").as_bytes(), Existing::Replace)
}
