//! Bytes that are read by position.

use crate::device::block::errno;
use crate::units::Bytes;
use nix::errno::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file, or memory in tests. Nothing here moves a file position: the client shares it with us.
pub trait Source {
    /// Number of bytes.
    fn size(&self) -> Bytes;
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// The kernel's errno; `EIO` where the bytes end before the buffer is full.
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno>;
}

/// A client's file. The size is the one that was checked, not asked for again.
pub struct FileSource<'a> {
    file: &'a File,
    size: Bytes,
}

impl<'a> FileSource<'a> {
    /// The first `size` bytes of `file`.
    pub fn new(file: &'a File, size: Bytes) -> FileSource<'a> {
        FileSource { file, size }
    }
}

impl Source for FileSource<'_> {
    fn size(&self) -> Bytes {
        self.size
    }

    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.file.read_exact_at(buffer, offset.0).map_err(errno)
    }
}

impl Source for [u8] {
    fn size(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        let start = usize::try_from(offset.0).map_err(|_| Errno::EIO)?;
        let end = start.checked_add(buffer.len()).ok_or(Errno::EIO)?;
        buffer.copy_from_slice(self.get(start..end).ok_or(Errno::EIO)?);
        Ok(())
    }
}
