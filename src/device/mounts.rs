//! Mounts, and the folders that they lie on.

use super::block::errno;
use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sys::stat::Mode;
use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// How an image is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountFlags {
    /// Nothing in it can be executed.
    pub no_exec: bool,
}

impl MountFlags {
    /// apexd's flags for every APEX, by name; `noexec` is added for one without code.
    pub fn names(self) -> &'static str {
        match self.no_exec {
            false => "ro,nodev,noatime,dirsync",
            true => "ro,nodev,noexec,noatime,dirsync",
        }
    }

    fn bits(self) -> MsFlags {
        let always =
            MsFlags::MS_RDONLY | MsFlags::MS_NODEV | MsFlags::MS_NOATIME | MsFlags::MS_DIRSYNC;
        match self.no_exec {
            false => always,
            true => always | MsFlags::MS_NOEXEC,
        }
    }
}

/// The process's mount namespace.
pub trait Mounts: Send + Sync {
    /// Makes a folder, mode 0755: `EEXIST` where it is there, `ENOTDIR` where something else is.
    fn make_folder(&self, path: &Path) -> Result<(), Errno>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> Result<(), Errno>;
    /// Mounts the open block device.
    fn mount(
        &self,
        device: BorrowedFd<'_>,
        target: &Path,
        file_system: &str,
        flags: MountFlags,
    ) -> Result<(), Errno>;
    /// Makes `source` visible at `target`, too.
    fn bind(&self, source: &Path, target: &Path) -> Result<(), Errno>;
    /// Unmounts the topmost mount at `target`: `EINVAL` where there is none, `EBUSY` in use.
    fn unmount(&self, target: &Path) -> Result<(), Errno>;
    /// At most `limit` bytes of a file; symbolic links are not followed (`ELOOP`), more is `EFBIG`.
    fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, Errno>;
    /// mountinfo of the calling thread's namespace.
    fn table(&self) -> Result<String, Errno>;
}

/// This process's.
pub struct HostMounts;

impl Mounts for HostMounts {
    fn make_folder(&self, path: &Path) -> Result<(), Errno> {
        match DirBuilder::new().mode(0o755).create(path).map_err(errno) {
            Err(Errno::EEXIST) => match fs::symlink_metadata(path).map_err(errno)?.is_dir() {
                true => Err(Errno::EEXIST),
                false => Err(Errno::ENOTDIR),
            },
            result => result,
        }
    }

    fn remove_folder(&self, path: &Path) -> Result<(), Errno> {
        fs::remove_dir(path).map_err(errno)
    }

    fn mount(
        &self,
        device: BorrowedFd<'_>,
        target: &Path,
        file_system: &str,
        flags: MountFlags,
    ) -> Result<(), Errno> {
        // The descriptor, not a path that may name another device by now.
        let source = format!("/proc/self/fd/{}", device.as_raw_fd());
        mount(
            Some(source.as_str()),
            target,
            Some(file_system),
            flags.bits(),
            None::<&str>,
        )
    }

    fn bind(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        let none = None::<&str>;
        mount(Some(source), target, none, MsFlags::MS_BIND, none)
    }

    fn unmount(&self, target: &Path) -> Result<(), Errno> {
        umount2(target, MntFlags::UMOUNT_NOFOLLOW)
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, Errno> {
        // A pipe or a device in a hostile image must not block.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = File::from(open(path, flags, Mode::empty())?);
        if !file.metadata().map_err(errno)?.is_file() {
            return Err(Errno::EINVAL);
        }
        let mut bytes = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(errno)?;
        match bytes.len() as u64 > limit {
            true => Err(Errno::EFBIG),
            false => Ok(bytes),
        }
    }

    fn table(&self) -> Result<String, Errno> {
        let bytes = fs::read("/proc/thread-self/mountinfo").map_err(errno)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
