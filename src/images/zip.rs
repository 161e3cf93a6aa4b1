//! The records of a zip archive that lead to one entry (APPNOTE.TXT 6.3.10, section 4.3).
//!
//! Written here because every zip library finds the *contents* of an entry and hides where they
//! lie, and because the reader must refuse what two readers could understand differently: the
//! kernel will read what the window says, whatever the signature was made over.

use super::source::Source;
use super::Step;
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;

/// Entries of an archive that are looked at. An APEX has about ten.
pub const MAX_ENTRIES: u16 = 1024;
/// Bytes of central directory that are read.
pub const MAX_DIRECTORY: u32 = 1 << 20;

const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
const END_SIGNATURE: u32 = 0x0605_4b50;

const LOCAL_LENGTH: usize = 30;
const CENTRAL_LENGTH: usize = 46;
const END_LENGTH: usize = 22;
/// The end record and the longest comment.
const LONGEST_TAIL: u64 = END_LENGTH as u64 + 0xffff;
/// The least that is read first. With the page that it begins in it holds the end record of nearly
/// every APEX.
const SHORT_TAIL: u64 = 1024;
const PAGE: u64 = 4096;

/// Numbers that mean "see the zip64 records".
const ZIP64_16: u16 = 0xffff;
const ZIP64_32: u32 = 0xffff_ffff;

/// Bit 3: sizes and checksum stand behind the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Bits 0, 5, 6 and 13: encrypted, patch data, strongly encrypted, masked header.
const FLAGS_UNREADABLE: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;

/// Method 0: the bytes as they are.
pub const STORED: u16 = 0;
/// Method 8.
const DEFLATED: u16 = 8;

/// A record that cannot be right: which, where in the file, and why.
pub(super) fn broken(record: &str, offset: u64, why: &str) -> Failure {
    Step::Apex
        .fail(
            Code::NotAnApex,
            format!("not an APEX: {record} at byte {offset}: {why}"),
        )
        .remedy("the file is damaged or incomplete; copy it again, `unzip -t` names what is wrong")
}

