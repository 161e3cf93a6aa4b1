//! Images: block devices of APEX payloads and of windows of other files.
//!
//! `apex` finds the payload, `plan` decides without I/O, `attach` does it.

pub mod apex;
pub mod source;
mod zip;

pub use source::{FileSource, Source};

use crate::units::Bytes;
use std::fmt;

/// The steps, as failures and times name them.
pub mod step {
    /// Finding the payload in the archive.
    pub const APEX: &str = "apex";
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First byte.
    pub offset: Bytes,
    /// Number of bytes.
    pub length: Bytes,
}

impl Window {
    /// First byte behind it, or `None` where that does not fit.
    pub fn end(self) -> Option<Bytes> {
        self.offset.checked_add(self.length)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from byte {}", self.length.0, self.offset.0)
    }
}
