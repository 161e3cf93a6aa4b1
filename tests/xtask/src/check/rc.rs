//! `check-rc`: init .rc files against the grammar of AOSP's init.

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use guest::rc::Parser;

use crate::paths;

/// Checks each file on its own (they lie in different images); all mistakes are printed.
pub fn run(files: &[PathBuf]) -> Result<()> {
    let files = if files.is_empty() {
        own()?
    } else {
        files.to_vec()
    };
    let mut mistakes = 0;
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let mut parser = Parser::new();
        parser.file(&file.display().to_string(), &text);
        match parser.finish() {
            Ok(script) => println!(
                "{}: {} services, {} actions",
                file.display(),
                script.services.len(),
                script.actions.len()
            ),
            Err(diagnostics) => {
                mistakes += diagnostics.len();
                diagnostics.iter().for_each(|d| println!("{d}"));
            }
        }
    }
    match mistakes {
        0 if files.is_empty() => bail!("no file to check"),
        0 => Ok(()),
        n => bail!("{n} mistakes"),
    }
}

fn own() -> Result<Vec<PathBuf>> {
    let directory = paths::root().join("rc");
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "rc"));
    files.sort();
    Ok(files)
}
