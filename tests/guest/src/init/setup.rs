//! The first stage: file systems, kernel modules, the binder node.

use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use nix::kmod::{finit_module, ModuleInitFlags};
use nix::mount::{mount, MsFlags};

use super::log;

/// Kernel file systems: type and mount point.
const MOUNTS: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/mnt"),
    ("tmpfs", "/apex"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// The list of module files, in the order of loading, one a line.
const MODULE_LIST: &str = "/lib/modules/order";

/// Mounts what the kernel offers.
pub fn mount_all() -> Result<()> {
    for (kind, target) in MOUNTS {
        fs::create_dir_all(target).with_context(|| format!("mkdir {target}"))?;
        mount(
            Some(*kind),
            *target,
            Some(*kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .with_context(|| format!("mount {kind} on {target}"))?;
    }
    for dir in ["/dev/block/by-name", "/dev/socket"] {
        fs::create_dir_all(dir)?;
    }
    Ok(())
}

/// Loads the modules of the list.
pub fn load_modules() -> Result<()> {
    let Ok(list) = fs::read_to_string(MODULE_LIST) else {
        return Ok(());
    };
    for name in list.lines() {
        let file = File::open(Path::new("/lib/modules").join(name))
            .with_context(|| format!("module {name}"))?;
        finit_module(&file, c"", ModuleInitFlags::empty())
            .with_context(|| format!("load module {name}"))?;
    }
    Ok(())
}

/// Makes the binder node usable: mode as ueventd.rc gives it, and the name that service
/// managers built for binderfs insist on (this kernel has one node and no binderfs).
pub fn link_binder() -> Result<()> {
    let node = Path::new("/dev/binder");
    if !node.exists() {
        log::info("no /dev/binder: binder_linux is not loaded");
        return Ok(());
    }
    fs::set_permissions(node, fs::Permissions::from_mode(0o666))?;
    fs::create_dir_all("/dev/binderfs")?;
    symlink("../binder", "/dev/binderfs/binder")?;
    Ok(())
}

/// Loads /sepolicy if there is one. Returns whether SELinux is on.
pub fn load_policy(enforcing: bool) -> Result<bool> {
    let Ok(policy) = fs::read("/sepolicy") else {
        return Ok(false);
    };
    let target = "/sys/fs/selinux";
    mount(
        Some("selinuxfs"),
        target,
        Some("selinuxfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .context("mount selinuxfs: the kernel needs security=selinux")?;
    fs::write("/sys/fs/selinux/load", policy).context("load /sepolicy")?;
    fs::write("/sys/fs/selinux/enforce", if enforcing { "1" } else { "0" })
        .context("set the SELinux mode")?;
    Ok(true)
}
