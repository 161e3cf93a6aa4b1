//! The loop driver's calls, one by one and unchecked, and kernels that lack some of them: the only
//! file of this crate with `unsafe`.
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
/// What sets the window of a bound device.
pub const LOOP_SET_STATUS64: libc::c_ulong = 0x4c04;
const LOOP_SET_DIRECT_IO: libc::c_ulong = 0x4c08;
/// What sets the block size of a bound device.
pub const LOOP_SET_BLOCK_SIZE: libc::c_ulong = 0x4c09;
/// What Linux 5.8 has brought.
pub const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
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

/// This thread, and those that it starts, have a kernel without these ioctls from now on: each is
/// answered by its errno. The kernel below is the real one. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// No seccomp filter can be installed.
pub fn without_ioctls(missing: &[(libc::c_ulong, Errno)]) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// `struct seccomp_data` (linux/seccomp.h): the number, and the low half of the second
    /// argument on a little-endian machine.
    const NUMBER: u32 = 0;
    const REQUEST: u32 = 16 + 8;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let mut program = vec![
        step(LOAD, NUMBER, 0, 0),
        step(EQUAL, libc::SYS_ioctl as u32, 1, 0),
        allow,
        step(LOAD, REQUEST, 0, 0),
    ];
    for (request, errno) in missing {
        program.push(step(EQUAL, *request as u32, 0, 1));
        let answer = libc::SECCOMP_RET_ERRNO | *errno as u32;
        program.push(step(RETURN, answer, 0, 0));
    }
    program.push(allow);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    // SAFETY: the kernel copies the program, which outlives the call, and keeps no pointer.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &filter) };
    Ok(Errno::result(result).map(drop)?)
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
