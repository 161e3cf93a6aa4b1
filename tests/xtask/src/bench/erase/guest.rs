//! The three ways to erase one range through a real kernel: blockd, BLKSECDISCARD by util-linux's
//! `blkdiscard --secure`, `mmc erase secure-erase`. The card has no delays; seconds are those that the
//! same commands take on the card of the thread.

use std::time::Duration;

use anyhow::{ensure, Result};
use emmc::card::{argument, Timing};
use serde_json::{json, Value};

use super::table::GROUP_BYTES;
use crate::card::{self, USERDATA_GROUPS};
use crate::demo::reset::{self, Findings};
use crate::vm::setup::Equipment;
use crate::vm::tools;

/// The method, the mark of its stretch, and the name in the guest's line.
const METHODS: [(&str, &str, &str); 3] = [
    ("blockd", "blockd", "blockd"),
    ("blksecdiscard", "kernel", "blkdiscard"),
    ("mmc-utils", "mmc-utils", "mmc-utils"),
];

/// Bytes that each of them erases.
pub fn range_bytes() -> u64 {
    USERDATA_GROUPS * GROUP_BYTES
}

/// Boots and measures; one row a method.
pub fn rows(equipment: &Equipment) -> Result<Vec<Value>> {
    let card = card::with(card::PARTITIONS, Timing::zero())?;
    let findings = reset::boot_with(
        equipment,
        "erase-bench",
        card,
        |machine| {
            tools::add(
                &mut machine.tree,
                &equipment.tools,
                &[tools::MMC, tools::BLKDISCARD],
            )
        },
        |_| (),
    )?;
    METHODS
        .iter()
        .map(|(method, mark, line)| row(&findings, method, mark, line))
        .collect()
}

fn row(findings: &Findings, method: &str, mark: &str, line: &str) -> Result<Value> {
    let phase = findings.phase(mark)?;
    let erases = phase.log.erases(argument::SECURE_ERASE);
    ensure!(
        erases.commands == phase.log.count(38) && erases.commands > 0,
        "{method}: {} CMD38, {} of them secure erases",
        phase.log.count(38),
        erases.commands
    );
    let groups = erases.sectors * 512 / GROUP_BYTES;
    ensure!(
        groups == USERDATA_GROUPS,
        "{method}: {groups} groups, not {USERDATA_GROUPS}"
    );
    // Others only erase; of ours, the erase is one step of several.
    let line = findings.line("bench", line)?;
    let (seconds, erase) = (&line["seconds"], erase_seconds(&line["steps"]));
    let timing = Timing::seed_card();
    let micros = erases.commands * timing.erase_us + groups * timing.erase_group_us;
    Ok(json!({
        "where": "guest",
        "method": method,
        "range_bytes": range_bytes(),
        "chunk_groups": groups.div_ceil(erases.commands),
        "cmd38": erases.commands,
        "modelled_seconds": Duration::from_micros(micros).as_secs_f64(),
        "seed_seconds": null,
        "wall_seconds": seconds,
        "erase_wall_seconds": erase.map_or(seconds.clone(), Value::from),
    }))
}

/// Seconds of the step `erase` in a report's steps.
fn erase_seconds(steps: &Value) -> Option<f64> {
    let steps = steps.as_array()?.iter();
    let micros = steps.filter(|s| s["step"] == "erase").map(|s| &s["micros"]);
    Some(micros.filter_map(Value::as_f64).sum::<f64>() / 1e6)
}