fn zip64(record: &str, offset: u64) -> Failure {
    Step::Apex
        .fail(
            Code::Unsupported,
            format!("zip64 archive ({record} at byte {offset}): not supported"),
        )
        .remedy("make the APEX without zip64: it is needed only above 4 GiB or 65,534 entries")
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

/// The central directory, in memory.
pub(super) struct Directory {
    /// Position in the file. Entries end before it.
    pub offset: u64,
    entries: u16,
    bytes: Vec<u8>,
}

/// One entry as the central directory describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub name: &'a [u8],
    pub method: u16,
    /// Position of this record, for messages.
    pub position: u64,
    flags: u16,
    crc: u32,
    compressed: u32,
    pub size: u32,
    local: u32,
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
        let (entries, length, offset) = check_end(record, position)?;
        let bytes = match offset.checked_sub(start) {
            // It ends where the end record begins, so it is inside the tail as a whole.
            Some(inside) => tail[inside as usize..at].to_vec(),
            None => {
                let mut bytes = vec![0; length as usize];
                read(source, "central directory", offset, &mut bytes)?;
                bytes
            }
        };
        Ok(Directory {
            offset,
            entries,
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
            let variable = name + usize::from(u16_at(rest, 30)) + usize::from(u16_at(rest, 32));
            if rest.len() < CENTRAL_LENGTH + variable {
                return Err(bad("it runs past the directory"));
            }
            if u16_at(rest, 34) != 0 {
                return Err(bad("it names another disk"));
            }
            each(Entry {
                name: &rest[CENTRAL_LENGTH..CENTRAL_LENGTH + name],
                position,
                flags: u16_at(rest, 8),
                method: u16_at(rest, 10),
                crc: u32_at(rest, 16),
                compressed: u32_at(rest, 20),
                size: u32_at(rest, 24),
                local: u32_at(rest, 42),
            })?;
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

/// Number of entries, length and offset of the directory.
fn check_end(record: &[u8], position: u64) -> Result<(u16, u32, u64)> {
    let bad = |why| broken("end record", position, why);
    let (entries, length, offset) = (u16_at(record, 10), u32_at(record, 12), u32_at(record, 16));
    if END_LENGTH + usize::from(u16_at(record, 20)) != record.len() {
        return Err(bad("its comment does not end with the file"));
    }
    if entries == ZIP64_16 || length == ZIP64_32 || offset == ZIP64_32 {
        return Err(zip64("end record", position));
    }
    if u16_at(record, 4) != 0 || u16_at(record, 6) != 0 || u16_at(record, 8) != entries {
        return Err(bad("the archive has several disks"));
    }
    if entries == 0 {
        return Err(bad("the archive is empty"));
    }
    if entries > MAX_ENTRIES {
        return Err(bad("more than 1024 entries"));
    }
    if length > MAX_DIRECTORY {
        return Err(bad("a central directory of more than 1 MiB"));
    }
    // apksig wants nothing between the two, and a reader that searches cannot be led astray.
    if u64::from(offset) + u64::from(length) != position {
        return Err(bad("the central directory does not end where it begins"));
    }
    Ok((entries, length, u64::from(offset)))
}

impl Entry<'_> {
    /// First byte of the local header, and the first behind the data that was [located](
    /// Self::locate) at `data`. A data descriptor behind it is not counted.
    pub fn span(&self, data: u64) -> (u64, u64) {
        (u64::from(self.local), data + u64::from(self.compressed))
    }

    /// The contents, of at most `most` bytes, checksum compared. `limit` as for
    /// [`Entry::locate`].
    pub fn contents(
        &self,
        source: &(impl Source + ?Sized),
        limit: u64,
        most: u32,
    ) -> Result<Vec<u8>> {
        let bad = |why| broken("central directory entry", self.position, why);
        let data = self.locate(source, limit)?;
        if self.size > most || self.compressed > most {
            return Err(bad("larger than such an entry ever is"));
        }
        let mut bytes = vec![0; self.compressed as usize];
        read(source, "entry", data, &mut bytes)?;
        let bytes = match self.method {
            STORED => bytes,
            DEFLATED => inflate(&bytes, self.size as usize)
                .ok_or_else(|| bad("the deflated data is damaged or of another length"))?,
            _ => return Err(bad("neither stored nor deflated")),
        };
        if crc32(&bytes) != self.crc {
            return Err(bad("the checksum is not that of the data"));
        }
        Ok(bytes)
    }

    /// Checks that the entry's local header says the same, and returns the position of its data,
    /// which ends at or before `limit`.
    pub fn locate(&self, source: &(impl Source + ?Sized), limit: u64) -> Result<u64> {
        let central = |why| broken("central directory entry", self.position, why);
        if [self.compressed, self.size, self.local].contains(&ZIP64_32) {
            return Err(zip64("central directory entry", self.position));
        }
        if self.flags & FLAGS_UNREADABLE != 0 {
            return Err(central("the entry is encrypted or patch data"));
        }
        if self.method == STORED && self.compressed != self.size {
            return Err(central("a stored entry with two sizes"));
        }
        let start = u64::from(self.local);
        let fixed = (LOCAL_LENGTH + self.name.len()) as u64;
        if start + fixed > limit {
            return Err(central("its local header lies behind the directory"));
        }
        let mut header = vec![0; fixed as usize];
        read(source, "local header", start, &mut header)?;
        self.compare(&header, start)?;
        let data = start + fixed + u64::from(u16_at(&header, 28));
        if data + u64::from(self.compressed) > limit {
            return Err(broken(
                "local header",
                start,
                "the data runs into the directory",
            ));
        }
        Ok(data)
    }

    /// `header` is the local header with a name of the length that this entry's has.
    fn compare(&self, header: &[u8], position: u64) -> Result<()> {
        let bad = |why| broken("local header", position, why);
        if u32_at(header, 0) != LOCAL_SIGNATURE {
            return Err(bad("no signature"));
        }
        if u16_at(header, 6) != self.flags || u16_at(header, 8) != self.method {
            return Err(bad("flags or method differ from the central directory's"));
        }
        let name = usize::from(u16_at(header, 26));
        if name != self.name.len() || &header[LOCAL_LENGTH..] != self.name {
            return Err(bad("the name differs from the central directory's"));
        }
        let later = self.flags & FLAG_DESCRIPTOR != 0;
        let same = [(14, self.crc), (18, self.compressed), (22, self.size)]
            .iter()
            .all(|&(at, want)| u32_at(header, at) == want || later && u32_at(header, at) == 0);
        if !same {
            return Err(bad("checksum or sizes differ from the central directory's"));
        }
        Ok(())
    }
}

/// The `size` bytes that `deflated` gives; `None` where it gives others. Never holds more.
#[cfg(not(blockd_recovery))]
fn inflate(deflated: &[u8], size: usize) -> Option<Vec<u8>> {
    use flate2::{Decompress, FlushDecompress, Status};
    // A byte more than it may be: a longer stream is told from one that fits.
    let mut bytes = Vec::with_capacity(size + 1);
    let mut stream = Decompress::new(false);
    let status = stream
        .decompress_vec(deflated, &mut bytes, FlushDecompress::Finish)
        .ok()?;
    let whole = status == Status::StreamEnd && stream.total_in() == deflated.len() as u64;
    (whole && bytes.len() == size).then_some(bytes)
}

/// Recovery has no flate2, and attaches no APEX.
#[cfg(blockd_recovery)]
fn inflate(_: &[u8], _: usize) -> Option<Vec<u8>> {
    None
}

/// CRC-32 of zip (polynomial 0xedb88320, reflected), bit by bit: the entries are small.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| {
            c >> 1 ^ 0xedb8_8320 & (c & 1).wrapping_neg()
        })
    })
}
