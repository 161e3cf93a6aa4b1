//! The system calls that have no safe wrapper: the only file of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::unistd::{Gid, Uid};

use crate::rc::{CapabilitySet, IoPriority, Rlimit};

/// What a child does between fork and exec, in AOSP's order (service.cpp, service_utils.cpp).
#[derive(Debug, Default)]
pub struct ChildSetup {
    /// I/O priority of the process.
    pub ioprio: Option<IoPriority>,
    /// Nice value.
    pub priority: Option<i32>,
    /// Resource limits.
    pub rlimits: Vec<Rlimit>,
    /// Text for /proc/self/oom_score_adj.
    pub oom_score_adjust: Option<String>,
    /// Primary group, if it changes.
    pub gid: Option<u32>,
    /// Supplementary groups: all others are given up.
    pub groups: Vec<u32>,
    /// User, if it changes.
    pub uid: Option<u32>,
    /// The capabilities that remain; `None` leaves them to the rules of setuid.
    pub capabilities: Option<CapabilitySet>,
    /// SELinux label of the new program.
    pub seclabel: Option<CString>,
    /// Descriptors that the child inherits.
    pub inherit: Vec<OwnedFd>,
}

/// Starts a program as `setup` says.
///
/// # Errors
/// What fork, exec or any step of the set-up answered.
pub fn spawn(command: &mut Command, setup: ChildSetup) -> io::Result<Child> {
    // SAFETY: the closure runs in the child after fork. It allocates nothing and takes no lock:
    // it only makes system calls with values prepared before the fork, so that it is safe even
    // if another thread of the parent held the allocator's lock.
    unsafe { command.pre_exec(move || prepare(&setup)) };
    command.spawn()
}

fn prepare(setup: &ChildSetup) -> io::Result<()> {
    for fd in &setup.inherit {
        clear_cloexec(fd.as_raw_fd())?;
    }
    if let Some(text) = &setup.oom_score_adjust {
        write_file(c"/proc/self/oom_score_adj", text.as_bytes())?;
    }
    if setup.capabilities.is_some() && setup.uid.is_some_and(|uid| uid != 0) {
        // The permitted set must survive setuid, and no program may undo that.
        check(prctl(
            libc::PR_SET_SECUREBITS,
            (SECBIT_KEEP_CAPS | SECBIT_KEEP_CAPS_LOCKED) as _,
            0,
        ))?;
    }
    if let Some(ioprio) = setup.ioprio {
        let value =
            (ioprio.class as libc::c_long) << IOPRIO_CLASS_SHIFT | ioprio.level as libc::c_long;
        // SAFETY: ioprio_set takes three integers.
        check(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value) })?;
    }
    // SAFETY: setpgid takes two integers.
    check(unsafe { libc::setpgid(0, 0) }.into())?;
    for limit in &setup.rlimits {
        set_limit(limit)?;
    }
    if let Some(gid) = setup.gid {
        nix::unistd::setgid(Gid::from_raw(gid))?;
    }
    // SAFETY: pointer and length are those of one live slice of gid_t.
    check(unsafe { libc::setgroups(setup.groups.len(), setup.groups.as_ptr()) }.into())?;
    if let Some(uid) = setup.uid {
        nix::unistd::setuid(Uid::from_raw(uid))?;
    }
    if let Some(priority) = setup.priority {
        // SAFETY: setpriority takes three integers.
        check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority) }.into())?;
    }
    if let Some(label) = &setup.seclabel {
        write_file(c"/proc/self/attr/exec", label.as_bytes())?;
    }
    if let Some(kept) = setup.capabilities {
        keep_capabilities(kept)?;
    }
    Ok(())
}

/// Sets a resource limit of this process; children inherit it.
///
/// # Errors
/// What setrlimit answered.
pub fn set_limit(limit: &Rlimit) -> io::Result<()> {
    let value = libc::rlimit {
        rlim_cur: limit.soft,
        rlim_max: limit.hard,
    };
    // SAFETY: `value` outlives the call, which only reads it.
    check(unsafe { libc::setrlimit(limit.resource as _, &value) }.into())
}

/// SECBIT_KEEP_CAPS and its lock (linux/securebits.h).
const SECBIT_KEEP_CAPS: u32 = 1 << 4;
const SECBIT_KEEP_CAPS_LOCKED: u32 = 1 << 5;
/// linux/ioprio.h
const IOPRIO_CLASS_SHIFT: u32 = 13;
const IOPRIO_WHO_PROCESS: libc::c_long = 1;
const CAP_SETPCAP: u8 = 8;
/// _LINUX_CAPABILITY_VERSION_3
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// The kernel refuses the first number that it does not know.
const CAP_LIMIT: u8 = 64;

/// Leaves exactly `kept` in the permitted, effective, inheritable, bounding and ambient sets,
/// as init's SetCapsForExec does.
fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    // Dropping from the bounding set needs SETPCAP itself.
    set_capabilities(kept.with(CAP_SETPCAP))?;
    for capability in (0..CAP_LIMIT).filter(|n| !kept.has(*n)) {
        match check(prctl(libc::PR_CAPBSET_DROP, capability.into(), 0)) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => break,
            result => result?,
        }
    }
    set_capabilities(kept)?;
    check(prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as _,
        0,
    ))?;
    for capability in (0..CAP_LIMIT).filter(|n| kept.has(*n)) {
        check(prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_RAISE as _,
            capability.into(),
        ))?;
    }
    Ok(())
}

