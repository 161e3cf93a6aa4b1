//! Debian programs for the guest with the libraries that they need: mkfs, mmc-utils, blkdiscard.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::initramfs::Tree;
use crate::process;

/// What [`fetch`] brings; raised in the directory's name whenever this changes.
pub const PACKAGES: &[&str] = &["e2fsprogs", "f2fs-tools", "mmc-utils", "util-linux"];
/// The directory below target/vm.
pub const DIRECTORY: &str = "tools-2";

/// Where the guest has its dynamic loader, and where that looks for libraries.
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// A program: its path in the packages, and in the guest under the name that Android gives it.
#[derive(Clone, Copy, Debug)]
pub struct Tool(&'static str, &'static str);

/// e2fsprogs' mkfs.
pub const MKE2FS: Tool = Tool("usr/sbin/mke2fs", "system/bin/mke2fs");
/// f2fs-tools' mkfs.
pub const MAKE_F2FS: Tool = Tool("usr/sbin/mkfs.f2fs", "system/bin/make_f2fs");
/// mmc-utils.
pub const MMC: Tool = Tool("usr/bin/mmc", "system/bin/mmc");

/// util-linux.
pub const BLKDISCARD: Tool = Tool("usr/sbin/blkdiscard", "system/bin/blkdiscard");

/// Downloads the packages into `root`.
pub fn fetch(apt: &Apt, suite: &str, root: &Path) -> Result<()> {
    let plan = apt.plan(suite, PACKAGES)?;
    eprintln!(
        "fetching {} packages, {} MB, for {} in the guest into {}",
        plan.packages,
        plan.bytes / 1_000_000,
        PACKAGES.join(", "),
        root.display()
    );
    apt.fetch(suite, PACKAGES, root)
}

/// Puts programs with their libraries into the guest.
pub fn add(tree: &mut Tree, root: &Path, tools: &[Tool]) -> Result<()> {
    let usr = root.join("usr");
    let loader = usr.join(LOADER);
    tree.program(LOADER, &loader)?;
    let mut libraries: Vec<PathBuf> = Vec::new();
    for Tool(source, name) in tools {
        let program = root.join(source);
        tree.program(name, &program)?;
        let mut list = Command::new(&loader);
        list.arg("--library-path").arg(usr.join(LIBRARIES));
        let text = process::text(list.arg("--list").arg(&program))?;
        // `libuuid.so.1 => /…/libuuid.so.1 (0x…)`
        let paths = text
            .lines()
            .filter_map(|line| line.split_once("=> ")?.1.split(' ').next());
        libraries.extend(paths.map(PathBuf::from));
    }
    libraries.sort();
    libraries.dedup();
    for library in libraries.iter().filter(|path| !is_loader(path)) {
        let name = library.file_name().context("a library without a name")?;
        tree.program(&format!("{LIBRARIES}/{}", name.to_string_lossy()), library)?;
    }
    Ok(())
}

fn is_loader(path: &Path) -> bool {
    path.file_name() == Path::new(LOADER).file_name()
}
