//! The commands of actions that need nothing but the file system.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::path::Path;

use anyhow::{bail, Context, Result};
use nix::mount::{mount, umount, MsFlags};

use super::log;
use crate::{rc, sys};

/// Mount options that are flags (builtins.cpp, do_mount).
const MOUNT_FLAGS: &[(&str, MsFlags)] = &[
    ("bind", MsFlags::MS_BIND),
    ("defaults", MsFlags::empty()),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodev", MsFlags::MS_NODEV),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("noexec", MsFlags::MS_NOEXEC),
    ("nosuid", MsFlags::MS_NOSUID),
    ("private", MsFlags::MS_PRIVATE),
    ("rec", MsFlags::MS_REC),
    ("remount", MsFlags::MS_REMOUNT),
    ("ro", MsFlags::MS_RDONLY),
    ("rw", MsFlags::empty()),
    ("shared", MsFlags::MS_SHARED),
    ("slave", MsFlags::MS_SLAVE),
];

/// Permission bits of a directory made without a mode.
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// Runs one command (its arity was checked). `None`: it is not one of these.
pub fn run(words: &[String]) -> Option<Result<()>> {
    let argument = |n: usize| words[n].as_str();
    Some(match words[0].as_str() {
        "chmod" => mode(argument(1)).and_then(|mode| set_mode(argument(2), mode)),
        "chown" => match words.len() {
            3 => owner(argument(2), argument(1), None),
            _ => owner(argument(3), argument(1), Some(argument(2))),
        },
        "copy" => fs::copy(argument(1), argument(2))
            .map(drop)
            .map_err(Into::into),
        "loglevel" => write("/proc/sys/kernel/printk", argument(1)),
        "mkdir" => make_directory(&words[1..]),
        "mount" => mount_one(&words[1..]),
        "restorecon" => {
            log::info(&format!(
                "restorecon {}: not applied: no file contexts",
                argument(1)
            ));
            Ok(())
        }
        "rm" => fs::remove_file(argument(1)).map_err(Into::into),
        "rmdir" => fs::remove_dir(argument(1)).map_err(Into::into),
        "setrlimit" => rc::Rlimit::parse(&words[1..])
            .map_err(anyhow::Error::msg)
            .and_then(|limit| Ok(sys::set_limit(&limit)?)),
        "symlink" => symlink(argument(1), argument(2)).map_err(Into::into),
        "umount" => umount(argument(1)).map_err(Into::into),
        "write" => write(argument(1), argument(2)),
        _ => return None,
    })
}

fn mode(text: &str) -> Result<u32> {
    u32::from_str_radix(text, 8).with_context(|| format!("`{text}` is no octal mode"))
}

fn set_mode(path: &str, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn owner(path: &str, user: &str, group: Option<&str>) -> Result<()> {
    let number = |name: &str| rc::id(name).with_context(|| format!("unknown id `{name}`"));
    chown(path, Some(number(user)?), group.map(number).transpose()?)?;
    Ok(())
}

fn write(path: &str, text: &str) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .context("open")?;
    Ok(file.write_all(text.as_bytes())?)
}

/// `mkdir PATH [MODE] [USER] [GROUP]`; an existing directory gets mode and owner too.
fn make_directory(arguments: &[String]) -> Result<()> {
    let path = &arguments[0];
    if let Some(option) = arguments.get(4) {
        bail!("mkdir option `{option}` is not supported here");
    }
    if !Path::new(path).is_dir() {
        fs::create_dir(path)?;
    }
    match arguments.get(1) {
        Some(text) => set_mode(path, mode(text)?)?,
        None => set_mode(path, DEFAULT_DIRECTORY_MODE)?,
    }
    if let Some(user) = arguments.get(2) {
        owner(path, user, arguments.get(3).map(String::as_str))?;
    }
    Ok(())
}

/// `mount TYPE DEVICE DIR [FLAG…] [OPTIONS]`
fn mount_one(arguments: &[String]) -> Result<()> {
    let [kind, device, target, rest @ ..] = arguments else {
        bail!("mount takes at least 3 arguments");
    };
    let mut flags = MsFlags::empty();
    let mut options = None;
    for (index, word) in rest.iter().enumerate() {
        match MOUNT_FLAGS.iter().find(|(name, _)| name == word) {
            Some((_, flag)) => flags |= *flag,
            None if index + 1 == rest.len() => options = Some(word.as_str()),
            None => bail!("unknown mount flag `{word}`"),
        }
    }
    mount(
        Some(device.as_str()),
        target.as_str(),
        Some(kind.as_str()),
        flags,
        options,
    )?;
    Ok(())
}
