//! What a measurement reads and writes: a file or a block device, past the page cache.

use crate::device::block::{errno, size_of};
use crate::uapi;
use crate::units::Bytes;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};

pub use crate::uapi::file::DirectAlignment;

/// Reads, writes and flushes by direct I/O. Offsets and lengths are multiples of the alignment,
/// buffers are [`crate::device::DirectBuffer`]s.
pub trait Medium: Send + Sync {
    /// Reads `buffer.len()` bytes.
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno>;
    /// Writes; what was written may still lie in the device's cache.
    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno>;
    /// Writes with O_DSYNC semantics: REQ_FUA where the disk has it, else a flush after the write.
    fn write_durable(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno>;
    /// fdatasync: flushes the device's cache.
    fn sync(&self) -> Result<(), Errno>;
    /// Monotonic time since some fixed point.
    fn now(&self) -> Duration;
}

/// What kind of thing a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Anything else.
    Other,
}

/// What the kernel says of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Kind.
    pub kind: Kind,
    /// Size.
    pub size: Bytes,
    /// Open for reading and for writing.
    pub read_write: bool,
    /// O_DIRECT.
    pub direct: bool,
    /// O_APPEND: every write goes to the end, whatever its offset.
    pub append: bool,
    /// Alignment of direct I/O, where the kernel says it.
    pub alignment: Option<DirectAlignment>,
    /// Magic number of the file system (statfs(2)).
    pub file_system: i64,
    /// `major:minor` of the block device that it is or lies on.
    pub device: String,
}

/// A file or a device that somebody opened.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    start: Instant,
}

impl OpenFile {
    /// Takes an open file.
    pub fn new(file: File) -> OpenFile {
        OpenFile {
            file,
            start: Instant::now(),
        }
    }

    /// What the kernel says of it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn describe(&self) -> Result<Descriptor, Errno> {
        let metadata = self.file.metadata().map_err(errno)?;
        let kind = match metadata.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_block_device() => Kind::Block,
            _ => Kind::Other,
        };
        let flags = uapi::file::status_flags(self.file.as_fd())?;
        let mut alignment = uapi::file::direct_alignment(self.file.as_fd()).unwrap_or(None);
        let (size, device) = match kind {
            Kind::Block => {
                let block = uapi::block::logical_block_size(self.file.as_fd())?;
                alignment = alignment.or(Some(DirectAlignment {
                    memory: block,
                    offset: block,
                }));
                (size_of(self.file.as_fd())?, metadata.rdev())
            }
            _ => (Bytes(metadata.len()), metadata.dev()),
        };
        Ok(Descriptor {
            kind,
            size,
            read_write: flags & OFlag::O_ACCMODE == OFlag::O_RDWR,
            direct: flags.contains(OFlag::O_DIRECT),
            append: flags.contains(OFlag::O_APPEND),
            alignment,
            file_system: file_system(&self.file)?,
            device: device_number(device),
        })
    }
}

/// The C type differs from machine to machine.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
fn file_system(file: &File) -> Result<i64, Errno> {
    nix::sys::statfs::fstatfs(file).map(|statfs| i64::from(statfs.filesystem_type().0 as u32))
}

fn device_number(number: u64) -> String {
    // The C library's dev_t: gnu_dev_major and gnu_dev_minor, which bionic and musl share.
    let major = (number >> 32 & 0xffff_f000) | (number >> 8 & 0xfff);
    let minor = (number >> 12 & 0xffff_ff00) | (number & 0xff);
    format!("{major}:{minor}")
}

impl Medium for OpenFile {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.file.read_exact_at(buffer, offset.0).map_err(errno)
    }

    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        self.file.write_all_at(data, offset.0).map_err(errno)
    }

    fn write_durable(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let at = offset.0 + done as u64;
            match uapi::file::write_durable(self.file.as_fd(), &data[done..], at) {
                Ok(0) => return Err(Errno::EIO),
                Ok(bytes) => done += bytes,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(errno)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_split_as_the_c_library_does() {
        for (number, text) in [
            (0xb302, "179:2"),
            (0x1000_b301, "179:65537"),
            (0x0001_0305, "259:5"),
        ] {
            assert_eq!(device_number(number), text);
        }
        let file = File::open("/dev/null").expect("a file");
        let rdev = file.metadata().expect("metadata").rdev();
        assert_eq!(device_number(rdev), "1:3");
    }

    #[test]
    fn a_descriptor_says_how_it_was_opened() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let described = OpenFile::new(file.reopen().expect("a file")).describe();
        let described = described.expect("a description");
        assert_eq!(described.kind, Kind::File);
        assert!(described.read_write && !described.direct && !described.append);
        let read_only = File::open(file.path()).expect("a file");
        let described = OpenFile::new(read_only).describe().expect("a description");
        assert!(!described.read_write);
        let null = File::open("/dev/null").expect("a file");
        let described = OpenFile::new(null).describe().expect("a description");
        assert_eq!(described.kind, Kind::Other);
    }
}
