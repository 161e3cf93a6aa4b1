//! Where is written: a scratch file of the caller's, or a partition behind the guards of a reset.

use super::args::Guards;
use blockd::cache::raw::Raw;
use blockd::device::{scratch, Storage};
use blockd::error::{Code, Failure, Result};
use blockd::units::Bytes;
use nix::errno::Errno;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Makes the scratch file in or beside `place`.
pub fn scratch_file(place: Option<&Path>) -> Result<File> {
    let folder = folder(place.unwrap_or(Path::new(".")))?;
    scratch::create(&folder).map_err(|errno| {
        let shown = folder.display();
        let (code, message, remedy) = match errno {
            Errno::EROFS => (
                Code::ReadOnly,
                format!("{shown} lies on a read-only file system"),
                "name a folder that can be written",
            ),
            Errno::EACCES | Errno::EPERM => (
                Code::Permission,
                format!("no file may be made in {shown}"),
                "name a folder of your own, as /data/local/tmp of the shell's",
            ),
            Errno::EINVAL => (
                Code::Unsupported,
                format!("the file system of {shown} has no direct I/O"),
                "name a folder on ext4, f2fs, xfs …",
            ),
            Errno::ENOSPC | Errno::EDQUOT => (
                Code::OutOfRange,
                format!("the file system of {shown} is full"),
                "free space, or name another folder",
            ),
            Errno::ENOENT | Errno::ENOTDIR => (
                Code::InvalidRequest,
                format!("there is no folder {shown}"),
                "name one that exists",
            ),
            _ => (
                Code::InvalidRequest,
                format!("cannot make a file in {shown}"),
                "name another folder",
            ),
        };
        Failure::new(code, "scratch", message)
            .errno(errno)
            .remedy(remedy)
    })
}

/// The folder that `place` is or lies in. What exists and is no folder is left alone.
fn folder(place: &Path) -> Result<PathBuf> {
    if place.is_dir() {
        return Ok(place.to_owned());
    }
    if place.symlink_metadata().is_ok() {
        let shown = place.display();
        return Err(Failure::new(
            Code::InvalidRequest,
            "scratch",
            format!("{shown} exists and would be overwritten"),
        )
        .remedy(
            "name a folder, or a file that is not there; a partition is named by --partition NAME",
        ));
    }
    Ok(match place.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    })
}

/// Asks for what overwriting a partition needs, and looks at it.
pub fn guarded(storage: &dyn Storage, name: &str, guards: &Guards) -> Result<Raw> {
    if !guards.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Code::InvalidRequest,
            "confirm",
            format!("{name} would be overwritten and nobody is there to be asked"),
        )
        .remedy("say --yes"));
    }
    let raw = Raw::look(storage, &guards.wanted(name))?;
    if !guards.yes {
        confirm(&raw)?;
    }
    Ok(raw)
}

fn confirm(raw: &Raw) -> Result<()> {
    let partition = &raw.partition;
    eprint!(
        "This overwrites {} ({}, {}): nothing on it can be used after.\nType its name to go on: ",
        partition.name,
        partition.node,
        Bytes(partition.range.length.to_bytes().0)
    );
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if read.is_ok() && line.trim() == partition.name {
        return Ok(());
    }
    Err(Failure::new(
        Code::Cancelled,
        "confirm",
        "not confirmed; nothing was touched",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_folder_or_lies_in_one() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(folder(dir.path()), Ok(dir.path().to_owned()));
        assert_eq!(folder(&dir.path().join("new")), Ok(dir.path().to_owned()));
        assert_eq!(folder(Path::new("new")), Ok(PathBuf::from(".")));
        let file = dir.path().join("old");
        std::fs::write(&file, "kept").expect("a file");
        let failure = folder(&file).expect_err("an existing file");
        assert!(failure.message.contains("would be overwritten"));
        let failure = scratch_file(Some(&dir.path().join("a/b"))).expect_err("no folder");
        assert_eq!(failure.code, Code::InvalidRequest);
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "kept");
    }
}
