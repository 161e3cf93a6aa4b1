//! `report`: one page from the results of the benches and of `test latency-cuts`, for people who
//! decide about a device.

mod chart;
mod page;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use serde_json::Value;

/// The page's name in the directory.
const PAGE: &str = "report.html";

/// Writes the page into `out`; without `files` from the results (`*.json`) that lie there.
///
/// # Errors
/// There is no result, or one that nobody knows.
pub fn run(out: &Path, files: &[PathBuf]) -> Result<()> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let files = match files {
        [] => found(out)?,
        named => named.to_vec(),
    };
    ensure!(
        !files.is_empty(),
        "no results: `cargo xtask bench erase --json > {}/erase.json` makes one, as do the others",
        out.display()
    );
    let mut results = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let value = last_line(&text).with_context(|| file.display().to_string())?;
        let section = page::section(&value).with_context(|| {
            let shown = file.display();
            format!("{shown} is no result of `bench` or `test latency-cuts`")
        })?;
        results.push((section, value));
    }
    let path = out.join(PAGE);
    fs::write(&path, page::page(&results)).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}

fn found(out: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(out)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    Ok(files)
}

/// A result is the last line of what a task prints.
fn last_line(text: &str) -> Result<Value> {
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    Ok(serde_json::from_str(line.context("it is empty")?)?)
}
