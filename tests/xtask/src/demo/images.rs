//! The images' half: forty APEX files on a disk, in a guest whose queue freezes are slow.

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use crate::images;
use crate::vm::cpio::Content;
use crate::vm::machine::Machine;
use crate::vm::setup::Equipment;
use crate::vm::Mode;

/// Makes every wait for a grace period cost some 70 ms, as on a phone, and nothing else.
pub const SLOW_RCU: &str = "rcutree.jiffies_till_first_fqs=15 rcutree.jiffies_till_next_fqs=15";
/// The classic attach that the counter must see freezes at least this often.
const CLASSIC_FREEZES: u64 = 2;

/// Boots the system with the disk and runs the scenario. Returns the guest's lines and the
/// run's time, seconds.
pub fn boot(equipment: &Equipment) -> Result<(Vec<Value>, f64)> {
    let disk = images::disk()?;
    let mut machine = Machine::new(equipment, "images", Mode::System)?;
    machine.tree.add(
        "images.json",
        0o644,
        Content::File(serde_json::to_vec(&disk.list)?),
    );
    machine.disks.push(disk.path);
    machine.counted_clock = true;
    machine.parameters.push(SLOW_RCU.to_owned());
    machine
        .parameters
        .push("blockd.wait=/dev/block/vda".to_owned());
    let outcome = machine.run(|_| Ok(()))?;
    Ok((outcome.lines, outcome.elapsed.as_secs_f64()))
}

/// The JSON of the images' half.
pub fn result(lines: &[Value]) -> Result<Value> {
    let rounds =
        |name: &str| -> Vec<&Value> { lines.iter().filter(|line| line["round"] == name).collect() };
    let one = |name: &str| -> Result<&Value> {
        rounds(name)
            .first()
            .copied()
            .with_context(|| format!("no round {name}"))
    };
    let seen = one("counter")?["freezes"].as_u64().unwrap_or(0);
    ensure!(
        seen >= CLASSIC_FREEZES,
        "the freeze counter saw {seen} freezes in a classic attach: it counts nothing"
    );
    let warm = rounds("warm");
    let cold = one("cold")?;
    let classic = one("classic")?;
    let number = |value: &Value, key: &str| {
        value[key]
            .as_u64()
            .with_context(|| format!("no {key} in {value}"))
    };
    let mut micros = warm
        .iter()
        .map(|round| number(round, "micros"))
        .collect::<Result<Vec<_>>>()?;
    micros.sort_unstable();
    let median = micros.get(micros.len() / 2).context("no warm round")?;
    let total = |key: &str| -> Result<u64> {
        warm.iter()
            .map(|round| number(round, key))
            .sum::<Result<u64>>()
    };
    let waits = |round: &&Value| -> u64 {
        let counts = round["waits"].as_object();
        counts
            .into_iter()
            .flatten()
            .filter_map(|(_, n)| n.as_u64())
            .sum()
    };
    let attached = warm
        .iter()
        .copied()
        .chain([cold])
        .map(|round| number(round, "attached"));
    let attached = attached.collect::<Result<Vec<_>>>()?;
    let millis = |micros: u64| micros as f64 / 1000.0;
    Ok(json!({
        "attached": attached.iter().min(),
        "verified": warm[0]["verified"],
        "queue_freezes": total("freezes")?,
        "grace_period_waits": warm.iter().map(waits).sum::<u64>(),
        "clock": "the guest's, 2 ns an instruction",
        "milliseconds": millis(*median),
        "milliseconds_best": millis(micros[0]),
        "milliseconds_cold": millis(number(cold, "micros")?),
        "queue_freezes_cold": number(cold, "freezes")?,
        "classic_milliseconds": millis(number(classic, "micros")?),
        "classic_queue_freezes": number(classic, "freezes")?,
    }))
}
