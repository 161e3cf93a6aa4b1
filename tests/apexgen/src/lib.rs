//! Builds APEX-like archives for tests: right ones, and ones that are wrong in one named way.
//!
//! What is inside follows AOSP's system/apex/docs/README.md and APPNOTE.TXT 6.3 (zip). Without
//! [`ApexBuilder::signed`] there is no AVB footer and the key is noise: such archives are for finding
//! and attaching a payload.

mod builder;
mod corrupt;
mod erofs;
mod payload;
mod sign;
mod zip;

pub use builder::ApexBuilder;
pub use corrupt::Corruption;
pub use erofs::erofs_image;
pub use payload::{ext4_payload, noise, noise_payload};
pub use sign::{Key, Signing};
pub use zip::{Descriptor, Method};

use std::io;
use std::path::Path;

/// Where the payload lies in the archive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First byte of the payload's data.
    pub offset: u64,
    /// Number of bytes of it in the archive.
    pub length: u64,
}

/// Writes a good APEX to `path`: payload stored and on a 4096-byte boundary.
///
/// # Errors
/// What reading `payload_path` or writing `path` gave.
pub fn write_apex(
    path: &Path,
    name: &str,
    version: u64,
    payload_path: &Path,
) -> io::Result<Window> {
    ApexBuilder::new(name, version)
        .payload_file(payload_path)
        .write(path)
}
