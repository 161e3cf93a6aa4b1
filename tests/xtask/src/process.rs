//! Running other programs with errors that say what was run and what it answered.

use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

/// This many lines of a failed program's messages are shown.
const SHOWN_LINES: usize = 30;

/// Runs a program to its end; its standard error is kept and shown if it fails.
/// Returns its standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let text = describe(command);
    let result = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{text}`"))?;
    if !result.status.success() {
        let messages = String::from_utf8_lossy(&result.stderr).into_owned()
            + &String::from_utf8_lossy(&result.stdout);
        bail!(
            "`{text}` failed ({}):\n{}",
            result.status,
            tail(&messages, SHOWN_LINES)
        );
    }
    Ok(result.stdout)
}

/// As [`output`], as text.
pub fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&output(command)?).into_owned())
}

/// Runs a program to its end; its messages go to the terminal. Returns its standard output.
pub fn capture(command: &mut Command) -> Result<String> {
    let text = describe(command);
    let result = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{text}`"))?;
    if !result.status.success() {
        bail!("`{text}` failed ({})", result.status);
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Runs a program to its end; its messages go to the terminal.
pub fn run(command: &mut Command) -> Result<()> {
    let text = describe(command);
    // Standard output is for results only.
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot run `{text}`"))?;
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
