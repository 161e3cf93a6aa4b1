//! `linux/loop.h`: what attaches, and what reads the state back.
//!
//! LOOP_CONFIGURE freezes no queue. Kernels without it have LOOP_SET_FD, which freezes none either,
//! then LOOP_SET_STATUS64 and LOOP_SET_BLOCK_SIZE, each of which waits for an RCU grace period
//! (drivers/block/loop.c). LOOP_SET_DIRECT_IO is left out on purpose: another wait, for no need.

use nix::errno::Errno;
use nix::sys::ioctl::ioctl_num_type;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Length of the name fields, with the NUL at the end.
pub const LO_NAME_SIZE: usize = 64;

/// Writes are refused.
pub const LO_FLAGS_READ_ONLY: u32 = 1;
/// The device goes when its last opener has closed it.
pub const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// The backing file is read by direct I/O.
pub const LO_FLAGS_DIRECT_IO: u32 = 16;

const LOOP_SET_FD: ioctl_num_type = 0x4c00;
const LOOP_CLR_FD: ioctl_num_type = 0x4c01;
const LOOP_SET_STATUS64: ioctl_num_type = 0x4c04;
const LOOP_GET_STATUS64: ioctl_num_type = 0x4c05;
const LOOP_SET_BLOCK_SIZE: ioctl_num_type = 0x4c09;
const LOOP_CONFIGURE: ioctl_num_type = 0x4c0a;
const LOOP_CTL_ADD: ioctl_num_type = 0x4c80;
const LOOP_CTL_GET_FREE: ioctl_num_type = 0x4c82;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, missing_docs)]
pub struct loop_info64 {
    pub lo_device: u64,
    pub lo_inode: u64,
    pub lo_rdevice: u64,
    pub lo_offset: u64,
    pub lo_sizelimit: u64,
    pub lo_number: u32,
    pub lo_encrypt_type: u32,
    pub lo_encrypt_key_size: u32,
    pub lo_flags: u32,
    pub lo_file_name: [u8; LO_NAME_SIZE],
    pub lo_crypt_name: [u8; LO_NAME_SIZE],
    pub lo_encrypt_key: [u8; 32],
    pub lo_init: [u64; 2],
}

impl loop_info64 {
    const ZERO: loop_info64 = loop_info64 {
        lo_device: 0,
        lo_inode: 0,
        lo_rdevice: 0,
        lo_offset: 0,
        lo_sizelimit: 0,
        lo_number: 0,
        lo_encrypt_type: 0,
        lo_encrypt_key_size: 0,
        lo_flags: 0,
        lo_file_name: [0; LO_NAME_SIZE],
        lo_crypt_name: [0; LO_NAME_SIZE],
        lo_encrypt_key: [0; 32],
        lo_init: [0; 2],
    };

    /// `lo_file_name` up to its NUL; what is no UTF-8 in it becomes U+FFFD.
    pub fn file_name(&self) -> String {
        let end = self.lo_file_name.iter().position(|&b| b == 0);
        String::from_utf8_lossy(&self.lo_file_name[..end.unwrap_or(LO_NAME_SIZE)]).into_owned()
    }
}

/// `struct loop_config`.
#[repr(C)]
#[allow(non_camel_case_types)]
struct loop_config {
    fd: u32,
    block_size: u32,
    info: loop_info64,
    __reserved: [u64; 8],
}

/// What a loop device is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup<'a> {
    /// Logical block size in bytes.
    pub block_size: u32,
    /// First byte of the window.
    pub offset: u64,
    /// Length of the window in bytes; 0 = to the end of the file.
    pub size_limit: u64,
    /// `LO_FLAGS_*`.
    pub flags: u32,
    /// For `lo_file_name`: bytes that do not fit are cut off.
    pub name: &'a str,
}

/// The one place that fills the struct. apexd copies its `loop_info64` in before it sets the direct
/// I/O flag, which so never reaches the kernel; here nothing is set after.
fn request(file: BorrowedFd<'_>, setup: &Setup<'_>) -> loop_config {
    loop_config {
        fd: file.as_raw_fd() as u32,
        block_size: setup.block_size,
        info: info(setup),
        __reserved: [0; 8],
    }
}

