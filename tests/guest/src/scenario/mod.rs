//! The scenarios: what the guest does once it is up. Each writes JSON lines to the host and
//! ends with a summary.

mod bench;
mod hello;
mod images;
mod latency;
mod port;
mod program;
mod recovery;
mod reset;
mod test;
mod tool;

use std::process::ExitCode;

use anyhow::{bail, Result};
use serde_json::json;

pub use port::Port;

/// Runs the scenario and writes the summary, which is there even if the scenario failed.
pub fn main(name: &str) -> ExitCode {
    let mut port = match Port::open() {
        Ok(port) => port,
        Err(e) => {
            eprintln!("scenario {name}: {e:#}");
            return ExitCode::FAILURE;
        }
    };
    let result = run(name, &mut port);
    let error = result.as_ref().err().map(|e| format!("{e:#}"));
    let summary = json!({"summary": {
        "scenario": name,
        "ok": result.is_ok(),
        "error": error,
        "tainted": port::tainted(),
    }});
    match port.send(&summary) {
        Ok(()) if result.is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The value of `blockd.KEY=` on the kernel's command line.
fn parameter(key: &str) -> Result<Option<String>> {
    let command_line = std::fs::read_to_string("/proc/cmdline")?;
    let mut words = command_line.split_whitespace();
    let found = words.find_map(|word| {
        word.strip_prefix("blockd.")?
            .strip_prefix(key)?
            .strip_prefix('=')
    });
    Ok(found.map(str::to_owned))
}

fn run(name: &str, port: &mut Port) -> Result<()> {
    match name {
        "erase-bench" => bench::run(port),
        "hello" => hello::run(port),
        "images" => images::run(port),
        "latency" => latency::run(port),
        "recovery" => recovery::run(port),
        "program" => program::run(port),
        "reset" => reset::run(port),
        "test" => test::run(port),
        "kernel-erase" => reset::kernel(port),
        _ => bail!("unknown scenario"),
    }
}
