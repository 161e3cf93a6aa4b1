//! Archives that are wrong in one place.

use crate::zip::{Directory, Placed};
use std::io::{self, Seek, SeekFrom, Write};

/// One thing that is wrong. Applied to the finished archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// The payload's local header has no signature.
    LocalSignature,
    /// Its local header says `apex_payload.imG`.
    LocalName,
    /// Its local header says deflated where the central directory says stored.
    LocalMethod,
    /// Its local header says a size one byte larger.
    LocalSize,
    /// Its central record says a size of 0.
    EmptyPayload,
    /// Its central record says a size that ends behind the file.
    PayloadBeyondFile,
    /// Its central record says an offset behind the file.
    OffsetBeyondFile,
    /// Its central record and its local header say encrypted.
    Encrypted,
    /// Its central record names another disk.
    OtherDisk,
    /// Its central record has no signature.
    CentralSignature,
    /// Its central record has the sizes that mean "see the zip64 extra field".
    Zip64Entry,
    /// The end record has the numbers that mean "see the zip64 end record".
    Zip64End,
    /// The end record counts one entry more than there are.
    OneEntryMore,
    /// The end record counts one entry less than there are.
    OneEntryLess,
    /// The end record says a directory one byte shorter.
    DirectoryShorter,
    /// The end record says a directory that starts behind the file.
    DirectoryBeyondFile,
    /// The end record says a comment one byte longer than there is.
    CommentLonger,
    /// The end record has no signature.
    EndSignature,
}

impl Corruption {
    /// Every one of them.
    pub const ALL: [Corruption; 18] = [
        Corruption::LocalSignature,
        Corruption::LocalName,
        Corruption::LocalMethod,
        Corruption::LocalSize,
        Corruption::EmptyPayload,
        Corruption::PayloadBeyondFile,
        Corruption::OffsetBeyondFile,
        Corruption::Encrypted,
        Corruption::OtherDisk,
        Corruption::CentralSignature,
        Corruption::Zip64Entry,
        Corruption::Zip64End,
        Corruption::OneEntryMore,
        Corruption::OneEntryLess,
        Corruption::DirectoryShorter,
        Corruption::DirectoryBeyondFile,
        Corruption::CommentLonger,
        Corruption::EndSignature,
    ];
}

pub(crate) fn corrupt<W: Write + Seek>(
    out: &mut W,
    corruption: Corruption,
    payload: Placed,
    directory: Directory,
    comment_length: u16,
) -> io::Result<()> {
    let mut patch = |position: u64, bytes: &[u8]| {
        out.seek(SeekFrom::Start(position))?;
        out.write_all(bytes)
    };
    let (local, central, end) = (payload.local, payload.central, directory.end_record);
    match corruption {
        Corruption::LocalSignature => patch(local, b"KP"),
        Corruption::LocalName => patch(local + 30 + 15, b"G"),
        Corruption::LocalMethod => patch(local + 8, &8u16.to_le_bytes()),
        Corruption::LocalSize => {
            let size = (payload.data.length as u32 + 1).to_le_bytes();
            patch(local + 18, &size)?;
            patch(local + 22, &size)
        }
        Corruption::EmptyPayload => {
            patch(local + 18, &[0; 8])?;
            patch(central + 20, &[0; 8])
        }
        Corruption::PayloadBeyondFile => {
            let size = 0x7fff_f000u32.to_le_bytes();
            for position in [local + 18, local + 22, central + 20, central + 24] {
                patch(position, &size)?;
            }
            Ok(())
        }
        Corruption::OffsetBeyondFile => patch(central + 42, &0x7fff_f000u32.to_le_bytes()),
        Corruption::Encrypted => {
            patch(local + 6, &[1])?;
            patch(central + 8, &[1])
        }
        Corruption::OtherDisk => patch(central + 34, &[1]),
        Corruption::CentralSignature => patch(central, b"KP"),
        Corruption::Zip64Entry => patch(central + 20, &[0xff; 8]),
        Corruption::Zip64End => patch(end + 8, &[0xff; 12]),
        Corruption::OneEntryMore | Corruption::OneEntryLess => {
            let entries = match corruption {
                Corruption::OneEntryMore => directory.entries + 1,
                _ => directory.entries - 1,
            };
            patch(end + 8, &entries.to_le_bytes())?;
            patch(end + 10, &entries.to_le_bytes())
        }
        Corruption::DirectoryShorter => {
            let size = (end - directory.start) as u32;
            patch(end + 12, &(size - 1).to_le_bytes())
        }
        Corruption::DirectoryBeyondFile => patch(end + 16, &0x7fff_f000u32.to_le_bytes()),
        Corruption::CommentLonger => patch(end + 20, &(comment_length + 1).to_le_bytes()),
        Corruption::EndSignature => patch(end, b"KP"),
    }
}
