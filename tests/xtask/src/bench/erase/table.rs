//! The chunk table of the kernel mailing list's thread, in virtual time.
//!
//! The product erases 22 GiB on the card model, once for each chunk size. Only the first and the
//! last row of the model are fitted to the thread's times; the rows between are predictions beside
//! what was measured there. Counts are exact, seconds are the model's.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{anyhow, ensure, Result};
use blockd::reset::request::Request;
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::{Card, Config, Fields, Timing};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, Pattern};
use serde_json::{json, Value};

/// Sectors of an erase group.
const GROUP: u64 = 1024;
/// Bytes of an erase group.
pub const GROUP_BYTES: u64 = GROUP * 512;
/// The thread's range: 22,528 MiB.
pub const GROUPS: u64 = 45_056;

/// One row: groups a command (0 = all), and the seconds that the thread measured, rounded as they
/// were there. The first three include 6 to 10 s of mkfs.
const ROWS: [(u64, f64); 5] = [(1, 1200.0), (32, 60.0), (128, 30.0), (8191, 2.0), (0, 1.4)];

/// Erases once for each row.
///
/// # Errors
/// A reset fails, or a count is not what it must be.
pub fn rows() -> Result<Vec<Value>> {
    ROWS.iter()
        .map(|(groups, measured)| row(*groups, *measured))
        .collect()
}

/// A machine with the thread's card and nothing on it but the range.
pub fn machine() -> Result<Machine> {
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
    Machine::new(card, &table).map_err(|e| anyhow!("the card: {e}"))
}

fn row(groups: u64, measured: f64) -> Result<Value> {
    let machine = machine()?;
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
    let reset = report.elapsed.as_secs_f64();
    Ok(json!({
        "where": "in process",
        "method": if groups == 0 { "blockd" } else { "split" },
        "range_bytes": GROUPS * GROUP_BYTES,
        "chunk_groups": if groups == 0 { GROUPS } else { groups },
        "cmd38": log.count(38),
        "multi_cmd_ioctls": machine.journal().calls.multi_cmd_ioctls,
        "modelled_seconds": log.busy_of(38).as_secs_f64(),
        "reset_modelled_seconds": reset,
        "seed_seconds": measured,
        "fitted": groups == 1 || groups == 0,
        "wall_seconds": host.as_secs_f64(),
    }))
}
