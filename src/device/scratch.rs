//! A file for a measurement, which is gone whenever its last descriptor is: at every end of the
//! process, killed or not.

use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::fs::File;
use std::path::Path;

/// Makes an unnamed file in `folder`, open for direct reads and writes.
///
/// # Errors
/// The kernel's errno; `EINVAL` where the file system has no direct I/O.
pub fn create(folder: &Path) -> Result<File, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_DIRECT | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match open(folder, flags | OFlag::O_TMPFILE, mode) {
        // An OwnedFd with nix 0.31, a descriptor number that is ours with 0.29.
        Ok(fd) => Ok(File::from(fd)),
        // Not by this file system, or by a kernel that takes the folder for what is to be opened.
        Err(Errno::EOPNOTSUPP | Errno::EISDIR) => named(folder, flags, mode),
        Err(errno) => Err(errno),
    }
}

/// The same with a name, for as long as it takes to remove that.
fn named(folder: &Path, flags: OFlag, mode: Mode) -> Result<File, Errno> {
    let path = folder.join(format!(".blockd-scratch.{}", std::process::id()));
    let opened = open(&path, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode);
    if matches!(opened, Err(Errno::EEXIST)) {
        return Err(Errno::EEXIST);
    }
    // Where direct I/O is refused, the file is made and not opened.
    let removed = std::fs::remove_file(&path);
    let file = File::from(opened?);
    removed.map_err(crate::device::block::errno)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn is_empty(folder: &Path) -> bool {
        std::fs::read_dir(folder)
            .expect("a folder")
            .next()
            .is_none()
    }

    #[test]
    fn a_scratch_file_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let named = named(folder.path(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
        for file in [create(folder.path()), named] {
            // Not where TMPDIR lies on something without direct I/O.
            let file = file.expect("a file");
            assert!(is_empty(folder.path()));
            assert_eq!(file.metadata().expect("metadata").nlink(), 0);
            let buffer = crate::device::DirectBuffer::new(4096);
            file.write_all_at(&buffer, 0).expect("a write");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        assert_eq!(create(Path::new("/nowhere")).err(), Some(Errno::ENOENT));
        assert!(create(Path::new("/proc")).is_err());
    }
}
