//! The loop driver's calls, one by one and unchecked: the only file of this crate with `unsafe`.
//!
//! The product's own are not used: what it is measured against must not change with it.
#![allow(unsafe_code)]

use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// LO_FLAGS_READ_ONLY (linux/loop.h)
pub const READ_ONLY: u32 = 1;
/// LO_FLAGS_AUTOCLEAR
pub const AUTOCLEAR: u32 = 4;
/// LO_FLAGS_DIRECT_IO
pub const DIRECT_IO: u32 = 16;

const LOOP_SET_FD: libc::c_ulong = 0x4c00;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4c04;
const LOOP_SET_DIRECT_IO: libc::c_ulong = 0x4c08;
const LOOP_SET_BLOCK_SIZE: libc::c_ulong = 0x4c09;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_ADD: libc::c_ulong = 0x4c80;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;

/// struct loop_info64 (linux/loop.h)
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// struct loop_config (linux/loop.h)
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A window of a file and how it is bound.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// READ_ONLY, AUTOCLEAR, DIRECT_IO.
    pub flags: u32,
}

/// Marks what the bench makes, in `lo_file_name`.
pub const TAG: &str = "blockd-bench";

fn info(window: Window) -> LoopInfo64 {
    let mut file_name = [0; 64];
    file_name[..TAG.len()].copy_from_slice(TAG.as_bytes());
    LoopInfo64 {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: window.offset,
        size_limit: window.length,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: window.flags,
        file_name,
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    }
}

/// An ioctl with a number.
fn number(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: every request of this file that takes a number takes it as such: no memory is
    // touched.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    Ok(Errno::result(result)?)
}

/// LOOP_CTL_GET_FREE: the number of an unbound device.
///
/// # Errors
/// The kernel's.
pub fn get_free(control: &File) -> io::Result<u32> {
    Ok(number(control, LOOP_CTL_GET_FREE, 0)? as u32)
}

/// LOOP_CTL_ADD; one that is there already is no error.
///
/// # Errors
/// The kernel's.
pub fn add(control: &File, device: u32) -> io::Result<()> {
    match number(control, LOOP_CTL_ADD, device.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result.map(drop),
    }
}

/// LOOP_CONFIGURE with everything.
///
/// # Errors
/// The kernel's.
pub fn configure(device: &File, file: &File, block_size: u32, window: Window) -> io::Result<()> {
    let config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size,
        info: info(window),
        reserved: [0; 8],
    };
    // SAFETY: the kernel copies one struct loop_config in, laid out as in linux/loop.h.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &config) };
    Ok(Errno::result(result).map(drop)?)
}

/// LOOP_SET_FD.
///
/// # Errors
/// The kernel's.
pub fn set_fd(device: &File, file: &File) -> io::Result<()> {
    number(device, LOOP_SET_FD, file.as_raw_fd() as libc::c_ulong).map(drop)
}

/// LOOP_SET_STATUS64.
///
/// # Errors
/// The kernel's.
pub fn set_status(device: &File, window: Window) -> io::Result<()> {
    let info = info(window);
    // SAFETY: the kernel copies one struct loop_info64 in, laid out as in linux/loop.h.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, &info) };
    Ok(Errno::result(result).map(drop)?)
}

/// LOOP_SET_BLOCK_SIZE, bytes.
///
/// # Errors
/// The kernel's.
pub fn set_block_size(device: &File, bytes: u32) -> io::Result<()> {
    number(device, LOOP_SET_BLOCK_SIZE, bytes.into()).map(drop)
}

/// LOOP_SET_DIRECT_IO.
///
/// # Errors
/// The kernel's.
pub fn set_direct_io(device: &File) -> io::Result<()> {
    number(device, LOOP_SET_DIRECT_IO, 1).map(drop)
}

/// LOOP_CLR_FD.
///
/// # Errors
/// The kernel's.
pub fn clear(device: &File) -> io::Result<()> {
    number(device, LOOP_CLR_FD, 0).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }
}
