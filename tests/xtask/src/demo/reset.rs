//! The reset's half: a card behind QEMU, judged by the card's own log and a scan of its medium.

use std::collections::BTreeMap;

use anyhow::{ensure, Context, Result};
use emmc::card::{argument, Card, Log};
use emmc::server::Server;
use serde_json::{json, Value};

use crate::card::{self, Census};
use crate::vm::cpio::Content;
use crate::vm::machine::{Event, Machine};
use crate::vm::setup::Equipment;
use crate::vm::Mode;

/// The node that tells that the kernel has read the partition table.
const LAST_NODE: &str = "/dev/block/by-name/cache";

/// Where a product allows more partitions to be erased: `ragged` is none that devices have.
const TARGETS_FILE: &str = "system/etc/blockd/targets";

/// What the card and the medium say about the time between two marks.
#[derive(Debug)]
pub struct Phase {
    /// Every command.
    pub log: Log,
    /// The medium before.
    pub before: Census,
    /// The medium after.
    pub after: Census,
}

/// What the boot brought.
#[derive(Debug)]
pub struct Findings {
    /// By name of the phase.
    pub phases: BTreeMap<String, Phase>,
    /// The guest's lines.
    pub lines: Vec<Value>,
    /// The run's time, seconds.
    pub seconds: f64,
}

/// Boots recovery with the card and runs a scenario; `prepare` may change the machine, `line`
/// is told of every finding when it comes.
pub fn boot(
    equipment: &Equipment,
    scenario: &str,
    prepare: impl FnOnce(&mut Machine) -> Result<()>,
    line: impl FnMut(&Value),
) -> Result<Findings> {
    boot_with(equipment, scenario, card::new()?, prepare, line)
}

/// As [`boot`], with a card of the caller's that has the usual partitions.
pub fn boot_with(
    equipment: &Equipment,
    scenario: &str,
    card: Card,
    prepare: impl FnOnce(&mut Machine) -> Result<()>,
    mut line: impl FnMut(&Value),
) -> Result<Findings> {
    let directory = tempfile::Builder::new().prefix("blockd-card-").tempdir()?;
    let server = Server::start(card, &directory.path().join("card")).context("card server")?;
    let mut machine = Machine::with_card(equipment, scenario, Mode::Recovery, server.socket())?;
    machine.parameters.push(format!("blockd.wait={LAST_NODE}"));
    machine
        .tree
        .add(TARGETS_FILE, 0o644, Content::File(b"ragged\n".to_vec()));
    prepare(&mut machine)?;
    let mut phases = BTreeMap::new();
    let mut before = None;
    let outcome = machine.run(|event| {
        let mark = match event {
            Event::Line(value) => {
                line(value);
                return Ok(());
            }
            Event::Mark(mark) => mark,
        };
        match mark.split_once(' ') {
            Some(("begin", _)) => {
                before = Some(server.with_card(|card| {
                    let census = Census::take(card);
                    card.log.reset();
                    census
                })?);
            }
            Some(("end", name)) => {
                let (log, after) = server.with_card(|card| (card.log.clone(), Census::take(card)));
                let before = before.take().context("end without begin")?;
                let after = after?;
                phases.insert(name.to_owned(), Phase { log, before, after });
            }
            _ => {}
        }
        Ok(())
    })?;
    server.stop();
    Ok(Findings {
        phases,
        lines: outcome.lines,
        seconds: outcome.elapsed.as_secs_f64(),
    })
}

impl Findings {
    /// The phase of that name.
    pub fn phase(&self, name: &str) -> Result<&Phase> {
        self.phases
            .get(name)
            .with_context(|| format!("the guest never reached {name}"))
    }

    /// The value of `key` in the guest's line that has `name` there.
    pub fn line(&self, key: &str, name: &str) -> Result<&Value> {
        let line = self.lines.iter().find(|line| line[key] == name);
        line.with_context(|| format!("the guest sent no line with {key} {name}"))
    }

    /// The JSON of one reset.
    pub fn reset(&self, target: &str) -> Result<Value> {
        let phase = self.phase(target)?;
        let line = self.line("reset", target)?;
        let tool = &line["tool"];
        ensure!(
            tool["exit"] == 0,
            "blockctl failed: {} {}",
            tool["output"],
            tool["messages"]
        );
        let report = &tool["output"];
        let range = phase.after.range(target)?;
        let changed = phase.after.changed_beside(&phase.before, &[target]);
        for name in &changed {
            eprintln!("  CHANGED BESIDE THE TARGET: {name}");
        }
        let sum = |key: &str| -> u64 {
            let targets = report["targets"].as_array();
            targets
                .into_iter()
                .flatten()
                .filter_map(|t| t[key].as_u64())
                .sum()
        };
        Ok(json!({
            "cmd38": phase.log.count(38),
            "multi_cmd_ioctls": line["kernel"]["multi_cmd_ioctls"],
            "erased_bytes": sum("erased_bytes"),
            "edge_bytes": sum("overwritten_bytes"),
            "old_data_found": range.pattern > 0,
            "neighbours_intact": changed.is_empty(),
            "logical": report["logical"],
            "physical": report["physical"],
            "seconds": tool["seconds"],
            "modelled_seconds": phase.log.busy_of(38).as_secs_f64(),
        }))
    }

    /// The JSON of the kernel's own erase.
    pub fn kernel(&self) -> Result<Value> {
        let phase = self.phase("kernel")?;
        let erases = phase.log.erases(argument::SECURE_ERASE);
        ensure!(
            erases.commands == phase.log.count(38),
            "the kernel used other CMD38 arguments than secure erase"
        );
        Ok(json!({"cmd38": erases.commands}))
    }
}
