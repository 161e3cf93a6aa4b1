//! `demo`: the two things that the product is for, done in a guest with a real kernel and judged
//! from outside.

pub mod images;
mod in_process;
pub mod reset;
mod targets;

use std::thread;
use std::time::Instant;

use anyhow::{anyhow, bail, Result};
use serde_json::{json, Value};

use crate::vm::setup::{self, Equipment};

/// Runs the demonstration. With `json` the findings are the last line of standard output; with
/// `in_process`, or where the guest cannot be set up, without a guest.
///
/// # Errors
/// The guest fails, or a value misses its target.
pub fn run(json: bool, in_process: bool) -> Result<()> {
    let equipment = if in_process { None } else { Some(setup::all()) };
    let mut result = match equipment {
        None => in_process::run()?,
        Some(Ok(equipment)) => in_guest(&equipment)?,
        Some(Err(e)) => {
            eprintln!("no guest: {e:#}");
            eprintln!("the same in this process, without kernel and binder:");
            in_process::run()?
        }
    };
    let not_measured = targets::not_measured(&result);
    if !not_measured.is_empty() {
        eprintln!(
            "not measured here, the guest can: {}",
            not_measured.join(", ")
        );
        result["not_measured"] = json!(not_measured);
    }
    report(&result, json)
}

fn in_guest(equipment: &Equipment) -> Result<Value> {
    let begin = Instant::now();
    eprintln!("booting recovery with a 4 GiB eMMC; erasing userdata and ragged through binder");
    eprintln!("beside it, the system with slow queue freezes; attaching 40 APEX files");
    // Side by side: neither result depends on how fast this machine is.
    let (findings, lines) = thread::scope(|scope| {
        let images = scope.spawn(|| images::boot(equipment));
        let findings = reset::boot(equipment, "reset", |_| Ok(()), |_| ());
        (findings, images.join())
    });
    let findings = findings?;
    let (lines, seconds) = lines.map_err(|_| anyhow!("a thread panicked"))??;
    eprintln!(
        "  recovery ran {:.1} s, the system {seconds:.1} s",
        findings.seconds
    );
    let result = json!({
        "transport": "binder",
        "reset": findings.reset("userdata")?,
        "ragged": findings.reset("ragged")?,
        "kernel_blksecdiscard": findings.kernel()?,
        "images": images::result(&lines)?,
    });
    eprintln!("demonstration: {:.1} s", begin.elapsed().as_secs_f64());
    Ok(result)
}

fn report(result: &Value, json: bool) -> Result<()> {
    let missed = targets::missed(result);
    if json {
        println!("{result}");
    } else {
        print!("{}", targets::text(result));
    }
    for line in &missed {
        eprintln!("MISSED: {line}");
    }
    match missed.len() {
        0 => Ok(()),
        n => bail!("{n} values miss their target"),
    }
}
