//! A block device node: direct reads and writes, flushes, what the kernel says of it.

use crate::uapi;
use crate::units::Bytes;
use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How a node is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// O_RDONLY: looks, claims nothing.
    Read,
    /// O_RDWR | O_EXCL: claims it. Mounts, swap, device-mapper and other claims are refused by the
    /// kernel from then on; loop devices are not.
    Claim,
    /// The same, and every write is on the medium when it returns (O_DSYNC): a write of one block
    /// is a reliable write on an eMMC, and cannot tear.
    Update,
}

/// An open block device. All I/O is O_DIRECT; offsets and lengths are multiples of the logical
/// block size, buffers are [`crate::device::DirectBuffer`]s.
pub trait Block: Send + Sync {
    /// Reads `buffer.len()` bytes from `offset`, bypassing the page cache.
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno>;
    /// Writes `data` at `offset`, bypassing the page cache.
    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno>;
    /// fdatasync: what was written is on the medium as far as the kernel can make it so.
    fn sync(&self) -> Result<(), Errno>;
    /// BLKSECDISCARD or BLKDISCARD: lets the kernel erase a range, in commands of its own choice.
    fn discard(&self, offset: Bytes, length: Bytes, secure: bool) -> Result<(), Errno>;
    /// Writes dirty pages of this node, then drops its page cache (BLKFLSBUF); with the pages that
    /// processes have mapped where it is claimed.
    fn flush_buffers(&self) -> Result<(), Errno>;
    /// BLKROGET.
    fn read_only(&self) -> Result<bool, Errno>;
    /// BLKGETSIZE64.
    fn size(&self) -> Result<Bytes, Errno>;
    /// BLKSSZGET, in bytes.
    fn logical_block_size(&self) -> Result<u32, Errno>;
}

/// A real node.
pub struct Node {
    file: File,
    /// Whether it is opened exclusively.
    claimed: bool,
}

impl Node {
    /// Opens the node at `path` for direct I/O.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` where a claim is refused, `ENOENT`, `EACCES`, `EROFS` …
    pub fn open(path: &Path, access: Access) -> Result<Node, Errno> {
        let flags = match access {
            Access::Read => OFlag::O_RDONLY,
            Access::Claim => OFlag::O_RDWR | OFlag::O_EXCL,
            Access::Update => OFlag::O_RDWR | OFlag::O_EXCL | OFlag::O_DSYNC,
        };
        let fd = open(
            path,
            flags | OFlag::O_DIRECT | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        // An OwnedFd with nix 0.31, a descriptor number that is ours with 0.29.
        Ok(Node {
            file: File::from(fd),
            claimed: access != Access::Read,
        })
    }

    /// Drops the page cache of a claimed node with the pages that processes have mapped, which
    /// BLKFLSBUF leaves (mm/truncate.c, invalidate_mapping_pages): they would show, and with the next
    /// store write back, what was erased. Another block size makes the kernel drop all of it
    /// (block/bdev.c, set_blocksize).
    fn drop_mapped(&self) -> Result<(), Errno> {
        let fd = self.file.as_fd();
        let before = uapi::block::block_size(fd)?;
        let least = uapi::block::logical_block_size(fd)?;
        let other = if before == least { 2 * least } else { least };
        // The largest one that every kernel has is the page: a disk of pages has no other.
        match uapi::block::set_block_size(fd, other) {
            Err(Errno::EINVAL) => return Ok(()),
            result => result?,
        }
        uapi::block::set_block_size(fd, before)
    }
}

impl Block for Node {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.file.read_exact_at(buffer, offset.0).map_err(errno)
    }

    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        self.file.write_all_at(data, offset.0).map_err(errno)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(errno)
    }

    fn discard(&self, offset: Bytes, length: Bytes, secure: bool) -> Result<(), Errno> {
        uapi::block::discard(self.file.as_fd(), offset.0, length.0, secure)
    }

    fn flush_buffers(&self) -> Result<(), Errno> {
        uapi::block::flush_buffers(self.file.as_fd())?;
        if self.claimed {
            self.drop_mapped()?;
        }
        Ok(())
    }

    fn read_only(&self) -> Result<bool, Errno> {
        uapi::block::read_only(self.file.as_fd())
    }

    fn size(&self) -> Result<Bytes, Errno> {
        size_of(self.file.as_fd())
    }

    fn logical_block_size(&self) -> Result<u32, Errno> {
        uapi::block::logical_block_size(self.file.as_fd())
    }
}

/// BLKGETSIZE64 of a descriptor that a client passed.
///
/// # Errors
/// The kernel's errno.
pub fn size_of(fd: BorrowedFd<'_>) -> Result<Bytes, Errno> {
    uapi::block::size(fd).map(Bytes)
}

/// The errno inside a standard library error; a short read or write is EIO.
pub(crate) fn errno(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Claims the node at `path` as [`Access::Claim`] does, as a file.
///
/// # Errors
/// The kernel's: `EBUSY` where the claim is refused.
pub fn claim(path: &Path) -> Result<File, Errno> {
    Node::open(path, Access::Claim).map(|node| node.file)
}