fn set_capabilities(set: CapabilitySet) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let half = |bits: u64| Data {
        effective: bits as u32,
        permitted: bits as u32,
        inheritable: bits as u32,
    };
    let header = Header {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let data = [half(set.0), half(set.0 >> 32)];
    // SAFETY: version 3 reads one header and two data elements, laid out as in
    // linux/capability.h; both outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &header, &data) })
}

fn prctl(option: libc::c_int, a: libc::c_ulong, b: libc::c_ulong) -> libc::c_long {
    let zero: libc::c_ulong = 0;
    // SAFETY: every option used in this file takes integers only.
    unsafe { libc::prctl(option, a, b, zero, zero) }.into()
}

fn clear_cloexec(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes an integer; a bad descriptor is an error, not undefined.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }.into())
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    let fd = nix::fcntl::open(
        path,
        nix::fcntl::OFlag::O_WRONLY,
        nix::sys::stat::Mode::empty(),
    )?;
    nix::unistd::write(&fd, bytes)?;
    Ok(())
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// linux/loop.h
const LOOP_SET_FD: libc::c_ulong = 0x4c00;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4c04;
const LOOP_SET_BLOCK_SIZE: libc::c_ulong = 0x4c09;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4c81;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
/// _IO(0x12, 125) (linux/fs.h)
const BLKSECDISCARD: libc::c_ulong = 0x127d;
/// LO_FLAGS_READ_ONLY
const LO_FLAGS_READ_ONLY: u32 = 1;

/// struct loop_info64 (linux/loop.h)
#[repr(C)]
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

/// The number of a free loop device; the kernel makes one if there is none.
///
/// # Errors
/// What LOOP_CTL_GET_FREE answered.
pub fn loop_get_free(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    Ok(Errno::result(number)? as u32)
}

/// Removes an idle loop device (LOOP_CTL_REMOVE).
///
/// # Errors
/// What the ioctl answered.
pub fn loop_remove(control: &File, number: u32) -> io::Result<()> {
    let number = libc::c_ulong::from(number);
    // SAFETY: LOOP_CTL_REMOVE takes an integer.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_REMOVE, number) };
    Ok(Errno::result(result).map(drop)?)
}

/// Binds a file to a loop device (LOOP_SET_FD).
///
/// # Errors
/// What the ioctl answered.
pub fn loop_set_fd(device: &File, file: &File) -> io::Result<()> {
    // SAFETY: LOOP_SET_FD takes a descriptor number, which is live for the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_FD, file.as_raw_fd()) };
    Ok(Errno::result(result).map(drop)?)
}

/// Sets offset and limit (bytes), read-only (LOOP_SET_STATUS64).
///
/// # Errors
/// What the ioctl answered.
pub fn loop_set_status(device: &File, offset: u64, size_limit: u64) -> io::Result<()> {
    let info = LoopInfo64 {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset,
        size_limit,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_READ_ONLY,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    // SAFETY: the ioctl reads one struct loop_info64, laid out as in linux/loop.h.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64, &info) };
    Ok(Errno::result(result).map(drop)?)
}

/// Sets the logical block size, bytes (LOOP_SET_BLOCK_SIZE).
///
/// # Errors
/// What the ioctl answered.
pub fn loop_set_block_size(device: &File, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_ulong::from(bytes);
    // SAFETY: LOOP_SET_BLOCK_SIZE takes an integer.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_BLOCK_SIZE, bytes) };
    Ok(Errno::result(result).map(drop)?)
}

/// Unbinds a loop device (LOOP_CLR_FD).
///
/// # Errors
/// What the ioctl answered.
pub fn loop_clear(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) };
    Ok(Errno::result(result).map(drop)?)
}

/// The kernel's own secure discard of a range, bytes (BLKSECDISCARD).
///
/// # Errors
/// What the ioctl answered.
pub fn block_secure_discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: BLKSECDISCARD reads two u64 from the pointer.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKSECDISCARD, range.as_ptr()) };
    Ok(Errno::result(result).map(drop)?)
}

/// A shared mapping of a file, as another process may have one of a disk.
pub struct Mapping {
    at: std::ptr::NonNull<libc::c_void>,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes from `offset`, a multiple of the page size, for reading and writing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(file: &File, offset: i64, length: usize) -> io::Result<Mapping> {
        use std::os::fd::AsRawFd;
        // SAFETY: a new mapping of a place that the kernel chooses; the result is checked, and the
        // descriptor is not needed after the call.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = std::ptr::NonNull::new(at).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Mapping { at, length })
    }

    fn place(&self, index: usize) -> *mut u8 {
        assert!(index < self.length, "{index} of {}", self.length);
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.at.as_ptr().cast::<u8>().add(index) }
    }

    /// The byte at `index` as it is now.
    pub fn byte(&self, index: usize) -> u8 {
        // SAFETY: inside the mapping, which lives as long as self; volatile, since the kernel may
        // change the page at any time.
        unsafe { self.place(index).read_volatile() }
    }

    /// Stores a byte.
    pub fn set(&self, index: usize, value: u8) {
        // SAFETY: as for `byte`; the mapping may be written.
        unsafe { self.place(index).write_volatile(value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own, of this length, that nobody refers to any more.
        unsafe { libc::munmap(self.at.as_ptr(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_info_has_the_kernels_size() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
    }
}
