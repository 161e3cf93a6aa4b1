//! `check-android`: the product type-checked for Android, without an NDK: rustc and the sources of
//! its standard library as Debian packages them, `-Zbuild-std`.

use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Result};

use crate::{paths, process};

/// What Android runs on.
const TARGETS: [&str; 2] = ["aarch64-linux-android", "x86_64-linux-android"];
/// Debian's toolchain: the one of its browsers is newer than its own.
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library";
const PACKAGES: &str = "rustc-web cargo-web rust-web-src";

/// Checks the library, both binaries and their unit tests.
///
/// # Errors
/// What rustc says, or which packages are missing.
pub fn run() -> Result<()> {
    for path in [RUSTC, CARGO, SOURCES] {
        ensure!(
            Path::new(path).exists(),
            "{path} is not there: apt-get install {PACKAGES}"
        );
    }
    for target in TARGETS {
        check(target, &paths::root())?;
        println!("{target}: library and binaries type-check");
    }
    Ok(())
}

fn check(target: &str, root: &Path) -> Result<()> {
    let mut cargo = Command::new(CARGO);
    cargo
        .current_dir(root)
        .env("RUSTC", RUSTC)
        // -Zbuild-std on a released compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", paths::target().join("android"))
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .args([
            "check",
            "--quiet",
            "--locked",
            "--package",
            "blockd",
            "--lib",
            "--bins",
        ])
        .args(["-Zbuild-std=std,panic_abort", "--target", target]);
    process::run(&mut cargo)
}