fn info(setup: &Setup<'_>) -> loop_info64 {
    let mut lo_file_name = [0; LO_NAME_SIZE];
    let length = setup.name.len().min(LO_NAME_SIZE - 1);
    lo_file_name[..length].copy_from_slice(&setup.name.as_bytes()[..length]);
    loop_info64 {
        lo_offset: setup.offset,
        lo_sizelimit: setup.size_limit,
        lo_flags: setup.flags,
        lo_file_name,
        ..loop_info64::ZERO
    }
}

/// The calls as nix makes them.
mod raw {
    #![allow(missing_docs)]
    use super::{loop_config, loop_info64};

    nix::ioctl_write_int_bad!(loop_set_fd, super::LOOP_SET_FD);
    nix::ioctl_none_bad!(loop_clr_fd, super::LOOP_CLR_FD);
    nix::ioctl_write_ptr_bad!(loop_set_status64, super::LOOP_SET_STATUS64, loop_info64);
    nix::ioctl_write_int_bad!(loop_set_block_size, super::LOOP_SET_BLOCK_SIZE);
    nix::ioctl_read_bad!(loop_get_status64, super::LOOP_GET_STATUS64, loop_info64);
    nix::ioctl_write_ptr_bad!(loop_configure, super::LOOP_CONFIGURE, loop_config);
    nix::ioctl_write_int_bad!(loop_ctl_add, super::LOOP_CTL_ADD);
    nix::ioctl_none_bad!(loop_ctl_get_free, super::LOOP_CTL_GET_FREE);
}

/// `LOOP_CONFIGURE`: binds `file` with everything set at once. Waits for no grace period.
///
/// The caller checks the block size first: a bad one is refused with `EINVAL`, but Linux 6.12 and
/// 6.18 then leave the device's uevents suppressed until the next good call.
///
/// # Errors
/// The kernel's: `EBUSY` where the device is bound or claimed, `EINVAL` for what it cannot bind or
/// where it does not know the call, `EACCES` …
pub fn configure(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    setup: &Setup<'_>,
) -> Result<(), Errno> {
    let config = request(file, setup);
    // SAFETY:
    // - the kernel copies `config` in, 304 bytes of plain numbers without a pointer, and keeps no
    //   reference to it;
    // - it takes its own reference to the file behind `file`, so closing ours later is sound.
    unsafe { raw::loop_configure(device.as_raw_fd(), &config) }.map(drop)
}

/// Whether the kernel behind a loop node has `LOOP_CONFIGURE`: asked with a descriptor that cannot
/// be, it answers `EBADF` if it has. Changes nothing, whatever the state of the device.
///
/// # Errors
/// What it answered instead: `EINVAL` (or `ENOTTY`) without the call, `EACCES` …
pub fn probe_configure(device: BorrowedFd<'_>) -> Result<(), Errno> {
    let config = loop_config {
        fd: u32::MAX,
        block_size: 0,
        info: loop_info64::ZERO,
        __reserved: [0; 8],
    };
    // SAFETY: as in `configure`; no file is named.
    match unsafe { raw::loop_configure(device.as_raw_fd(), &config) } {
        Err(Errno::EBADF) => Ok(()),
        Err(errno) => Err(errno),
        // No kernel binds descriptor -1.
        Ok(_) => Err(Errno::EINVAL),
    }
}

/// `LOOP_SET_FD`: binds the whole of `file`, read-only where it or the node is open for reading
/// only. The rest is set after.
///
/// # Errors
/// As [`configure`].
pub fn set_fd(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the argument is the number of a descriptor that is borrowed for the call; the kernel
    // takes its own reference to the file.
    unsafe { raw::loop_set_fd(device.as_raw_fd(), file.as_raw_fd()) }.map(drop)
}

/// `LOOP_SET_STATUS64`: window, name and autoclear of a bound device; the kernel ignores the other
/// flags. Freezes the queue.
///
/// # Errors
/// `EAGAIN` up to Linux 5.10 where pages of the old window stay cached, else the kernel's.
pub fn set_status(device: BorrowedFd<'_>, setup: &Setup<'_>) -> Result<(), Errno> {
    let info = info(setup);
    // SAFETY: the kernel copies one `loop_info64` of plain numbers in and keeps no reference.
    unsafe { raw::loop_set_status64(device.as_raw_fd(), &info) }.map(drop)
}

/// `LOOP_SET_BLOCK_SIZE`, in bytes. Freezes the queue of a bound device.
///
/// # Errors
/// `ENXIO` where nothing is bound, on every kernel known; `EAGAIN` as [`set_status`].
pub fn set_block_size(device: BorrowedFd<'_>, bytes: u32) -> Result<(), Errno> {
    let bytes = i32::try_from(bytes).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the argument is a plain number, no pointer.
    unsafe { raw::loop_set_block_size(device.as_raw_fd(), bytes) }.map(drop)
}

