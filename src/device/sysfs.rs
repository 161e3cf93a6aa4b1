//! Reading /sys and /proc.

use std::io;
use std::path::{Path, PathBuf};

/// The text files and folders that the kernel shows. Paths are absolute: `/sys/…`, `/proc/…`.
pub trait Sysfs: Send + Sync {
    /// The text of a file, without the newline at its end.
    fn read(&self, path: &str) -> io::Result<String>;
    /// The names in a folder, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// The last component of what a symbolic link's target resolves to: `mmcblk0` for
    /// `/sys/class/block/mmcblk0p1/..`.
    fn resolved_name(&self, path: &str) -> io::Result<String>;
    /// True where the path exists.
    fn exists(&self, path: &str) -> bool;
}

/// The real ones, or a copy of them below a folder.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The machine's own /sys and /proc.
    pub fn system() -> Tree {
        Tree::below("/")
    }

    /// A copy below `root`, for tests.
    pub fn below(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl Sysfs for Tree {
    fn read(&self, path: &str) -> io::Result<String> {
        // Names inside can be any bytes (mount points, backing files).
        let bytes = std::fs::read(self.path(path))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn resolved_name(&self, path: &str) -> io::Result<String> {
        let real = std::fs::canonicalize(self.path(path))?;
        Ok(file_name(&real))
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
