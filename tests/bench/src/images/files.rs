//! The files that are attached.

use anyhow::{Context, Result};
use apexgen::{noise, ApexBuilder};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Payload bytes of a file. What attaching costs does not depend on it.
const PAYLOAD: usize = 256 * 1024;

/// An APEX-like file, and where its payload lies.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// First byte of the payload.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// The files of one run; they go when this is dropped.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// As many as asked for.
    pub images: Vec<Image>,
}

impl Files {
    /// Makes `count` files in a new folder below `parent`, written back: nothing of them is dirty.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn new(parent: &Path, count: usize) -> Result<Files> {
        let folder = parent.join(format!("blockd-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut files = Files {
            folder,
            images: Vec::new(),
        };
        for number in 0..count {
            let path = files.folder.join(format!("dev.blockd.bench{number}.apex"));
            let window = ApexBuilder::new("dev.blockd.bench", number as u64)
                .payload(noise(PAYLOAD, number as u64))
                .write(&path)
                .with_context(|| path.display().to_string())?;
            File::open(&path)?.sync_all()?;
            files.images.push(Image {
                path,
                offset: window.offset,
                length: window.length,
            });
        }
        Ok(files)
    }

    /// Where they lie, and nothing else.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of the file system that they lie on, as /proc/self/mountinfo has it.
    ///
    /// # Errors
    /// procfs cannot be read.
    pub fn file_system(&self) -> Result<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let folder = fs::canonicalize(&self.folder)?;
        let mut best = (0, "unknown".to_owned());
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else {
                continue;
            };
            let point = before.split(' ').nth(4).unwrap_or("/");
            let kind = after.split(' ').next().unwrap_or("unknown");
            if folder.starts_with(point) && point.len() >= best.0 {
                best = (point.len(), kind.to_owned());
            }
        }
        Ok(best.1)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A folder that stays says so by its name.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
