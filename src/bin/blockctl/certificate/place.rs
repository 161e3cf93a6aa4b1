//! Where a certificate goes.

use super::page;
use crate::output;
use blockd::aidl::ResetReport::ResetReport;
use blockd::error::{Code, Failure, Result};
use blockd::files::{Draft, Existing};
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// For everybody to read: it is a document. The folder decides who can.
const MODE: u32 = 0o644;

/// A place that was found to be fit.
pub enum Place {
    /// Instead of the report in text.
    Stdout,
    /// A file that is not there yet.
    File(PathBuf),
}

impl Place {
    /// `-` is stdout. Called before anything is erased: a certificate that cannot be written is
    /// known by then.
    ///
    /// # Errors
    /// `INVALID_REQUEST` for a file that exists; `PERMISSION`; `DEVICE_FAILED`.
    pub fn new(path: &Path, is_json: bool) -> Result<Place> {
        if path == Path::new("-") {
            if !is_json {
                return Ok(Place::Stdout);
            }
            return Err(invalid("--json and --html - both want stdout".to_owned())
                .remedy("name a file for the certificate"));
        }
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        // Removed again at once: an erase that is interrupted leaves nothing lying about.
        drop(Draft::new(path, MODE).map_err(|e| failure(path, &e))?);
        Ok(Place::File(path.to_owned()))
    }

    /// Writes the page.
    ///
    /// # Errors
    /// As for [`Place::new`].
    pub fn write(self, report: &ResetReport) -> Result<()> {
        let page = page(report);
        match self {
            Place::Stdout => {
                output::print(&page);
                Ok(())
            }
            Place::File(path) => Draft::new(&path, MODE)
                .and_then(|draft| draft.publish(page.as_bytes(), Existing::Keep))
                .map_err(|e| failure(&path, &e)),
        }
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Code::InvalidRequest, "certificate", message)
}

fn exists(path: &Path) -> Failure {
    let path = path.display();
    invalid(format!(
        "{path} is there already; a certificate is never replaced"
    ))
    .remedy("name another file, or remove that one")
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return exists(path);
    }
    let errno = error.raw_os_error().map(Errno::from_raw);
    let code = match errno {
        Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => Code::Permission,
        Some(Errno::ENOENT | Errno::ENOTDIR | Errno::EISDIR | Errno::ENAMETOOLONG) | None => {
            Code::InvalidRequest
        }
        Some(_) => Code::DeviceFailed,
    };
    let shown = path.display();
    let mut failure = Failure::new(
        code,
        "certificate",
        format!("cannot write the certificate {shown}"),
    );
    failure.errno = errno;
    failure.remedy(
        "name a file in a folder that can be written; after a reset `blockctl reset report --html \
         FILE` makes its certificate again",
    )
}
