//! One run without a cut, one with: machine, bootloader, second boot, judgement.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};

use super::client::{self, Way};
use super::device::{self, Medium};
use super::watch::{Dice, Phase, Record, Watch};
use crate::vm::initramfs::Tree;
use crate::vm::setup::Equipment;

/// QEMU, killed, has let go of the card after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// How one cut ended.
#[derive(Debug)]
pub struct Finding {
    /// Where the power failed, for people.
    pub place: String,
    /// The phase of that place.
    pub phase: Phase,
    /// `resumed`, `not begun` (nothing was touched, the wipe was asked for once more), `done`
    /// (nothing was left to do), `lost`.
    pub after: &'static str,
    /// Why the reset is not complete.
    pub problem: Option<String>,
    /// What changed beside the targets.
    pub changed: Vec<String>,
    /// Sectors of the targets that hold what they held first.
    pub old_data: u64,
}

impl Finding {
    /// Completed, neighbours intact, nothing old left.
    pub fn good(&self) -> bool {
        self.problem.is_none() && self.changed.is_empty() && self.old_data == 0
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}", self.place, self.after);
        if let Some(problem) = &self.problem {
            text += &format!("; {problem}");
        }
        for name in &self.changed {
            text += &format!("; CHANGED: {name}");
        }
        if self.old_data > 0 {
            text += &format!("; {} sectors of old data", self.old_data);
        }
        text
    }
}

/// The suite: its equipment and what a run without a cut showed.
pub struct Suite<'a> {
    equipment: &'a Equipment,
    tree: Tree,
    seen: BTreeMap<Phase, u64>,
}

impl<'a> Suite<'a> {
    /// Runs the client once without a cut: the phases must all be there, and the kernel must send
    /// no erase after ours.
    pub fn new(equipment: &'a Equipment, way: Way) -> Result<Self> {
        let mut suite = Self {
            equipment,
            tree: client::tree(equipment)?,
            seen: BTreeMap::new(),
        };
        suite.seen = suite.whole(way).context("the run without a cut")?;
        let seen = suite.seen.iter();
        let seen: Vec<_> = seen.map(|(p, n)| format!("{} {n}", p.name())).collect();
        eprintln!("commands of a run without a cut: {}", seen.join(", "));
        for phase in Phase::ALL {
            ensure!(
                suite.seen.contains_key(&phase),
                "a run without a cut has no phase {}",
                phase.name()
            );
        }
        Ok(suite)
    }

    /// A run without a cut. Returns the card's commands by phase.
    pub fn whole(&self, way: Way) -> Result<BTreeMap<Phase, u64>> {
        let directory = tempfile::Builder::new().prefix("blockd-card-").tempdir()?;
        let server = device::serve(directory.path())?;
        let before = server.with_card(|card| Medium::read(card))?;
        let watch = Watch::new(device::layout(), None, Dice(0));
        let record = watch.record();
        server.with_card(|card| card.fail_by(Box::new(watch)));
        let boot = client::boot(self.equipment, &self.tree, "recovery", &server, way)?;
        let boot = boot.context("the power failed though nobody cut it")?;
        boot.check()?;
        let log = |name: &str| boot.logs.get(name).context("a mark is missing");
        let erases = device::layout().erases;
        ensure!(
            log("erase")?.count(38) == erases,
            "{} CMD38, not {erases}",
            log("erase")?.count(38)
        );
        for name in ["format", "mount"] {
            let late = log(name)?.count(38);
            ensure!(late == 0, "the kernel sent {late} CMD38 during {name}");
        }
        let after = Medium::read(&server.stop())?;
        let changed = after.changed(&before);
        ensure!(changed.is_empty(), "changed: {}", changed.join(", "));
        ensure!(after.old_data()? == 0, "old data is left");
        let seen = lock(&record).seen.clone();
        Ok(seen)
    }

    /// One cut in `phase`, and what follows. Of several cuts in a phase, each has a part of it:
    /// `part` is (number, of how many).
    pub fn cut(
        &self,
        phase: Phase,
        part: (u64, u64),
        way: Way,
        name: &str,
        seed: u64,
    ) -> Result<Finding> {
        let mut dice = Dice(seed);
        let seen = self.seen.get(&phase).copied().unwrap_or(1);
        let (number, parts) = part;
        let first = seen * number / parts;
        let nth = first + dice.below(seen * (number + 1) / parts - first);
        if let Some(finding) = self.cut_at(phase, nth, way, name, dice.clone())? {
            return Ok(finding);
        }
        // This run had fewer commands in its last phase than the one that was counted.
        let again = self.cut_at(phase, 0, way, name, dice)?;
        again.with_context(|| format!("no command of {} was seen", phase.name()))
    }

    /// `None` if the run ended before there was such a command.
    fn cut_at(
        &self,
        phase: Phase,
        nth: u64,
        way: Way,
        name: &str,
        dice: Dice,
    ) -> Result<Option<Finding>> {
        let directory = tempfile::Builder::new().prefix("blockd-card-").tempdir()?;
        let server = device::serve(directory.path())?;
        let before = server.with_card(|card| Medium::read(card))?;
        let watch = Watch::new(device::layout(), Some((phase, nth)), dice);
        let record = watch.record();
        server.with_card(|card| card.fail_by(Box::new(watch)));
        let boot = |way| client::boot(self.equipment, &self.tree, name, &server, way);
        if boot(way)?.is_some() {
            return Ok(None);
        }
        ensure!(
            server.wait_disconnected(PATIENCE),
            "QEMU is dead and holds the card still"
        );
        let cut = server.with_card(|card| {
            card.mains_back();
            Medium::read(card)
        })?;
        let (phase, place) = place(&lock(&record))?;
        let after = what_next(&cut)?;
        let second = match after {
            "lost" => Err(anyhow!("a part is erased, and no boot is told of it")),
            "done" => {
                let system = Way {
                    mount_only: true,
                    ..way
                };
                boot(system).and_then(|b| b.context("no power")?.mounted())
            }
            _ => boot(way).and_then(|b| b.context("no power")?.check()),
        };
        let mut problem = second.err().map(|e| format!("{e:#}"));
        let medium = Medium::read(&server.stop())?;
        if problem.is_none() && !medium.no_command() {
            problem = Some("a message for the bootloader is left".to_owned());
        }
        Ok(Some(Finding {
            place,
            phase,
            after,
            problem,
            changed: medium.changed(&before),
            old_data: medium.old_data()?,
        }))
    }
}

/// What the bootloader and a person make of the medium after a cut.
fn what_next(cut: &Medium) -> Result<&'static str> {
    Ok(if cut.boots_recovery() {
        "resumed"
    } else if cut.is_whole()? {
        "not begun"
    } else if cut.no_command() && cut.old_data()? == 0 && cut.is_formatted()? {
        "done"
    } else {
        "lost"
    })
}

fn place(record: &Record) -> Result<(Phase, String)> {
    let (phase, command, argument, moment) = record.cut.context("no cut")?;
    let text = format!(
        "{} at CMD{command} {argument:#010x}, {moment:?}",
        phase.name()
    );
    Ok((phase, text))
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(|e| e.into_inner())
}
