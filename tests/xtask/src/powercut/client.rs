//! One boot of the recovery client with a card.

use std::collections::BTreeMap;

use anyhow::{ensure, Context, Result};
use emmc::card::Log;
use emmc::server::Server;
use serde_json::Value;

use super::device::CHUNK_GROUPS;
use crate::vm::initramfs::Tree;
use crate::vm::machine::{Event, Machine};
use crate::vm::setup::Equipment;
use crate::vm::{tools, Mode};

/// The node that tells that the kernel has read the partition table.
const LAST_NODE: &str = "/dev/block/by-name/vendor";

/// How the client works.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// `exec` or `binder`.
    pub call: &'static str,
    /// userdata's file system.
    pub file_system: &'static str,
    /// The client writes its message for the bootloader when everything is erased already.
    pub late_marker: bool,
    /// Only mounts what was formatted: the system's boot.
    pub mount_only: bool,
}

impl Way {
    /// Every combination in turn.
    pub fn nth(n: usize) -> Self {
        Self {
            call: ["exec", "binder"][n % 2],
            file_system: ["f2fs", "ext4"][n / 2 % 2],
            late_marker: false,
            mount_only: false,
        }
    }
}

/// The guest's root, the same for every boot.
pub fn tree(equipment: &Equipment) -> Result<Tree> {
    let modules = ["crc32c_generic", "crc32_generic", "ext4", "f2fs"];
    let mut tree = Tree::lean(equipment, Mode::Recovery, &modules)?;
    let programs = [tools::MKE2FS, tools::MAKE_F2FS];
    tools::add(&mut tree, &equipment.tools, &programs)?;
    Ok(tree)
}

/// What a boot that was not cut brought.
#[derive(Debug)]
pub struct Boot {
    /// The client's lines.
    pub lines: Vec<Value>,
    /// The card's log, by stretch between two marks.
    pub logs: BTreeMap<String, Log>,
}

impl Boot {
    /// The value of `key` in the line that has it.
    pub fn line(&self, key: &str) -> Result<&Value> {
        let values = self.lines.iter().map(|line| &line[key]);
        let mut there = values.filter(|value| !value.is_null());
        there.next().with_context(|| format!("no line {key}"))
    }

    /// Fails unless the client did everything.
    pub fn check(&self) -> Result<()> {
        let command = &self.line("finished")?["command"];
        ensure!(command == "", "after finish the bootloader reads {command}");
        self.mounted()
    }

    /// Fails unless everything was mounted.
    pub fn mounted(&self) -> Result<()> {
        self.line("mounted").map(drop)
    }
}

/// Boots recovery and runs the client; `None` if the power failed on the way.
pub fn boot(
    equipment: &Equipment,
    tree: &Tree,
    name: &str,
    server: &Server,
    way: Way,
) -> Result<Option<Boot>> {
    let socket = server.socket();
    let mut machine = Machine::recovery(equipment, "recovery", name, tree.clone(), socket)?;
    let chunk = CHUNK_GROUPS * 512;
    machine.parameters.extend([
        format!("blockd.wait={LAST_NODE}"),
        format!("blockd.way={}", way.call),
        format!("blockd.fs={}", way.file_system),
        format!("blockd.chunk={chunk}K"),
    ]);
    if way.late_marker {
        machine
            .parameters
            .push("blockd.broken=late-marker".to_owned());
    }
    if way.mount_only {
        machine.parameters.push("blockd.mount=only".to_owned());
    }
    let mut logs = BTreeMap::new();
    let cut = || server.with_card(|card| card.mains_failed());
    let outcome = machine.run_unless(&cut, |event| {
        if let Event::Mark(mark) = event {
            match mark.split_once(' ') {
                Some(("begin", _)) => server.with_card(|card| card.log.reset()),
                Some(("end", name)) => {
                    logs.insert(name.to_owned(), server.with_card(|card| card.log.clone()));
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    Ok(Some(Boot {
        lines: outcome.lines,
        logs,
    }))
}
