//! `linux/fs.h`: the ioctls of block devices.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The calls as nix makes them.
mod raw {
    #![allow(missing_docs)]
    nix::ioctl_none_bad!(blkflsbuf, 0x1261);
    nix::ioctl_write_int_bad!(blkraset, 0x1262);
    nix::ioctl_read_bad!(blkroget, 0x125e, nix::libc::c_int);
    nix::ioctl_read_bad!(blksszget, 0x1268, nix::libc::c_int);
    // linux/fs.h gives these a size_t in the number, and the kernel takes an int.
    nix::ioctl_read!(blkbszget, 0x12, 112, usize);
    nix::ioctl_write_ptr!(blkbszset, 0x12, 113, usize);
    nix::ioctl_write_ptr_bad!(blkdiscard, 0x1277, [u64; 2]);
    nix::ioctl_write_ptr_bad!(blksecdiscard, 0x127d, [u64; 2]);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);
}

/// `BLKFLSBUF`: writes dirty pages of this node and drops its page cache. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's errno.
pub fn flush_buffers(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: an ioctl without an argument; the descriptor is borrowed for the call.
    unsafe { raw::blkflsbuf(fd.as_raw_fd()) }.map(drop)
}

/// `BLKSECDISCARD` or `BLKDISCARD` of `length` bytes from `offset`.
///
/// # Errors
/// The kernel's errno: `EOPNOTSUPP` where the disk has no such thing, `EINVAL` for a range that is
/// not aligned.
pub fn discard(fd: BorrowedFd<'_>, offset: u64, length: u64, secure: bool) -> Result<(), Errno> {
    let range = [offset, length];
    // SAFETY: the kernel reads two u64 from `range`, which outlives the call, and keeps no pointer.
    unsafe {
        if secure {
            raw::blksecdiscard(fd.as_raw_fd(), &range)
        } else {
            raw::blkdiscard(fd.as_raw_fd(), &range)
        }
    }
    .map(drop)
}

/// `BLKRASET`: read-ahead of the node, in 512-byte sectors. Freezes no queue. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's errno.
pub fn set_read_ahead(fd: BorrowedFd<'_>, sectors: u32) -> Result<(), Errno> {
    // SAFETY: the argument is a plain number, no pointer.
    unsafe { raw::blkraset(fd.as_raw_fd(), sectors as nix::libc::c_int) }.map(drop)
}

/// `BLKROGET`: whether the node is read-only.
///
/// # Errors
/// The kernel's errno.
pub fn read_only(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut value: nix::libc::c_int = 0;
    // SAFETY: the kernel writes one int to `value`, which outlives the call.
    unsafe { raw::blkroget(fd.as_raw_fd(), &mut value) }?;
    Ok(value != 0)
}

/// `BLKSSZGET`: logical block size in bytes.
///
/// # Errors
/// The kernel's errno.
pub fn logical_block_size(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut value: nix::libc::c_int = 0;
    // SAFETY: the kernel writes one int to `value`, which outlives the call.
    unsafe { raw::blksszget(fd.as_raw_fd(), &mut value) }?;
    Ok(value as u32)
}

/// `BLKBSZGET`: block size of the node's page cache, in bytes.
///
/// # Errors
/// The kernel's errno.
pub fn block_size(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    // The kernel writes an int; on a 64-bit big-endian machine that is the upper half.
    let mut value = [0 as nix::libc::c_int; 2];
    // SAFETY: the kernel writes one int to the start of `value`, which has room for a usize and
    // outlives the call.
    unsafe { raw::blkbszget(fd.as_raw_fd(), value.as_mut_ptr().cast()) }?;
    Ok(value[0] as u32)
}

/// `BLKBSZSET`: sets the block size of the node's page cache; another size than before drops all of
/// it, mapped pages too. Needs CAP_SYS_ADMIN, and a claim.
///
/// # Errors
/// The kernel's errno: `EBUSY` without a claim where somebody else has one, `EINVAL` for a size that
/// the disk cannot have.
pub fn set_block_size(fd: BorrowedFd<'_>, size: u32) -> Result<(), Errno> {
    let value = [size as nix::libc::c_int, 0];
    // SAFETY: the kernel reads one int from the start of `value`, which outlives the call.
    unsafe { raw::blkbszset(fd.as_raw_fd(), value.as_ptr().cast()) }.map(drop)
}

/// `BLKGETSIZE64`: size in bytes.
///
/// # Errors
/// The kernel's errno.
pub fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut value: u64 = 0;
    // SAFETY: the kernel writes eight bytes whatever `usize` is in the number's size field, and
    // `value` has eight bytes on every target and outlives the call.
    unsafe { raw::blkgetsize64(fd.as_raw_fd(), (&mut value as *mut u64).cast()) }?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn numbers_are_the_header_s() {
        assert_eq!(
            nix::request_code_read!(0x12, 114, std::mem::size_of::<usize>()) as u64,
            0x8008_1272
        );
        let size = std::mem::size_of::<usize>();
        assert_eq!(nix::request_code_read!(0x12, 112, size) as u64, 0x8008_1270);
        assert_eq!(
            nix::request_code_write!(0x12, 113, size) as u64,
            0x4008_1271
        );
    }
}
