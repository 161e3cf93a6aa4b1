//! The guest's root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::{Archive, Content};
use super::modules::Modules;
use super::setup::Equipment;
use super::Mode;
use crate::paths;

/// What every guest loads: file systems and drivers that the scenarios use.
const MODULES: &[&str] = &[
    "binder_linux",
    "virtio_blk",
    "loop",
    "crc32c_generic",
    "ext4",
    "dm-mod",
    "dm-verity",
    "erofs",
];
/// For a card behind SDHCI.
const CARD_MODULES: &[&str] = &["mmc_core", "cqhci", "sdhci", "sdhci-pci", "mmc_block"];

/// The tree, by path relative to the root; parents are made as needed.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: Vec<(String, u32, Content)>,
}

impl Tree {
    /// The tree of a mode: programs, rc files, modules.
    pub fn new(equipment: &Equipment, mode: Mode, card: bool) -> Result<Self> {
        let mut names = MODULES.to_vec();
        if card {
            names.extend(CARD_MODULES);
        }
        Self::with_modules(equipment, mode, &names)
    }

    fn with_modules(equipment: &Equipment, mode: Mode, names: &[&str]) -> Result<Self> {
        let mut tree = Self::default();
        // The kernel opens it before devtmpfs is mounted.
        tree.add("dev/console", 0o600, Content::CharacterDevice(5, 1));
        for program in ["blockd", "blockctl", "guest"] {
            tree.program(
                &format!("system/bin/{program}"),
                &equipment.programs.join(program),
            )?;
        }
        tree.program("system/bin/rsb_hub", &equipment.service_manager)?;
        tree.add(
            "init",
            0o755,
            Content::Symlink("system/bin/guest".to_owned()),
        );
        let (base, own) = match mode {
            Mode::System => ("system.rc", "blockd.rc"),
            Mode::Recovery => ("recovery.rc", "blockd.recovery.rc"),
        };
        let base = paths::root().join("tests/guest/rc").join(base);
        tree.file("system/etc/init/hw/init.rc", &base)?;
        let own_path = paths::root().join("rc").join(own);
        tree.file(&format!("system/etc/init/{own}"), &own_path)?;
        tree.modules(&equipment.kernel.modules, names)?;
        Ok(tree)
    }

    /// Adds an entry.
    pub fn add(&mut self, path: &str, permissions: u32, content: Content) {
        self.entries.push((path.to_owned(), permissions, content));
    }

    /// Adds a program of the host's file system.
    pub fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        let bytes = fs::read(source).with_context(|| source.display().to_string())?;
        self.add(path, 0o755, Content::File(bytes));
        Ok(())
    }

    /// Adds a file of the host's file system.
    pub fn file(&mut self, path: &str, source: &Path) -> Result<()> {
        let bytes = fs::read(source).with_context(|| source.display().to_string())?;
        self.add(path, 0o644, Content::File(bytes));
        Ok(())
    }

    /// As [`new`](Self::new), for a scenario that needs these modules besides those of the card,
    /// and none of the usual ones.
    pub fn lean(equipment: &Equipment, mode: Mode, modules: &[&str]) -> Result<Self> {
        let names = [&["binder_linux"], CARD_MODULES, modules].concat();
        Self::with_modules(equipment, mode, &names)
    }

    fn modules(&mut self, directory: &Path, names: &[&str]) -> Result<()> {
        let all = Modules::new(directory)?;
        let mut order = String::new();
        for module in all.resolve(names)? {
            let file = format!("{}.ko", module.name);
            order += &format!("{file}\n");
            self.add(
                &format!("lib/modules/{file}"),
                0o644,
                Content::File(module.bytes),
            );
        }
        self.add(
            "lib/modules/order",
            0o644,
            Content::File(order.into_bytes()),
        );
        Ok(())
    }

    /// The archive. It is not compressed: the emulated processor would unpack it slowly.
    pub fn archive(&self) -> Vec<u8> {
        let mut archive = Archive::default();
        let mut directories = BTreeSet::new();
        for (path, _, _) in &self.entries {
            let parents = Path::new(path).ancestors().skip(1).map(Path::to_owned);
            directories.extend(parents.filter(|parent| *parent != PathBuf::new()));
        }
        // Sorted: a parent comes before what it holds.
        for directory in &directories {
            archive.add(&directory.to_string_lossy(), 0o755, &Content::Directory);
        }
        for (path, permissions, content) in &self.entries {
            archive.add(path, *permissions, content);
        }
        archive.finish()
    }
}
