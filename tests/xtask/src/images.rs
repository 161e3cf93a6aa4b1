//! The disk with forty APEX files, made once and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use apexgen::{ext4_payload, write_apex};
use serde_json::{json, Value};

use crate::{paths, process};

/// Number of files.
pub const COUNT: usize = 40;
/// Raised whenever what [`disk`] makes changes.
const FORMAT: u32 = 2;
const MIB: u64 = 1 << 20;
/// Room of the file system beside the files.
const SPARE_MIB: u64 = 64;

/// The disk and what is on it.
#[derive(Debug)]
pub struct Disk {
    /// A raw ext4 image.
    pub path: PathBuf,
    /// The directory of the files themselves.
    pub files: PathBuf,
    /// For every file: name, payload's offset and length (bytes), SHA-256.
    pub list: Value,
}

/// Payload sizes from 2 to 20 MiB, most of them small, no two equal.
fn payload_bytes(number: usize) -> u64 {
    let step = number as u64;
    2 * MIB + 18 * MIB * step.pow(3) / (COUNT as u64 - 1).pow(3) / 4096 * 4096 + step * 4096
}

/// The disk; the first call makes it (half a minute).
pub fn disk() -> Result<Disk> {
    let directory = paths::target().join("vm").join(format!("images-{FORMAT}"));
    if !directory.exists() {
        let partial = directory.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        eprintln!("making {COUNT} APEX files and a disk for them (once)");
        make(&partial)?;
        fs::rename(&partial, &directory)?;
    }
    let list = fs::read(directory.join("list.json"))?;
    Ok(Disk {
        path: directory.join("disk.img"),
        files: directory.join("files"),
        list: serde_json::from_slice(&list)?,
    })
}

fn make(directory: &Path) -> Result<()> {
    let files = directory.join("files");
    fs::create_dir(&files)?;
    let payload = directory.join("payload");
    let mut list = Vec::new();
    let mut total = 0;
    for number in 0..COUNT {
        let name = format!("dev.blockd.test{number:02}");
        let file = format!("{name}.apex");
        ext4_payload(&payload, payload_bytes(number), number as u64).context("ext4 payload")?;
        let window = write_apex(&files.join(&file), &name, 1, &payload).context("APEX file")?;
        let sum = process::text(Command::new("sha256sum").arg(&payload))?;
        list.push(json!({
            "file": file,
            "offset": window.offset,
            "length": window.length,
            "sha256": sum.split(' ').next(),
        }));
        total += fs::metadata(files.join(&file))?.len();
    }
    fs::remove_file(&payload)?;
    fs::write(directory.join("list.json"), serde_json::to_vec(&list)?)?;
    let size = format!("{}M", total / MIB + SPARE_MIB);
    let image = directory.join("disk.img");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    mke2fs.args([
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-E",
        "root_owner=0:0",
        "-d",
    ]);
    process::output(mke2fs.arg(&files).arg(&image).arg(size))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_differ_and_are_whole_blocks() {
        let sizes: std::collections::BTreeSet<_> = (0..COUNT).map(payload_bytes).collect();
        assert_eq!(sizes.len(), COUNT);
        assert!(sizes.iter().all(|size| size % 4096 == 0));
        assert_eq!(sizes.first(), Some(&(2 * MIB)));
        assert_eq!(sizes.last().unwrap() / MIB, 20);
    }
}
