//! `bench erase`: the chunk table of the kernel mailing list's thread, in virtual time.
//!
//! The product erases 22 GiB on the card model, once for each chunk size. Only the first and the
//! last row of the model are fitted to the thread's times; the rows between are predictions beside
//! what was measured there. Counts are exact, seconds are the model's.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{anyhow, ensure, Context, Result};
use blockd::reset::request::Request;
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::{Card, Config, Fields, Timing};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, Pattern};
use serde_json::{json, Value};

/// Sectors and bytes of an erase group.
const GROUP: u64 = 1024;
const GROUP_BYTES: u64 = GROUP * 512;
/// The thread's range: 22,528 MiB.
const GROUPS: u64 = 45_056;

/// One row: groups a command, and what the thread measured. The first three include 6 to 10 s of
/// mkfs.
const ROWS: [(u64, &str); 5] = [
    (1, "~20 min"),
    (32, "~1 min"),
    (128, "~30 s"),
    (8191, "2 s + ~8 s mkfs"),
    (0, "1.4 s"),
];

/// Runs it. With `json` the rows are the last line of standard output.
///
/// # Errors
/// A reset fails, or a count is not what it must be.
pub fn run(json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for (groups, measured) in ROWS {
        rows.push(row(groups, measured)?);
    }
    if json {
        println!("{}", json!({"bench": "erase", "rows": rows}));
        return Ok(());
    }
    println!("22 GiB in groups of 512 KiB; fitted to the first and last row only\n");
    println!("groups/command  commands  modelled s  measured then     host s");
    for row in &rows {
        println!(
            "{:>14}  {:>8}  {:>10.1}  {:<16}  {:>6.2}",
            match row["groups"].as_u64() {
                Some(0) => "all".to_owned(),
                groups => groups.unwrap_or_default().to_string(),
            },
            row["cmd38"],
            row["modelled_seconds"].as_f64().unwrap_or_default(),
            row["measured"].as_str().unwrap_or_default(),
            row["host_seconds"].as_f64().unwrap_or_default(),
        );
    }
    Ok(())
}

fn row(groups: u64, measured: &str) -> Result<Value> {
    let sectors = 24 << 21;
    let mut config = Config::from(Fields {
        sectors: u32::try_from(sectors)?,
        sec_feature_support: 0x05,
        ..Fields::default()
    });
    config.timing = Timing::seed_card();
    let store = MemStore::with_pattern(sectors, Pattern { seed: 1 });
    let card = Card::new(config, Box::new(store))?;
    let table = [Partition::new("userdata", GROUP, GROUPS * GROUP)];
    let machine = Machine::new(card, &table).map_err(|e| anyhow!("the card: {e}"))?;
    let request = Request {
        max_chunk: Bytes(groups * GROUP_BYTES),
        ..Request::new(&["userdata"])
    };
    let begin = Instant::now();
    let report = Arc::new(Reset::new(Arc::new(machine.clone())))
        .run(&request, None)
        .map_err(|failure| anyhow!("{groups} groups: {failure}"))?;
    let host = begin.elapsed();
    let log = machine.log();
    let expected = match groups {
        0 => 1,
        groups => GROUPS.div_ceil(groups),
    };
    ensure!(
        log.count(38) == expected,
        "{} x CMD38 for {groups} groups",
        log.count(38)
    );
    let target = report.targets.first().context("no target")?;
    let erase = target.erase_time.as_secs_f64();
    Ok(json!({
        "where": "in process",
        "groups": groups,
        "cmd38": log.count(38),
        "multi_cmd_ioctls": machine.journal().calls.multi_cmd_ioctls,
        "modelled_seconds": log.busy_of(38).as_secs_f64(),
        "reset_modelled_seconds": report.elapsed.as_secs_f64(),
        "erase_step_seconds": erase,
        "measured": measured,
        "fitted": groups == 1 || groups == 0,
        "host_seconds": host.as_secs_f64(),
    }))
}
