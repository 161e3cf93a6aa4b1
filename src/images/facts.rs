//! What is known of a client's file before anything is decided.

use super::Step;
use crate::device::block::{errno, size_of};
use crate::error::{Code, Result};
use crate::units::Bytes;
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::statfs::fstatfs;
use std::fs::{File, FileType};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

/// What the descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else, by name.
    Other(&'static str),
}

/// How the client opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// O_RDONLY.
    Read,
    /// O_WRONLY.
    Write,
    /// O_RDWR.
    ReadWrite,
    /// O_PATH: a name, nothing to read from.
    Path,
}

/// The file system that a regular file lies on, as far as direct I/O is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Direct I/O works, or the kernel says that it does not.
    Ordinary,
    /// Named: refuses direct I/O, or (overlayfs and tmpfs up to Linux 6.12) lets the kernel grant
    /// it and fails the reads later.
    NoDirectIo(&'static str),
}

/// A client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Kind.
    pub kind: FileKind,
    /// Access mode of the descriptor.
    pub access: FileAccess,
    /// Size of the file or the device.
    pub size: Bytes,
    /// The file system below.
    pub backing: Backing,
}

/// `linux/magic.h`: file systems where direct I/O is not asked for.
const NO_DIRECT_IO: [(u32, &str); 6] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x0102_1997, "9p"),
];

impl FileFacts {
    /// Asks the kernel; reads nothing of the contents.
    ///
    /// # Errors
    /// `DEVICE_FAILED` where the kernel does not answer.
    pub fn read(file: &File) -> Result<FileFacts> {
        let failed = |errno: Errno| {
            Step::Facts
                .fail(Code::DeviceFailed, "cannot look at the file")
                .errno(errno)
        };
        let flags = fcntl(file.as_fd(), FcntlArg::F_GETFL).map_err(failed)?;
        let access = access_of(OFlag::from_bits_retain(flags));
        let metadata = file.metadata().map_err(|error| failed(errno(error)))?;
        let kind = kind_of(metadata.file_type());
        let readable = matches!(access, FileAccess::Read | FileAccess::ReadWrite);
        let mut facts = FileFacts {
            kind,
            access,
            size: Bytes(metadata.len()),
            backing: Backing::Ordinary,
        };
        match kind {
            FileKind::Block if readable => {
                facts.size = size_of(file.as_fd()).map_err(failed)?;
            }
            FileKind::Regular if readable => {
                let fs = fstatfs(file.as_fd()).map_err(failed)?.filesystem_type();
                // The field has a different type on each architecture; magics have 32 bits.
                facts.backing = backing_of(fs.0 as u32);
            }
            _ => {}
        }
        Ok(facts)
    }
}

fn access_of(flags: OFlag) -> FileAccess {
    if flags.contains(OFlag::O_PATH) {
        return FileAccess::Path;
    }
    match flags & OFlag::O_ACCMODE {
        OFlag::O_RDWR => FileAccess::ReadWrite,
        OFlag::O_RDONLY => FileAccess::Read,
        // Mode 3 is "ioctl only": as little to read from as O_WRONLY.
        _ => FileAccess::Write,
    }
}

fn kind_of(kind: FileType) -> FileKind {
    let others: [(bool, &str); 5] = [
        (kind.is_dir(), "a directory"),
        (kind.is_char_device(), "a character device"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_symlink(), "a symbolic link"),
    ];
    if kind.is_file() {
        return FileKind::Regular;
    }
    if kind.is_block_device() {
        return FileKind::Block;
    }
    let other = others.iter().find(|(is, _)| *is);
    FileKind::Other(other.map_or("no file", |(_, name)| name))
}

fn backing_of(magic: u32) -> Backing {
    NO_DIRECT_IO
        .iter()
        .find(|(known, _)| *known == magic)
        .map_or(Backing::Ordinary, |(_, name)| Backing::NoDirectIo(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    fn opened(flags: OFlag, path: &std::path::Path) -> FileFacts {
        let fd = nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap();
        FileFacts::read(&File::from(fd)).unwrap()
    }

    #[test]
    fn kinds_and_modes_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).mode(0o600).open(&path);
        file.unwrap().set_len(5000).unwrap();
        let table = [
            (OFlag::O_RDONLY, FileAccess::Read),
            (OFlag::O_WRONLY, FileAccess::Write),
            (OFlag::O_RDWR, FileAccess::ReadWrite),
            (OFlag::O_PATH, FileAccess::Path),
        ];
        for (flags, access) in table {
            let facts = opened(flags, &path);
            assert_eq!(facts.access, access);
            assert_eq!(facts.kind, FileKind::Regular);
            assert_eq!(facts.size, Bytes(5000));
        }
        let table = [
            (folder.path(), FileKind::Other("a directory")),
            ("/dev/null".as_ref(), FileKind::Other("a character device")),
        ];
        for (path, kind) in table {
            assert_eq!(opened(OFlag::O_RDONLY, path).kind, kind);
        }
        let (pipe, _) = nix::unistd::pipe().unwrap();
        let facts = FileFacts::read(&File::from(pipe)).unwrap();
        assert_eq!(facts.kind, FileKind::Other("a pipe"));
    }

    #[test]
    fn memory_is_known_to_have_no_direct_io() {
        assert_eq!(backing_of(0x0102_1994), Backing::NoDirectIo("tmpfs"));
        assert_eq!(backing_of(0xef53), Backing::Ordinary);
    }
}
