//! Images: block devices of APEX payloads and of windows of other files.
//!
//! `facts` looks at the client's file, `apex` finds the payload in it, `plan` decides without I/O,
//! `attach` does it with numbers from the `pool`, `list` shows and detaches.

pub mod apex;
pub mod devices;
pub mod facts;
pub mod plan;
pub mod source;
mod step;
mod zip;

pub use source::{FileSource, Source};
pub use step::{Step, Steps};

pub use devices::Images;

use crate::units::Bytes;
use std::fmt;

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