/// `LOOP_GET_STATUS64`.
///
/// # Errors
/// `ENXIO` where nothing is bound, else the kernel's.
pub fn status(device: BorrowedFd<'_>) -> Result<loop_info64, Errno> {
    let mut info = loop_info64::ZERO;
    // SAFETY: the kernel writes one `loop_info64` of plain numbers to `info`, which is
    // exclusively ours and outlives the call.
    unsafe { raw::loop_get_status64(device.as_raw_fd(), &mut info) }?;
    Ok(info)
}

/// `LOOP_CLR_FD`: unbinds, or marks the device to go with its last opener where there are others.
///
/// # Errors
/// `ENXIO` where nothing is bound, else the kernel's.
pub fn clear(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: an ioctl without an argument; the descriptor is borrowed for the call.
    unsafe { raw::loop_clr_fd(device.as_raw_fd()) }.map(drop)
}

/// `LOOP_CTL_ADD` on `/dev/loop-control`: makes loop device `number`.
///
/// # Errors
/// `EEXIST` where it is there already, `EINVAL` for a number that is too large, `ENOMEM` …
pub fn add(control: BorrowedFd<'_>, number: u32) -> Result<(), Errno> {
    let number = i32::try_from(number).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the argument is a plain number, no pointer.
    unsafe { raw::loop_ctl_add(control.as_raw_fd(), number) }.map(drop)
}

/// `LOOP_CTL_GET_FREE` on `/dev/loop-control`: the number of an unbound device, made where there
/// is none. It is not reserved: somebody else may bind it first.
///
/// # Errors
/// The kernel's.
pub fn free_number(control: BorrowedFd<'_>) -> Result<u32, Errno> {
    // SAFETY: an ioctl without an argument; the descriptor is borrowed for the call.
    unsafe { raw::loop_ctl_get_free(control.as_raw_fd()) }.map(|number| number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;
    use std::os::fd::AsFd;

    #[test]
    fn sizes_are_the_header_s() {
        assert_eq!(size_of::<loop_info64>(), 232);
        assert_eq!(size_of::<loop_config>(), 304);
    }

    /// The bytes as the kernel gets them: apexd's direct I/O flag is lost on this way.
    #[test]
    fn the_request_has_every_field_where_the_header_has_it() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let setup = Setup {
            block_size: 4096,
            offset: 0x1122_3344_5566_7000,
            size_limit: 0x0102_0304_0506_0800,
            flags: LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            name: "blockd:com.android.wifi",
        };
        let config = request(file.as_fd(), &setup);
        let mut want = [0u8; 304];
        want[..4].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        want[4..8].copy_from_slice(&4096u32.to_ne_bytes());
        want[32..40].copy_from_slice(&setup.offset.to_ne_bytes());
        want[40..48].copy_from_slice(&setup.size_limit.to_ne_bytes());
        want[60..64].copy_from_slice(&21u32.to_ne_bytes());
        want[64..64 + setup.name.len()].copy_from_slice(setup.name.as_bytes());
        // SAFETY: `config` is a repr(C) struct without padding (its size is the sum of its
        // fields', all fixed-width integers), alive and unchanged while the slice is used.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::addr_of!(config).cast::<u8>(), want.len())
        };
        assert_eq!(bytes, want);
    }

    #[test]
    fn long_names_keep_their_nul() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let long = "n".repeat(100);
        let setup = Setup {
            block_size: 0,
            offset: 0,
            size_limit: 0,
            flags: 0,
            name: &long,
        };
        let info = request(file.as_fd(), &setup).info;
        assert_eq!(info.file_name(), "n".repeat(63));
    }

    /// The numbers are the header's, 'L' = 0x4c: nothing in them encodes a size.
    #[test]
    fn numbers_are_the_header_s() {
        let numbers: [(ioctl_num_type, ioctl_num_type); 5] = [
            (LOOP_CLR_FD, 0x4c01),
            (LOOP_GET_STATUS64, 0x4c05),
            (LOOP_CONFIGURE, 0x4c0a),
            (LOOP_CTL_ADD, 0x4c80),
            (LOOP_CTL_GET_FREE, 0x4c82),
        ];
        for (number, want) in numbers {
            assert_eq!(number, want);
        }
    }
}
