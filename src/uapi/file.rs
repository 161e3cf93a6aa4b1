//! `linux/fs.h` and `linux/stat.h`: how one write reaches the medium, and what direct I/O wants.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `RWF_DSYNC`: this write as if the file were open with O_DSYNC (Linux 4.7).
const RWF_DSYNC: libc::c_int = 2;
/// `STATX_DIOALIGN` (Linux 6.1).
const STATX_DIOALIGN: libc::c_uint = 0x2000;
/// Byte offsets in `struct statx`.
const STX_MASK: usize = 0;
const STX_DIO_MEM_ALIGN: usize = 0x98;
const STX_DIO_OFFSET_ALIGN: usize = 0x9c;

/// `struct statx`, 256 bytes whatever the kernel.
#[repr(C, align(8))]
struct Statx([u8; 256]);

impl Statx {
    fn u32(&self, at: usize) -> u32 {
        let bytes = &self.0[at..at + 4];
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

/// `pwritev2` with RWF_DSYNC: on a direct descriptor a write with REQ_FUA where the disk has it, and
/// a write followed by a flush where not. Returns the bytes written.
///
/// # Errors
/// The kernel's errno; `ENOSYS` and `EOPNOTSUPP` before Linux 4.7.
pub fn write_durable(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let part = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    // The offset goes in two halves; a kernel of 64 bits takes it from the first (pos_from_hilo).
    let (low, high) = (offset as libc::c_ulong, (offset >> 32) as libc::c_ulong);
    // SAFETY: the kernel reads one iovec, and through it `data`, which it never writes for a write;
    // both outlive the call, and it keeps neither. The result is checked.
    let written = unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            fd.as_raw_fd(),
            &part as *const libc::iovec,
            1 as libc::c_ulong,
            low,
            high,
            RWF_DSYNC,
        )
    };
    Errno::result(written).map(|bytes| bytes as usize)
}

/// `fcntl(F_GETFL)`: access mode and status flags. By number, since nix before 0.30 takes another
/// kind of descriptor.
///
/// # Errors
/// The kernel's errno.
pub fn status_flags(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    // SAFETY: a command without an argument; the result is checked.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    Errno::result(flags).map(OFlag::from_bits_retain)
}

/// What direct I/O on a file must be aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Of buffers, bytes; 0 = this file has no direct I/O.
    pub memory: u32,
    /// Of offsets and lengths, bytes.
    pub offset: u32,
}

/// `statx` with STATX_DIOALIGN; `None` where kernel or file system do not say.
///
/// # Errors
/// The kernel's errno; `ENOSYS` before Linux 4.11.
pub fn direct_alignment(fd: BorrowedFd<'_>) -> Result<Option<DirectAlignment>, Errno> {
    let mut answer = Statx([0; 256]);
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; the kernel writes at most
    // sizeof(struct statx) = 256 bytes to `answer`, which outlives the call. The result is checked.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            fd.as_raw_fd(),
            [0 as libc::c_char].as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            &mut answer as *mut Statx,
        )
    };
    Errno::result(result)?;
    let said = answer.u32(STX_MASK) & STATX_DIOALIGN != 0;
    Ok(said.then(|| DirectAlignment {
        memory: answer.u32(STX_DIO_MEM_ALIGN),
        offset: answer.u32(STX_DIO_OFFSET_ALIGN),
    }))
}

const _: () = assert!(size_of::<Statx>() == 256);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_durable_write_lands_at_its_offset() {
        let mut file = tempfile::tempfile().expect("a file");
        let written = write_durable(file.as_fd(), b"abc", 5).expect("a write");
        assert_eq!(written, 3);
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("a file");
        assert_eq!(text, b"\0\0\0\0\0abc");
    }

    #[test]
    fn the_write_is_a_write() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert_eq!(write_durable(file.as_fd(), b"abc", 0), Err(Errno::EBADF));
    }

    #[test]
    fn what_has_no_direct_io_says_none_or_nothing() {
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        let said = direct_alignment(file.as_fd());
        assert!(
            matches!(said, Ok(None | Some(DirectAlignment { memory: 0, .. }))),
            "{said:?}"
        );
    }
}
