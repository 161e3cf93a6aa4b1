//! The records of a zip archive that lead to one entry (APPNOTE.TXT 6.3.10, section 4.3).
//!
//! Written here because every zip library finds the *contents* of an entry and hides where they
//! lie, and because the reader must refuse what two readers could understand differently: the
//! kernel will read what the window says, whatever the signature was made over.

mod entry;
mod zip64;

pub(super) use entry::Entry;
pub use entry::STORED;

use super::source::Source;
use super::Step;
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use zip64::End;

/// Entries of an archive that are looked at. An APEX has about ten.
pub const MAX_ENTRIES: u64 = 1024;
/// Bytes of central directory that are read.
pub const MAX_DIRECTORY: u64 = 1 << 20;

const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
const END_SIGNATURE: u32 = 0x0605_4b50;

const CENTRAL_LENGTH: usize = 46;
const END_LENGTH: usize = 22;
/// The end record and the longest comment.
const LONGEST_TAIL: u64 = END_LENGTH as u64 + 0xffff;
/// The least that is read first. With the page that it begins in it holds the end record of nearly
/// every APEX.
const SHORT_TAIL: u64 = 1024;
const PAGE: u64 = 4096;

/// A record that cannot be right: which, where in the file, and why.
pub(super) fn broken(record: &str, offset: u64, why: &str) -> Failure {
    Step::Apex
        .fail(
            Code::NotAnApex,
            format!("not an APEX: {record} at byte {offset}: {why}"),
        )
        .remedy("the file is damaged or incomplete; copy it again, `unzip -t` names what is wrong")
}

fn read(
    source: &(impl Source + ?Sized),
    record: &str,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    source.read_at(Bytes(offset), buffer).map_err(|errno| {
        Step::Apex
            .fail(
                Code::DeviceFailed,
                format!("cannot read the {record} at byte {offset}"),
            )
            .errno(errno)
            .remedy("the file became shorter or its disk fails: see the kernel log")
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}

/// The central directory, in memory.
pub(super) struct Directory {
    /// Position in the file. Entries end before it.
    pub offset: u64,
    entries: u64,
    bytes: Vec<u8>,
}

impl Directory {
    /// Finds and reads the directory. One pass over the tail; the signature that is nearest to the
    /// end counts, as for Android's libziparchive, and its comment must end with the file.
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Directory> {
        let file = source.size().0;
        if file < END_LENGTH as u64 {
            return Err(broken("end record", 0, "the file is too short for one"));
        }
        let short = file.saturating_sub(SHORT_TAIL);
        let starts = [short - short % PAGE, file.saturating_sub(LONGEST_TAIL)];
        let (mut tail, mut start, mut found) = (Vec::new(), file, None);
        for first in starts {
            if first >= start {
                break;
            }
            start = first;
            // Not resize(): at opt-level z that is a loop over the bytes.
            tail = vec![0; (file - start) as usize];
            read(source, "end record", start, &mut tail)?;
            found = find_end(&tail);
            if found.is_some() {
                break;
            }
        }
        let Some(at) = found else {
            let why = "no end record of a zip archive before it";
            return Err(broken("end of file", file, why));
        };
        let record = &tail[at..];
        let position = start + at as u64;
        let end = check_end(source, record, position)?;
        let bytes = match end.offset.checked_sub(start) {
            // It ends before the end record begins, so it is inside the tail as a whole.
            Some(inside) => tail[inside as usize..(end.limit - start) as usize].to_vec(),
            None => {
                let mut bytes = vec![0; end.length as usize];
                read(source, "central directory", end.offset, &mut bytes)?;
                bytes
            }
        };
        Ok(Directory {
            offset: end.offset,
            entries: end.entries,
            bytes,
        })
    }

    /// Hands every entry to `each`, in order; fails where the directory is not exactly the entries
    /// that the end record counts.
    pub fn for_each<'a>(&'a self, mut each: impl FnMut(Entry<'a>) -> Result<()>) -> Result<()> {
        let mut at = 0;
        for _ in 0..self.entries {
            let position = self.offset + at as u64;
            let bad = |why| broken("central directory entry", position, why);
            let rest = &self.bytes[at..];
            if rest.len() < CENTRAL_LENGTH {
                return Err(bad("it runs past the directory"));
            }
            if u32_at(rest, 0) != CENTRAL_SIGNATURE {
                return Err(bad("no signature"));
            }
            let name = usize::from(u16_at(rest, 28));
            let extra = name + usize::from(u16_at(rest, 30));
            let variable = extra + usize::from(u16_at(rest, 32));
            let Some(texts) = rest.get(CENTRAL_LENGTH..CENTRAL_LENGTH + variable) else {
                return Err(bad("it runs past the directory"));
            };
            if u16_at(rest, 34) != 0 {
                return Err(bad("it names another disk"));
            }
            each(Entry::parse(rest, &texts[..name], &texts[name..extra], position).map_err(bad)?)?;
            at += CENTRAL_LENGTH + variable;
        }
        if at != self.bytes.len() {
            let why = "bytes behind its last entry";
            return Err(broken("central directory", self.offset, why));
        }
        Ok(())
    }
}

/// Position of the last end record signature that a whole record can follow.
fn find_end(tail: &[u8]) -> Option<usize> {
    let last = tail.len().checked_sub(END_LENGTH)?;
    let signature = END_SIGNATURE.to_le_bytes();
    tail[..last + signature.len()]
        .windows(signature.len())
        .rposition(|bytes| bytes == signature)
}

/// Where the directory lies and how many entries it has.
fn check_end(source: &(impl Source + ?Sized), record: &[u8], position: u64) -> Result<End> {
    let bad = |why| broken("end record", position, why);
    if END_LENGTH + usize::from(u16_at(record, 20)) != record.len() {
        return Err(bad("its comment does not end with the file"));
    }
    if u16_at(record, 4) != 0 || u16_at(record, 6) != 0 || u16_at(record, 8) != u16_at(record, 10) {
        return Err(bad("the archive has several disks"));
    }
    let mut end = End {
        entries: u64::from(u16_at(record, 10)),
        length: u64::from(u32_at(record, 12)),
        offset: u64::from(u32_at(record, 16)),
        limit: position,
    };
    // A writer may make the zip64 records where they are not needed.
    if end.is_wide() || end.offset + end.length != position {
        end = match zip64::read_end(source, &end, position)? {
            Some(wide) => wide,
            None if end.is_wide() => {
                return Err(bad("a number of all ones, and no zip64 locator before it"))
            }
            None => end,
        };
    }
    if end.entries == 0 {
        return Err(bad("the archive is empty"));
    }
    if end.entries > MAX_ENTRIES {
        return Err(bad("more than 1024 entries"));
    }
    if end.length > MAX_DIRECTORY {
        return Err(bad("a central directory of more than 1 MiB"));
    }
    // apksig wants nothing between the two, and a reader that searches cannot be led astray.
    if end.offset.checked_add(end.length) != Some(end.limit) {
        return Err(bad("the central directory does not end where it begins"));
    }
    Ok(end)
}

#[cfg(test)]
mod tests;
