//! Files that are there whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and publishing fails with `AlreadyExists`.
    Keep,
    /// It is replaced.
    Replace,
}

/// A file in the making, beside its place: that it exists shows that the folder can be written.
/// Dropped unpublished, it is gone.
#[derive(Debug)]
pub struct Draft {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Begins the file `path`, which will have the permissions `mode`.
    ///
    /// # Errors
    /// Those of creating a file in that folder; `InvalidInput` where `path` names none.
    pub fn new(path: &Path, mode: u32) -> io::Result<Draft> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(hidden);
        // Left by a process of this number that was cut.
        let _ = fs::remove_file(&temporary);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        Ok(Draft {
            file,
            temporary,
            path: path.to_owned(),
        })
    }

    /// Gives the file its content and its name. Whoever opens the path sees all of it, after a
    /// power loss too, or what was there before.
    ///
    /// # Errors
    /// Those of writing; `AlreadyExists` with [`Existing::Keep`].
    pub fn publish(mut self, content: &[u8], existing: Existing) -> io::Result<()> {
        self.file.write_all(content)?;
        self.file.sync_all()?;
        match existing {
            Existing::Replace => fs::rename(&self.temporary, &self.path)?,
            Existing::Keep => self.link()?,
        }
        let folder = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all()
    }

    /// A link never replaces, a rename always does.
    fn link(&self) -> io::Result<()> {
        match fs::hard_link(&self.temporary, &self.path) {
            // FAT has no links (EPERM).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if fs::symlink_metadata(&self.path).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(&self.temporary, &self.path)
            }
            result => result,
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let draft = Draft::new(&path, 0o600).expect("a draft");
        assert_eq!(names(folder.path()).len(), 1);
        assert!(!path.exists());
        drop(draft);
        assert!(names(folder.path()).is_empty());

        for (content, existing) in [("one", Existing::Keep), ("two", Existing::Replace)] {
            let draft = Draft::new(&path, 0o600).expect("a draft");
            draft.publish(content.as_bytes(), existing).expect(content);
            assert_eq!(fs::read_to_string(&path).expect("a file"), content);
            assert_eq!(names(folder.path()), ["a"]);
        }
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let draft = Draft::new(&path, 0o600).expect("a draft");
        let refused = draft.publish(b"three", Existing::Keep).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("a file"), "two");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_known_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Draft::new(&folder.path().join("missing/a"), 0o600).is_err());
        assert!(Draft::new(Path::new("/"), 0o600).is_err());
    }
}
