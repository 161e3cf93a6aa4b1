//! Frozen versions of the API, as AOSP keeps them: `aidl_api/dev.blockd/N/` beside Android.bp, with
//! a `.hash` of its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

use super::{relative_sources, Compiler};
use crate::{paths, process};

/// Where the project's versions lie; Soong's aidl_interface looks there.
pub fn directory() -> PathBuf {
    paths::root().join("aidl_api/dev.blockd")
}

/// The numbers of the frozen versions, ascending.
fn versions(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u32> = names.filter_map(|n| n.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Every frozen version still has its hash, each is compatible with the next, and the newest with
/// `current`. Returns the newest, 0 for none.
///
/// # Errors
/// What was changed, in the compiler's words.
pub fn check(compiler: &Compiler, directory: &Path, current: &Path) -> Result<u32> {
    let versions = versions(directory);
    for (at, version) in versions.iter().enumerate() {
        let dump = directory.join(version.to_string());
        let path = dump.join(".hash");
        let kept = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let now = hash(&dump, *version)?;
        ensure!(
            kept.trim() == now,
            "version {version} is frozen, but its files are not those of its hash ({})",
            dump.display()
        );
        let next = versions.get(at + 1).map(|n| directory.join(n.to_string()));
        let next = next.as_deref().unwrap_or(current);
        compiler
            .compare("compatible", &dump, next)
            .with_context(|| format!("{} breaks version {version}", next.display()))?;
    }
    Ok(versions.last().copied().unwrap_or(0))
}

/// Writes `current` as the next version. Returns its number.
///
/// # Errors
/// It is the newest version already.
pub fn freeze(compiler: &Compiler, directory: &Path, current: &Path) -> Result<u32> {
    let versions = versions(directory);
    let newest = versions.last().copied().unwrap_or(0);
    if newest > 0 {
        let same = compiler.compare("equal", &directory.join(newest.to_string()), current);
        ensure!(same.is_err(), "nothing has changed since version {newest}");
    }
    let version = newest + 1;
    let dump = directory.join(version.to_string());
    for file in relative_sources(current)? {
        let to = dump.join(&file);
        fs::create_dir_all(to.parent().unwrap_or(&dump))?;
        fs::copy(current.join(&file), &to)?;
    }
    let hash = hash(&dump, version)?;
    fs::write(dump.join(".hash"), hash + "\n")?;
    Ok(version)
}

/// sha1 over the sha1sums of the sorted files and a word for the version before, as AOSP's build does
/// it (system/tools/aidl: build/hash_gen.sh, versionForHashGen).
fn hash(dump: &Path, version: u32) -> Result<String> {
    let before = match version {
        0 | 1 => "latest-version".to_owned(),
        later => (later - 1).to_string(),
    };
    let files = relative_sources(dump)?;
    let mut sums = Command::new("sha1sum");
    sums.current_dir(dump)
        .args(files.iter().map(|file| Path::new(".").join(file)));
    let text = process::text(&mut sums)? + &before + "\n";
    let scratch = tempfile::NamedTempFile::new()?;
    fs::write(scratch.path(), text)?;
    let sum = process::text(Command::new("sha1sum").arg(scratch.path()))?;
    let sum = sum.split(' ').next().context("sha1sum said nothing")?;
    Ok(sum.to_owned())
}
