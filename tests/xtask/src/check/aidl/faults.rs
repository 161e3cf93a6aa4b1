//! The check finds what it is for: faults seeded into a copy of the interfaces.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};

use super::{frozen, relative_sources, Compiler};

/// A file, what stands in it, what stands there instead.
type Edit = (&'static str, &'static str, &'static str);

/// The compiler refuses these, each with these words.
const REFUSED: [(Edit, &str); 5] = [
    (("ErrorCode", "DEVICE_FAILED", "DEVICE_ERROR"), "redundant"),
    (
        ("Finding", " = Severity.UNKNOWN;", ";"),
        "no explicit value",
    ),
    (("IFactoryReset", "plan(in ", "plan(inout "), "inout"),
    (
        ("IFactoryReset", "void cancel();", "oneway void cancel();"),
        "oneway",
    ),
    (("IProgress", "oneway interface", "interface"), "IProgress"),
];

/// A client of the frozen version could not talk to these.
const INCOMPATIBLE: [Edit; 4] = [
    ("IFactoryReset", "void cancel();", ""),
    ("IFactoryReset", "void cancel();", "void cancel(int why);"),
    ("ErrorCode", "IN_USE = 2,", "IN_USE = 102,"),
    ("StepTime", "long ", "int "),
];

/// And could to this.
const COMPATIBLE: Edit = (
    "IFactoryReset",
    "lastReport();",
    "lastReport();\n  void later();",
);

/// Seeds each fault. Returns how many were refused.
///
/// # Errors
/// One passed, or was refused for another reason.
pub fn all_refused(compiler: &Compiler, include: &Path, current: &Path) -> Result<usize> {
    for (edit, says) in REFUSED {
        let copy = edited(include, edit)?;
        let file = copy
            .path()
            .join("dev/blockd")
            .join(format!("{}.aidl", edit.0));
        let out = tempfile::tempdir()?;
        let compiled = compiler.compile("rust", copy.path(), &file, out.path());
        // Not every fault is one to the compiler: that a callback waits is one to us.
        let result = compiled.and_then(|()| super::callbacks_are_oneway(copy.path()));
        let Err(error) = result else {
            anyhow::bail!("`{}` in {}.aidl passes", edit.2, edit.0);
        };
        let text = format!("{error:#}");
        ensure!(text.contains(says), "`{}`: no `{says}` in\n{text}", edit.2);
    }
    let versions = tempfile::tempdir()?;
    frozen::freeze(compiler, versions.path(), current)?;
    frozen::check(compiler, versions.path(), current).context("what has just been frozen")?;
    for edit in INCOMPATIBLE {
        let copy = edited(current, edit)?;
        let result = frozen::check(compiler, versions.path(), copy.path());
        ensure!(
            result.is_err(),
            "`{}` in {}.aidl passes as compatible",
            edit.2,
            edit.0
        );
    }
    let copy = edited(current, COMPATIBLE)?;
    frozen::check(compiler, versions.path(), copy.path()).context("a method more")?;
    let touched = versions.path().join("1/dev/blockd/IProgress.aidl");
    let text = fs::read_to_string(&touched)?;
    fs::write(&touched, text + "// touched\n")?;
    let result = frozen::check(compiler, versions.path(), current);
    ensure!(result.is_err(), "a frozen file that was touched passes");
    Ok(REFUSED.len() + INCOMPATIBLE.len() + 1)
}

/// A copy of a tree of .aidl files with one edit.
fn edited(from: &Path, (file, old, new): Edit) -> Result<tempfile::TempDir> {
    let copy = tempfile::tempdir()?;
    let mut found = false;
    for path in relative_sources(from)? {
        let mut text = fs::read_to_string(from.join(&path))?;
        if path.file_stem().is_some_and(|stem| stem == file) {
            found = text.contains(old);
            text = text.replacen(old, new, 1);
        }
        let to = copy.path().join(&path);
        fs::create_dir_all(to.parent().unwrap_or(copy.path()))?;
        fs::write(to, text)?;
    }
    ensure!(found, "{file}.aidl has no `{old}` to be replaced");
    Ok(copy)
}
