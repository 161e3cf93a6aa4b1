//! What a run needs, fetched or built once: QEMU, a kernel, the service manager, the programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::tools;
use crate::{binaries, paths, process};

/// QEMU's name in PATH.
const QEMU: &str = "qemu-system-x86_64";
/// The package that has it, and the first suite with the device that the card needs.
const QEMU_PACKAGE: &str = "qemu-system-x86";
const QEMU_SUITE: &str = "trixie-backports";
/// The suite of the guest's kernel (6.12) and the package that names its newest build.
const KERNEL_SUITE: &str = "trixie";
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// How QEMU is started on this machine.
#[derive(Clone, Debug)]
pub enum Qemu {
    /// The system's own.
    System,
    /// Unpacked below a directory, run by its own dynamic loader: needs no root and no chroot.
    Unpacked(PathBuf),
}

/// A kernel with its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The bootable image.
    pub image: PathBuf,
    /// lib/modules/VERSION
    pub modules: PathBuf,
}

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Equipment {
    /// QEMU.
    pub qemu: Qemu,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// The service manager of binder (static).
    pub service_manager: PathBuf,
    /// Debian's mkfs, mmc-utils and blkdiscard, see [`tools::add`].
    pub tools: PathBuf,
    /// The directory of the product's and the guest's programs (static).
    pub programs: PathBuf,
}

/// Brings everything; what is there already is left alone.
pub fn all() -> Result<Equipment> {
    binaries::check_host()?;
    let begin = Instant::now();
    let directory = paths::target().join("vm");
    let unpacked = directory.join("qemu");
    let kernel = directory.join("kernels").join(KERNEL_SUITE);
    let tools = directory.join(tools::DIRECTORY);
    let system = Qemu::System.works().is_ok();
    if (!system && !unpacked.exists()) || !kernel.exists() || !tools.exists() {
        fetch(&directory, (!system).then_some(&unpacked), &kernel, &tools)
            .context("cannot set the guest up")?;
    }
    let qemu = if system {
        Qemu::System
    } else {
        Qemu::Unpacked(unpacked)
    };
    qemu.works()?;
    let fetched = begin.elapsed();
    let service_manager = binaries::service_manager()?;
    let programs = binaries::programs()?;
    for program in ["blockd", "blockctl", "guest"] {
        binaries::check_static(&programs.join(program))?;
    }
    eprintln!(
        "set-up: {:.1} s for QEMU and kernel, {:.1} s for programs",
        fetched.as_secs_f64(),
        (begin.elapsed() - fetched).as_secs_f64()
    );
    Ok(Equipment {
        qemu,
        kernel: Kernel::find(&kernel)?,
        service_manager,
        tools,
        programs,
    })
}

fn fetch(directory: &Path, qemu: Option<&PathBuf>, kernel: &Path, tools: &Path) -> Result<()> {
    fs::create_dir_all(kernel.parent().unwrap_or(directory))?;
    eprintln!("reading package lists of Debian {KERNEL_SUITE} (15 MB)");
    let apt = Apt::new(&directory.join("apt"), &[KERNEL_SUITE, QEMU_SUITE])?;
    if let Some(root) = qemu.filter(|root| !root.exists()) {
        let plan = apt.plan(QEMU_SUITE, &[QEMU_PACKAGE])?;
        eprintln!(
            "fetching {} packages, {} MB, for QEMU into {} (not installed, no root)",
            plan.packages,
            plan.bytes / 1_000_000,
            root.display()
        );
        apt.fetch(QEMU_SUITE, &[QEMU_PACKAGE], root)?;
    }
    if !kernel.exists() {
        let names = apt.depends(KERNEL_PACKAGE)?;
        let image = names.iter().find(|name| name.starts_with("linux-image-"));
        let image = image.context("linux-image-amd64 depends on no kernel")?;
        eprintln!("fetching {image} into {} (about 100 MB)", kernel.display());
        apt.fetch_alone(image, kernel)?;
    }
    if !tools.exists() {
        tools::fetch(&apt, KERNEL_SUITE, tools)?;
    }
    Ok(())
}

impl Qemu {
    /// The command that starts it.
    pub fn command(&self) -> Command {
        match self {
            Self::System => Command::new(QEMU),
            Self::Unpacked(root) => {
                let usr = root.join("usr");
                let mut command = Command::new(usr.join("lib64/ld-linux-x86-64.so.2"));
                command
                    .arg("--library-path")
                    .arg(usr.join("lib/x86_64-linux-gnu"));
                command.arg(usr.join("bin").join(QEMU));
                for firmware in ["share/qemu", "share/seabios"] {
                    command.arg("-L").arg(usr.join(firmware));
                }
                command
            }
        }
    }

    /// Fails unless it runs and has the device that the card needs.
    pub fn works(&self) -> Result<()> {
        process::output(self.command().args(["-device", "vfio-user-pci,help"]))
            .context("no QEMU with vfio-user-pci")?;
        Ok(())
    }
}

impl Kernel {
    fn find(root: &Path) -> Result<Self> {
        let only = |directory: PathBuf, prefix: &str| {
            let entries =
                fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
            let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            paths
                .find(|p| {
                    p.file_name()
                        .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
                })
                .with_context(|| format!("no {prefix}… in {}", directory.display()))
        };
        Ok(Self {
            image: only(root.join("boot"), "vmlinuz")?,
            modules: only(root.join("usr/lib/modules"), "")?,
        })
    }
}
