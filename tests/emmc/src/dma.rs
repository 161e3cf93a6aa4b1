//! Mappings of guest memory, the only `unsafe` of this crate.
use crate::sdhci::Dma;
use rustix::fs::fstat;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

/// One shared mapping of a stretch of guest memory.
struct Mapping {
    address: u64,
    len: usize,
    base: NonNull<u8>,
    writable: bool,
}

// SAFETY: `base` is a mapping of the process, not of a thread, and only this value owns it.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap with this length and is unmapped only here; no
        // reference into it exists, since all access goes through `copy_*` below.
        if let Err(e) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            log::error!("munmap: {e}");
        }
    }
}

impl Mapping {
    /// The part of this mapping that begins at `address`: its offset and length.
    fn part(&self, address: u64, len: usize) -> Option<Range<usize>> {
        let offset = usize::try_from(address.checked_sub(self.address)?).ok()?;
        (offset < self.len).then(|| offset..self.len.min(offset.saturating_add(len)))
    }
}

/// The guest's memory as the client has described it.
#[derive(Default)]
pub struct GuestMemory(Vec<Mapping>);

impl GuestMemory {
    /// Maps `len` bytes of `fd` from `offset` on at the guest physical `address`.
    ///
    /// # Errors
    /// `InvalidInput` if the range does not lie within the file (an access would be SIGBUS),
    /// or the error of mmap.
    pub fn map(
        &mut self,
        address: u64,
        len: u64,
        fd: &OwnedFd,
        offset: u64,
        writable: bool,
    ) -> io::Result<()> {
        let size = fstat(fd)?.st_size as u64;
        let inside = offset.checked_add(len).is_some_and(|end| end <= size);
        if len == 0 || !inside || address.checked_add(len).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut access = ProtFlags::READ;
        access.set(ProtFlags::WRITE, writable);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing one.
        let base = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        self.0.push(Mapping {
            address,
            len,
            base,
            writable,
        });
        Ok(())
    }

    /// Removes the mappings that lie within the range.
    pub fn unmap(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        self.0
            .retain(|m| m.address < address || m.address + m.len as u64 > end);
    }

    /// Removes all mappings.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Mappings whose parts cover `len` bytes from `address` on, in order: the mapping, the
    /// range within it, the offset within the transfer.
    fn parts(&self, address: u64, len: usize) -> Option<Vec<(&Mapping, Range<usize>, usize)>> {
        let mut parts = Vec::new();
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64)?;
            let found = self
                .0
                .iter()
                .find_map(|m| Some((m, m.part(at, len - done)?)));
            let (mapping, part) = found?;
            let n = part.len();
            parts.push((mapping, part, done));
            done += n;
        }
        Some(parts)
    }
}

impl Dma for GuestMemory {
    fn read(&self, address: u64, buf: &mut [u8]) -> bool {
        let Some(parts) = self.parts(address, buf.len()) else {
            return false;
        };
        for (mapping, part, at) in parts {
            let to = &mut buf[at..at + part.len()];
            // SAFETY: `part` lies within the live mapping and `to` has its length. The memory
            // belongs to another process that may change it meanwhile: no reference to it is
            // formed, and whatever mix of bytes is copied is valid for u8, as with any DMA.
            unsafe {
                let from = mapping.base.as_ptr().add(part.start);
                ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            }
        }
        true
    }

    fn write(&self, address: u64, data: &[u8]) -> bool {
        let Some(parts) = self.parts(address, data.len()) else {
            return false;
        };
        if parts.iter().any(|(mapping, ..)| !mapping.writable) {
            return false;
        }
        for (mapping, part, at) in parts {
            let from = &data[at..at + part.len()];
            // SAFETY: as in `read`; the mapping is writable.
            unsafe {
                let to = mapping.base.as_ptr().add(part.start);
                ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};

    #[test]
    fn maps_what_lies_in_the_file() {
        let mut file = tempfile::tempfile().expect("file");
        file.write_all(&[7; 3 * 4096]).expect("write");
        let fd = OwnedFd::from(file.try_clone().expect("dup"));
        let mut memory = GuestMemory::default();
        memory.map(0x1000, 4096, &fd, 0, true).expect("map");
        memory.map(0x2000, 4096, &fd, 8192, true).expect("map");
        memory.map(0x9000, 4096, &fd, 0, false).expect("map");
        assert!(memory.map(0x4000, 4096, &fd, 3 * 4096, true).is_err());
        assert!(memory.map(0x4000, 0, &fd, 0, true).is_err());
        assert!(memory.map(u64::MAX - 10, 4096, &fd, 0, true).is_err());

        let mut buf = [0; 8];
        assert!(memory.read(0x1ffc, &mut buf)); // across two mappings
        assert_eq!(buf, [7; 8]);
        assert!(memory.write(0x1ffe, &[1, 2, 3, 4]));
        assert!(!memory.write(0x9000, &[1]), "read-only");
        assert!(!memory.read(0x2ffc, &mut buf), "runs off the end");
        assert!(!memory.read(0xfff, &mut buf), "begins before");
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0)).expect("seek");
        file.read_to_end(&mut all).expect("read");
        assert_eq!(
            (&all[4094..4096], &all[8192..8194]),
            (&[1, 2][..], &[3, 4][..])
        );

        memory.unmap(0x1000, 4096);
        assert!(!memory.read(0x1000, &mut buf));
        assert!(memory.read(0x2000, &mut buf));
        memory.clear();
        assert!(!memory.read(0x2000, &mut buf));
    }
}
