//! Building what runs in the guest: static programs, so that it needs no libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

use crate::{paths, process};

/// The guest's architecture.
pub const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The service manager and the version of it that speaks the product's protocol.
const RSBINDER_TOOLS: &str = "rsbinder-tools";
const RSBINDER_VERSION: &str = "0.12.0";

/// Cargo with the settings of the guest: only target code is static, host tools stay as they are.
fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .current_dir(paths::root())
        .env(
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            "-Ctarget-feature=+crt-static",
        )
        // cargo sets these for `cargo run`; they would change what is built.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .args([command, "--target", TRIPLE]);
    cargo
}

/// Builds the product's and the guest's programs. Returns the directory that holds them.
pub fn programs() -> Result<PathBuf> {
    let mut build = cargo("build");
    build.args([
        "--profile",
        "guest",
        "--bins",
        "--package",
        "blockd",
        "--package",
        "guest",
        "--package",
        "bench",
    ]);
    process::run(&mut build)?;
    Ok(paths::target().join(TRIPLE).join("guest"))
}

/// Builds the integration test. Returns its path.
pub fn integration_test() -> Result<PathBuf> {
    let mut build = cargo("test");
    build.args([
        "--profile",
        "guest",
        "--package",
        "blockd",
        "--test",
        "it",
        "--no-run",
    ]);
    build.arg("--message-format=json-render-diagnostics");
    let messages = process::capture(&mut build)?;
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "it")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo named no test executable")
}

/// Builds the service manager once. Returns the path of `rsb_hub`.
pub fn service_manager() -> Result<PathBuf> {
    let name = format!("{RSBINDER_TOOLS}-{RSBINDER_VERSION}");
    let directory = paths::target().join("tools").join(name);
    let program = directory.join("bin/rsb_hub");
    if program.exists() {
        return Ok(program);
    }
    eprintln!("building {RSBINDER_TOOLS} {RSBINDER_VERSION} (about 2 minutes, once)");
    let mut install = cargo("install");
    install
        .args(["--locked", "--quiet", "--root"])
        .arg(&directory);
    install.arg("--target-dir").arg(directory.join("build"));
    install.args([RSBINDER_TOOLS, "--version", &format!("={RSBINDER_VERSION}")]);
    process::run(&mut install)?;
    // 500 MB that nothing needs any more.
    std::fs::remove_dir_all(directory.join("build"))?;
    ensure!(program.exists(), "{RSBINDER_TOOLS} brought no rsb_hub");
    Ok(program)
}

/// Fails unless this machine can build programs for the guest.
pub fn check_host() -> Result<()> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("the guest is built for {TRIPLE} only, and this machine is another");
    }
    Ok(())
}

/// Fails unless a program needs no interpreter (is static).
pub fn check_static(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    // An interpreter is named by its path in the first page (PT_INTERP).
    let head = &bytes[..bytes.len().min(4096)];
    let dynamic = head
        .windows(b"/ld-linux".len())
        .any(|window| window == b"/ld-linux");
    ensure!(!dynamic, "{} is not static", program.display());
    Ok(())
}
