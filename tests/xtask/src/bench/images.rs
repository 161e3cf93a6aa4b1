//! `bench images`: attaching files, ours beside what others do, on this machine, in the guest and
//! in the guest whose grace periods are as long as a phone's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde_json::{json, Value};

use crate::demo::images::SLOW_RCU;
use crate::vm::cpio::Content;
use crate::vm::machine::{Event, Machine};
use crate::vm::setup::{self, Equipment};
use crate::vm::Mode;
use crate::{binaries, images, paths, process};

/// The whole of a guest's run: the classic sequence takes 9 s a round of forty in the slow one.
const GUEST_TIMEOUT: Duration = Duration::from_secs(1200);
/// Where the bench lies in the guest.
const PROGRAM: &str = "system/bin/blockd-bench";
/// What the guests that are measured are called.
const GUEST: &str = "guest";
const SLOW_GUEST: &str = "guest-slow-rcu";
/// What a second number of rounds is for: those of what takes seconds.
const ROUNDS: [&str; 4] = ["--rounds", "15", "--slow-rounds", "3"];

/// Runs it. With `json` the rows are the last line of standard output.
///
/// # Errors
/// No place could be measured, or one that was asked for by name.
pub fn run(counts: &[usize], places: &[String], json: bool, in_process: bool) -> Result<()> {
    let all: &[&str] = match in_process {
        true => &["host"],
        false => &["host", GUEST, SLOW_GUEST],
    };
    let asked: Vec<&str> = match places {
        [] => all.to_vec(),
        _ => places.iter().map(String::as_str).collect(),
    };
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    let counts = counts.join(",");
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for place in asked {
        let result = match place {
            "host" => on_host(&counts),
            GUEST | SLOW_GUEST => in_guest(place, &counts),
            other => bail!("there is no place `{other}`; there are: host, {GUEST}, {SLOW_GUEST}"),
        };
        match result {
            Ok(new) => rows.extend(new),
            Err(error) if places.is_empty() => {
                eprintln!("{place} is not measured: {error:#}");
                missing.push(json!({"where": place, "reason": format!("{error:#}")}));
            }
            Err(error) => return Err(error.context(place.to_owned())),
        }
    }
    if rows.is_empty() {
        bail!("nothing could be measured");
    }
    if json {
        println!(
            "{}",
            json!({"bench": "images", "rows": rows, "missing": missing})
        );
    } else {
        print!("{}", table(&rows));
    }
    Ok(())
}

/// On a disk's file system and in memory, where attaching waits for no disk.
fn on_host(counts: &str) -> Result<Vec<Value>> {
    let programs = binaries::programs()?;
    let disk = paths::target().join("bench");
    fs::create_dir_all(&disk)?;
    let mut rows = Vec::new();
    for folder in [disk, PathBuf::from("/dev/shm")] {
        let mut bench = Command::new(programs.join("blockd-bench"));
        bench.args(["images", "--where", "host", "--n", counts]);
        bench.args(ROUNDS).arg("--folder").arg(&folder);
        bench.arg("--blockd").arg(programs.join("blockd"));
        rows.extend(lines(&process::capture(&mut bench)?)?);
    }
    Ok(rows)
}

fn lines(text: &str) -> Result<Vec<Value>> {
    let parse = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
    text.lines().map(parse).collect()
}

fn in_guest(place: &str, counts: &str) -> Result<Vec<Value>> {
    let equipment = setup::all()?;
    let mut machine = guest(&equipment, place, counts)?;
    if place == SLOW_GUEST {
        machine.parameters.push(SLOW_RCU.to_owned());
    }
    let mut rows = Vec::new();
    machine.run(|event| {
        if let Event::Line(line) = event {
            eprintln!("{}", line["out"]);
            rows.push(line["out"].clone());
        }
        Ok(())
    })?;
    Ok(rows)
}

/// The guest with the bench, a disk for its files, and a clock that sees no other load.
fn guest(equipment: &Equipment, place: &str, counts: &str) -> Result<Machine> {
    let mut machine = Machine::new(equipment, "program", Mode::System)?;
    machine.timeout = GUEST_TIMEOUT;
    machine.counted_clock = true;
    machine
        .tree
        .program(PROGRAM, &equipment.programs.join("blockd-bench"))?;
    let program = Path::new("/").join(PROGRAM);
    let mut words = vec![program.to_string_lossy().into_owned()];
    let arguments = ["images", "--where", place, "--n", counts];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    let arguments = ["--folder", "/data", "--binder", "--trace"];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    words.extend(["--blockd", "/system/bin/blockd"].map(str::to_owned));
    words.extend(ROUNDS.map(str::to_owned));
    let command = serde_json::to_vec(&words)?;
    machine
        .tree
        .add("program.json", 0o644, Content::File(command));
    machine.disks.push(images::disk()?.path);
    let wait = "blockd.wait=/dev/block/vda".to_owned();
    machine.parameters.push(wait);
    Ok(machine)
}

/// The rows with what each is to its floor.
fn table(rows: &[Value]) -> String {
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let group = |row: &Value| format!("{} {} {}", row["where"], row["backing"], row["n"]);
    let floors: BTreeMap<String, f64> = rows
        .iter()
        .filter(|row| row["strategy"] == "floor")
        .map(|row| (group(row), number(row, "median_ms")))
        .collect();
    let mut text = format!(
        "{:<15} {:<6} {:>4} {:>7}  {:<24} {:>10} {:>10} {:>9} {:>8}\n",
        "where", "files", "n", "threads", "strategy", "median ms", "p95 ms", "to floor", "freezes"
    );
    for row in rows {
        let name = match row["over"].as_str() {
            Some(over) => format!("{} ({over})", row["strategy"].as_str().unwrap_or("?")),
            None => row["strategy"].as_str().unwrap_or("?").to_owned(),
        };
        let floor = floors.get(&group(row)).copied().unwrap_or(f64::NAN);
        text += &format!(
            "{:<15} {:<6} {:>4} {:>7}  {:<24} {:>10.3} {:>10.3} {:>9.2} {:>8}{}\n",
            row["where"].as_str().unwrap_or("?"),
            row["backing"].as_str().unwrap_or("?"),
            row["n"].to_string(),
            row["threads"].to_string(),
            name,
            number(row, "median_ms"),
            number(row, "p95_ms"),
            number(row, "median_ms") / floor,
            row["freezes"]
                .as_u64()
                .map_or("-".to_owned(), |n| n.to_string()),
            if row["noisy"] == true { "  noisy" } else { "" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_with_their_own_floor() {
        let row = |strategy: &str, place: &str, median: f64| {
            json!({"where": place, "backing": "ext4", "n": 40, "threads": 1, "strategy": strategy,
                   "over": null, "median_ms": median, "p95_ms": median, "freezes": 0, "noisy": false})
        };
        let rows = [
            row("floor", "host", 2.0),
            row("floor", "guest", 4.0),
            row("classic", "guest", 40.0),
        ];
        let text = table(&rows);
        let last = text.lines().last().unwrap();
        assert!(last.contains(" 10.00 "), "{text}");
    }
}
