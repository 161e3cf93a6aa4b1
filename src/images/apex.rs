//! Where the file system lies inside an APEX (AOSP system/apex/docs/README.md).
//!
//! Only the payload's place is looked for. Its signature is checked elsewhere: until then the
//! window is a claim of the archive's, safe to attach read-only and no more.

use super::source::Source;
use super::zip::{broken, Directory, Entry, STORED};
use super::{Step, Window};
use crate::error::{Code, Result};
use crate::units::Bytes;

/// The entry that is the file system.
const PAYLOAD: &[u8] = b"apex_payload.img";
/// The entry of a compressed APEX: a whole APEX, deflated.
const ORIGINAL: &[u8] = b"original_apex";
/// What the payload starts on: dm-verity's block, and the largest logical block of a loop device.
const ALIGNMENT: u64 = 4096;

/// The payload's window in the file. Reads the tail and one local header, in bounded memory.
///
/// # Errors
/// `NOT_AN_APEX` with record and position, `PAYLOAD_COMPRESSED`, `PAYLOAD_UNALIGNED`,
/// `DEVICE_FAILED` where the file cannot be read.
pub fn find_payload(source: &(impl Source + ?Sized)) -> Result<Window> {
    let directory = Directory::read(source)?;
    let mut payload: Option<Entry<'_>> = None;
    let mut compressed_apex = false;
    directory.for_each(|entry| {
        compressed_apex |= entry.name == ORIGINAL;
        if entry.name == PAYLOAD && payload.replace(entry).is_some() {
            let why = "a second apex_payload.img";
            return Err(broken("central directory entry", entry.position, why));
        }
        Ok(())
    })?;
    let payload = match payload {
        Some(payload) => payload,
        None if compressed_apex => {
            let text = "compressed APEX (capex): decompress it first";
            return Err(Step::Apex
                .fail(Code::PayloadCompressed, text)
                .remedy("attach the `original_apex` inside it, unpacked to a file of its own"));
        }
        None => {
            let text = "not an APEX: the zip archive has no apex_payload.img";
            return Err(Step::Apex
                .fail(Code::NotAnApex, text)
                .remedy("give an offset to attach a part of any other file"));
        }
    };
    if payload.method != STORED {
        let text = format!(
            "apex_payload.img is compressed inside the zip (method {})",
            payload.method
        );
        return Err(Step::Apex.fail(Code::PayloadCompressed, text).remedy(
            "a loop device reads bytes as they lie: store the payload (`zip -0`, apexer)",
        ));
    }
    if payload.size == 0 {
        let why = "apex_payload.img is empty";
        return Err(broken("central directory entry", payload.position, why));
    }
    let offset = payload.locate(source, directory.offset)?;
    if offset % ALIGNMENT != 0 {
        let text = format!("apex_payload.img starts at byte {offset}, not on a multiple of 4096");
        return Err(Step::Apex
            .fail(Code::PayloadUnaligned, text)
            .remedy("align it: `zipalign -f 4096 IN OUT`, before signing"));
    }
    Ok(Window {
        offset: Bytes(offset),
        length: Bytes(payload.size),
    })
}

mod contents;
mod manifest;

pub(super) use contents::file_system;
pub use contents::{Contents, FileSystem};
pub use manifest::Manifest;
pub(super) use manifest::MAX_MANIFEST;

#[cfg(test)]
mod tests;
