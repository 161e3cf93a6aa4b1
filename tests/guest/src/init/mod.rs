//! init: first the kernel's part (file systems, modules, nodes), then Android's: the .rc files
//! under /system/etc/init drive services by events and properties. At the end it runs one
//! scenario and powers off.

mod commands;
mod devices;
mod execute;
mod log;
mod machine;
pub mod properties;
mod services;
mod setup;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{bail, Context, Result};
use nix::sys::reboot::{reboot, RebootMode};

use crate::rc::{Parser, Script};
use machine::Machine;

/// The file that AOSP's init reads first; the rest of the directory follows by name.
const MAIN_RC: &str = "/system/etc/init/hw/init.rc";
const RC_DIRECTORY: &str = "/system/etc/init";

/// Kernel command line words that become properties `ro.boot.…`.
const BOOT_PREFIX: &str = "androidboot.";

/// Runs as process 1: never returns.
pub fn main() -> ! {
    if let Err(e) = boot() {
        log::error(&format!("{e:#}"));
    }
    nix::unistd::sync();
    let Err(e) = reboot(RebootMode::RB_POWER_OFF);
    log::error(&format!("power off: {e}"));
    // The kernel panics when process 1 ends, and the host sees that.
    std::process::exit(1)
}

fn boot() -> Result<()> {
    let begin = Instant::now();
    setup::mount_all()?;
    let command_line = fs::read_to_string("/proc/cmdline")?;
    let parameter = |key: &str| {
        command_line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let enforcing = parameter("androidboot.selinux") != Some("permissive");
    let selinux = setup::load_policy(enforcing)?;
    let uevents = devices::Uevents::open()?;
    setup::load_modules()?;
    devices::coldboot();
    devices::link_virtio_ports()?;
    setup::link_binder()?;
    let script = load_scripts()?;

    let mut machine = Machine::new(script, uevents, selinux)?;
    for word in command_line.split_whitespace() {
        if let Some((name, value)) = word
            .strip_prefix(BOOT_PREFIX)
            .and_then(|w| w.split_once('='))
        {
            machine.set_property(&format!("ro.boot.{name}"), value)?;
        }
    }
    log::info(&format!(
        "first stage took {} ms",
        begin.elapsed().as_millis()
    ));
    for device in parameter("blockd.wait")
        .unwrap_or_default()
        .split(',')
        .filter(|d| !d.is_empty())
    {
        machine.wait_for_device(Path::new(device))?;
    }
    machine.queue("early-init");
    machine.queue("init");
    machine.queue("late-init");
    machine.run_until_idle()?;
    log::info(&format!("booted after {} ms", begin.elapsed().as_millis()));
    let result = match parameter("blockd.scenario") {
        Some(scenario) => machine.run_scenario(scenario),
        None => bail!("no blockd.scenario on the command line"),
    };
    machine.shut_down();
    result
}

/// Parses all rc files; anything that this init would not do as written is an error.
fn load_scripts() -> Result<Script> {
    let mut files: Vec<_> = fs::read_dir(RC_DIRECTORY)
        .with_context(|| format!("read {RC_DIRECTORY}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "rc"))
        .collect();
    files.sort();
    files.insert(0, MAIN_RC.into());
    let mut parser = Parser::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        parser.file(&file.display().to_string(), &text);
    }
    let script = match parser.finish() {
        Ok(script) => script,
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                log::error(&diagnostic.to_string());
            }
            bail!("{} errors in rc files", diagnostics.len());
        }
    };
    let unapplied: Vec<_> = script.services.iter().flat_map(|s| &s.unapplied).collect();
    for (at, option) in &unapplied {
        log::error(&format!("{at}: this init cannot apply `{option}`"));
    }
    if !unapplied.is_empty() {
        bail!("{} options in rc files cannot be applied", unapplied.len());
    }
    Ok(script)
}
