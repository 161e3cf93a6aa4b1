//! `check-aidl`: the interfaces by AOSP's own compiler (aidl 14, as Debian sid packages it): every
//! backend with warnings as errors, the transaction codes beside those of rsbinder's compiler, and
//! the frozen versions.

mod codes;
mod faults;
mod frozen;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};

use crate::vm::apt::Apt;
use crate::{paths, process};

/// The first suite whose compiler knows structured parcelables and Rust.
const SUITE: &str = "sid";
const PACKAGE: &str = "aidl";
/// Every backend that Android.bp enables.
const BACKENDS: [&str; 4] = ["cpp", "java", "ndk", "rust"];

/// AOSP's compiler, unpacked.
pub struct Compiler {
    root: PathBuf,
}

impl Compiler {
    /// Fetches it once into target/.
    ///
    /// # Errors
    /// apt cannot bring it, or it does not run.
    pub fn fetch() -> Result<Self> {
        let directory = paths::target().join("aidl");
        let root = directory.join("root");
        if !root.exists() {
            fs::create_dir_all(&directory)?;
            eprintln!("reading package lists of Debian {SUITE} (10 MB)");
            let apt = Apt::new(&directory.join("apt"), &[SUITE])?;
            let plan = apt.plan(SUITE, &[PACKAGE])?;
            let megabytes = plan.bytes / 1_000_000;
            eprintln!(
                "fetching {PACKAGE}: {} packages, {megabytes} MB",
                plan.packages
            );
            apt.fetch(SUITE, &[PACKAGE], &root)?;
        }
        Ok(Self { root })
    }

    /// It, by its own suite's loader and libraries.
    fn command(&self) -> Command {
        let usr = self.root.join("usr");
        let libraries = usr.join("lib/x86_64-linux-gnu");
        let mut command = Command::new(usr.join("lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(format!(
            "{}:{}",
            libraries.join("android").display(),
            libraries.display()
        ));
        command.arg(usr.join("bin/aidl"));
        command
    }

    /// Compiles one file of `include` for a backend into `out`, warnings as errors.
    fn compile(&self, backend: &str, include: &Path, file: &Path, out: &Path) -> Result<()> {
        let mut command = self.command();
        command.arg(format!("--lang={backend}"));
        command.args(["--structured", "-Weverything", "-Werror"]);
        // Who may call is said by the policy and by the service's gate, not by Android permissions.
        command.arg("-Wno-missing-permission-annotation");
        command.arg("-I").arg(include).arg("-o").arg(out);
        if matches!(backend, "cpp" | "ndk") {
            command.arg("-h").arg(out.join("include"));
        }
        process::output(command.arg(file)).map(drop)
    }

    /// Writes the interfaces as a version of the API is kept: without comments and bodies.
    fn dump(&self, include: &Path, out: &Path) -> Result<()> {
        let mut command = self.command();
        command.current_dir(include);
        command.args(["--dumpapi", "--structured", "-I", "."]);
        command.arg(format!("--out={}", out.display()));
        process::output(command.args(relative_sources(include)?)).map(drop)
    }

    /// Compares two versions of the API; `how` is `equal` or `compatible`.
    fn compare(&self, how: &str, old: &Path, new: &Path) -> Result<()> {
        let mut command = self.command();
        command.arg(format!("--checkapi={how}")).arg("--structured");
        process::output(command.arg(old).arg(new)).map(drop)
    }
}

/// Checks the interfaces below `include` (the project's own where none is given).
///
/// # Errors
/// The first thing that does not hold, in the compiler's words.
pub fn run(include: Option<&Path>) -> Result<()> {
    let own = paths::root().join("aidl");
    let include = include.unwrap_or(&own);
    let compiler = Compiler::fetch()?;
    let scratch = tempfile::tempdir()?;
    let files = relative_sources(include)?;
    ensure!(!files.is_empty(), "no .aidl file in {}", include.display());
    for backend in BACKENDS {
        let out = scratch.path().join(backend);
        fs::create_dir_all(&out)?;
        for file in &files {
            compiler.compile(backend, include, &include.join(file), &out)?;
        }
        println!("{backend}: {} files", files.len());
    }
    let count = codes::agree(&scratch.path().join("rust"), include)?;
    println!("transaction codes: {count} methods, the same from both compilers");
    let current = scratch.path().join("current");
    compiler.dump(include, &current)?;
    callbacks_are_oneway(include)?;
    match frozen::check(&compiler, &frozen::directory(), &current)? {
        0 => println!("no version is frozen yet"),
        newest => println!("version {newest} is unchanged, and this tree is compatible with it"),
    }
    let count = faults::all_refused(&compiler, include, &current)?;
    println!("{count} seeded faults are refused");
    Ok(())
}

/// Freezes the interfaces as they are as the next version (`cargo xtask freeze-aidl`).
///
/// # Errors
/// They do not pass the check, or are the newest version already.
pub fn freeze() -> Result<()> {
    run(None)?;
    let compiler = Compiler::fetch()?;
    let scratch = tempfile::tempdir()?;
    let current = scratch.path().join("current");
    compiler.dump(&paths::root().join("aidl"), &current)?;
    let version = frozen::freeze(&compiler, &frozen::directory(), &current)?;
    println!("frozen as version {version}; Android.bp must name it under `versions_with_info`");
    Ok(())
}

/// A callback that the service had to wait for would let a client stop it.
fn callbacks_are_oneway(include: &Path) -> Result<()> {
    const CALLBACKS: [&str; 1] = ["IProgress"];
    for name in CALLBACKS {
        let file = include.join("dev/blockd").join(format!("{name}.aidl"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let oneway = format!("oneway interface {name} ");
        ensure!(
            text.contains(&oneway),
            "{name} is a callback and not oneway"
        );
    }
    Ok(())
}

/// The .aidl files below a directory, relative to it, sorted.
fn relative_sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| e == "aidl") {
                found.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    if found.is_empty() {
        bail!("no .aidl file below {}", root.display());
    }
    found.sort();
    Ok(found)
}
