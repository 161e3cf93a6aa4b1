//! A disk in memory, and what the kernel counts on it.

use crate::sys::{self, Window};
use anyhow::{ensure, Context, Result};
use std::fs::{self, File, OpenOptions};
use std::ops::Sub;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A loop device on a file in memory that has no name any more; gone when this is dropped.
#[derive(Debug)]
pub struct RamDisk {
    node: PathBuf,
    number: u32,
    /// Autoclear: the last opener's end is the device's.
    _device: File,
}

impl RamDisk {
    /// Makes one of `bytes` on an unnamed file in `folder`, which must be a tmpfs.
    ///
    /// # Errors
    /// No loop device is free, or this process may not have one.
    pub fn new(folder: &Path, bytes: u64) -> Result<RamDisk> {
        let name = folder.join(format!("blockd-bench-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options
            .open(&name)
            .with_context(|| name.display().to_string())?;
        fs::remove_file(&name)?;
        file.set_len(bytes)?;
        let control = File::open("/dev/loop-control").context("/dev/loop-control")?;
        let number = sys::get_free(&control).context("LOOP_CTL_GET_FREE")?;
        let node = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&node);
        let device = device.with_context(|| node.display().to_string())?;
        let window = Window {
            offset: 0,
            length: bytes,
            flags: sys::AUTOCLEAR,
        };
        sys::configure(&device, &file, 4096, window).context("LOOP_CONFIGURE")?;
        Ok(RamDisk {
            node,
            number,
            _device: device,
        })
    }

    /// Its node.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The node, open past the page cache.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_direct(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        options
            .open(&self.node)
            .with_context(|| self.node.display().to_string())
    }

    /// One of its queue's attributes.
    ///
    /// # Errors
    /// sysfs has none.
    pub fn queue(&self, name: &str) -> Result<String> {
        let path = format!("/sys/block/loop{}/queue/{name}", self.number);
        let text = fs::read_to_string(&path).with_context(|| path)?;
        Ok(text.trim().to_owned())
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// sysfs has no such counters.
    pub fn counts(&self) -> Result<Counts> {
        let path = format!("/sys/block/loop{}/stat", self.number);
        let text = fs::read_to_string(&path).with_context(|| path)?;
        Counts::parse(&text)
    }
}

/// Requests that a disk has completed (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Their sectors.
    pub read_sectors: u64,
    /// Writes.
    pub writes: u64,
    /// Their sectors.
    pub written_sectors: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Counts {
    fn parse(text: &str) -> Result<Counts> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .with_context(|| format!("stat says `{text}`"))?;
        ensure!(fields.len() >= 17, "stat counts no flushes (Linux 5.5)");
        Ok(Counts {
            reads: fields[0],
            read_sectors: fields[2],
            writes: fields[4],
            written_sectors: fields[6],
            flushes: fields[15],
        })
    }
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            read_sectors: self.read_sectors - before.read_sectors,
            writes: self.writes - before.writes,
            written_sectors: self.written_sectors - before.written_sectors,
            flushes: self.flushes - before.flushes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_apart() {
        let text = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
        let counts = Counts::parse(text).unwrap();
        let expected = Counts {
            reads: 1,
            read_sectors: 3,
            writes: 5,
            written_sectors: 7,
            flushes: 16,
        };
        assert_eq!(counts, expected);
        assert_eq!(counts - counts, Counts::default());
        // Before Linux 5.5 there were no flushes in it.
        assert!(Counts::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15").is_err());
    }
}
