//! Random ranges on random cards: inside every byte is gone, outside none has changed. Judged by a scan
//! of the whole medium, not by what blockd says. The card rounds addresses to its erase groups, as
//! JEDEC has it.

use super::layout::plain_fields;
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::device::{Access, Block, Command, Mmc, Storage, Sysfs};
use blockd::reset::canary::spread;
use blockd::reset::request::Request;
use blockd::reset::Reset;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Config, Csd};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, NamedRange, Pattern};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Cases in all, and of each ragged class at least.
const CASES: u64 = 10_000;
const CLASS: u64 = CASES / 5;
/// Of the other classes at least.
const RARE: u64 = 200;
/// The workers share the cases.
const WORKERS: u64 = 2;

/// SEC_FEATURE_SUPPORT: nothing, secure erase, trim, both, sanitize besides.
const FEATURES: [u8; 5] = [0, 0x01, 0x10, 0x11, 0x55];
/// Of a card: 1 and 1.5 GiB by bytes; 3, 6 and 32 GiB and nearly 2 TiB by sectors.
const SECTORS: [u32; 6] = [
    2 << 20,
    3 << 20,
    6 << 20,
    12 << 20,
    64 << 20,
    u32::MAX - 1023,
];

/// The cases. Pure computation: minutes on the guest's emulated processor.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::random_ranges_are_erased_exactly", all).needs(&[Need::Host]),
        Case::new("reset::widened_edges_fail_the_range_suite", widened).needs(&[Need::Host]),
    ]
}

/// Where a range lies on its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Aligned,
    Head,
    Tail,
    Both,
    Short,
}

/// Numbers that are the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = spread(self.0);
        self.0 % limit
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// A card and what is erased of it.
#[derive(Debug)]
struct Layout {
    fields: Fields,
    csd: Csd,
    group: u64,
    class: Class,
    /// First sector and length of each range, apart from each other or side by side.
    ranges: Vec<(u64, u64)>,
}

impl Layout {
    fn draw(number: u64) -> Layout {
        let mut draw = Draw(0x5eed ^ number << 20);
        // By the CSD (ERASE_GROUP_DEF 0, cards before 4.3) one case in eight; large groups are slow
        // to overwrite, so that they are rarer.
        let old = draw.below(8) == 0;
        let large = draw.below(25) == 0;
        let units = if large {
            draw.of(&[8, 16, 32])
        } else {
            draw.of(&[1, 1, 2, 4])
        };
        let csd = Csd {
            erase_grp_mult: draw.of(&[15, 31]),
            ..Csd::default()
        };
        let fields = Fields {
            sectors: draw.of(&SECTORS),
            rev: if old { 2 } else { 8 },
            sec_feature_support: draw.of(&FEATURES),
            hc_erase_grp_size: units,
            erased_mem_cont: draw.below(2) as u8,
            cache_size_kibit: if old { 0 } else { 32768 },
            ..plain_fields()
        };
        let group = if old {
            csd.group_sectors()
        } else {
            u64::from(units) * 1024
        };
        let class = [Class::Head, Class::Tail, Class::Both, Class::Short]
            .into_iter()
            .cycle()
            .nth((number % 9) as usize)
            .filter(|_| number % 9 < 8)
            .unwrap_or(Class::Aligned);
        let count = if draw.below(4) == 0 {
            2 + draw.below(2)
        } else {
            1
        };
        let mut ranges = Vec::new();
        // Room for all of them, in front of the card's last groups now and then.
        let total = u64::from(fields.sectors) / group;
        let most = (total / (4 * count)).min(20);
        let room = count * (most + 4) * group;
        let from = match draw.below(4) {
            0 => u64::from(fields.sectors) / group * group - room,
            _ => draw.below((u64::from(fields.sectors) - room) / group - 1) * group + group,
        };
        let mut at = from;
        for _ in 0..count {
            let (first, length) = range(&mut draw, class, at, (group, most));
            ranges.push((first, length));
            // Side by side, or with something in between.
            at = first + length + draw.of(&[0, 1]) * (1 + draw.below(group));
            at = at.next_multiple_of(if class == Class::Aligned { group } else { 1 });
        }
        Layout {
            fields,
            csd,
            group,
            class,
            ranges,
        }
    }

    fn machine(&self) -> Result<Machine, String> {
        let config = Config {
            csd: self.csd,
            ..self.fields.into()
        };
        let sectors = self.fields.sectors.into();
        let store = MemStore::with_pattern(sectors, Pattern { seed: 11 });
        let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
        let table: Vec<Partition> = NAMES
            .iter()
            .zip(&self.ranges)
            .map(|(name, (start, length))| Partition::new(name, *start, *length))
            .collect();
        Machine::new(card, &table).map_err(|e| e.to_string())
    }

    fn request(&self) -> Request {
        Request::new(&NAMES[..self.ranges.len()])
    }

    /// Sectors that still hold what they held inside, and that do not outside.
    fn wrong(&self, machine: &Machine) -> Result<(u64, u64), String> {
        let mut named = Vec::new();
        let mut at = 0;
        for (start, length) in &self.ranges {
            named.push(NamedRange::new("outside", at, start - at));
            named.push(NamedRange::new("inside", *start, *length));
            at = start + length;
        }
        named.push(NamedRange::new(
            "outside",
            at,
            u64::from(self.fields.sectors) - at,
        ));
        let report = machine.report(&named).map_err(|e| e.to_string())?;
        let (mut left, mut changed) = (0, 0);
        for found in &report.scan.ranges {
            let sectors = found.range.sectors;
            match found.range.name.as_str() {
                "inside" => left += sectors - found.erased + found.dirty,
                _ => changed += sectors - found.pattern + found.dirty,
            }
        }
        Ok((left, changed))
    }
}

const NAMES: [&str; 3] = ["userdata", "cache", "metadata"];

/// A range of `class` at `at` or behind it, of at most `most` whole groups.
fn range(draw: &mut Draw, class: Class, at: u64, (group, most): (u64, u64)) -> (u64, u64) {
    let next = at.next_multiple_of(group);
    let ragged = |draw: &mut Draw| 1 + draw.below(group - 1);
    let groups = (1 + draw.below(most)) * group;
    match class {
        Class::Aligned => (next, groups),
        Class::Head => {
            let head = ragged(draw);
            (next + group - head, head + groups)
        }
        Class::Tail => (next, groups + ragged(draw)),
        Class::Both => {
            let head = ragged(draw);
            (next + group - head, head + groups + ragged(draw))
        }
        Class::Short => {
            let first = at + draw.below(group);
            (first, 1 + draw.below(group - 1))
        }
    }
}

/// What blockd said, and how many sectors were left inside and changed outside.
type Judge = fn(&Layout, Result<(), String>, (u64, u64)) -> Outcome;

/// Runs the cases; `storage` may break the machine. Returns how many there were of each kind, and how
/// many were wrong.
fn suite(
    cases: u64,
    storage: fn(Machine, u64) -> Arc<dyn Storage>,
    judge: Judge,
) -> Result<BTreeMap<String, u64>, String> {
    let work = |worker: u64| -> Result<BTreeMap<String, u64>, String> {
        let mut counts = BTreeMap::new();
        for number in (0..cases).filter(|n| n % WORKERS == worker) {
            let layout = Layout::draw(number);
            let machine = layout.machine().map_err(|e| format!("{layout:?}: {e}"))?;
            let reset = Arc::new(Reset::new(storage(machine.clone(), layout.group)));
            let result = reset.run(&layout.request(), None);
            let result = result.map(drop).map_err(|e| format!("{e:?}"));
            let wrong = layout.wrong(&machine)?;
            judge(&layout, result, wrong).map_err(|e| format!("case {number}, {layout:?}: {e}"))?;
            for kind in [
                format!("{:?}", layout.class),
                format!("group {} KiB", layout.group / 2),
                format!("card {} MiB", layout.fields.sectors / 2048),
                format!("targets {}", layout.ranges.len()),
                format!("features {:#04x}", layout.fields.sec_feature_support),
            ] {
                *counts.entry(kind).or_default() += 1;
            }
        }
        Ok(counts)
    };
    let halves: Vec<Result<BTreeMap<String, u64>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a worker panicked".to_owned())))
            .collect()
    });
    let mut counts = BTreeMap::new();
    for half in halves {
        for (kind, count) in half? {
            *counts.entry(kind).or_default() += count;
        }
    }
    Ok(counts)
}

fn all() -> Outcome {
    let counts = suite(
        CASES,
        |machine, _| Arc::new(machine),
        |_, result, wrong| {
            result?;
            if wrong == (0, 0) {
                return Ok(());
            }
            Err(format!(
                "{} sectors left inside, {} changed outside",
                wrong.0, wrong.1
            ))
        },
    )?;
    println!("random ranges: {counts:?}");
    for class in [Class::Head, Class::Tail, Class::Both, Class::Short] {
        let count = counts.get(&format!("{class:?}")).copied().unwrap_or(0);
        assert!(count >= CLASS, "{class:?}: {counts:?}");
    }
    assert!(
        counts.values().all(|count| *count >= RARE / 10),
        "{counts:?}"
    );
    assert!(counts.len() >= 20, "{counts:?}");
    Ok(())
}

/// The fault that the suite is there to find: an erase that begins one group earlier.
struct Widened {
    machine: Machine,
    group: u64,
}

struct WidenedMmc {
    mmc: Box<dyn Mmc>,
    /// Of an argument, in the card's units.
    group: u32,
}

impl Mmc for WidenedMmc {
    fn cmd(&self, command: &mut Command) -> Result<(), Errno> {
        self.mmc.cmd(command)
    }
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno> {
        for command in commands.iter_mut() {
            if command.index == Command::ERASE_GROUP_START {
                command.argument = command.argument.saturating_sub(self.group);
            }
        }
        self.mmc.multi_cmd(commands)
    }
    fn ext_csd(&self) -> Result<[u8; 512], Errno> {
        self.mmc.ext_csd()
    }
}

impl Storage for Widened {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        let bytes = self.machine.with_card(|card| card.sectors()) <= 4 << 20;
        let unit = if bytes { 512 } else { 1 };
        Ok(Box::new(WidenedMmc {
            mmc: self.machine.open_mmc(disk)?,
            group: (self.group * unit) as u32,
        }))
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        self.machine.open_block(name, access)
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

fn widened() -> Outcome {
    let counts = suite(
        450,
        |machine, group| Arc::new(Widened { machine, group }),
        |layout, _, (_, changed)| {
            let commands =
                layout.class != Class::Short || layout.fields.sec_feature_support & 0x11 == 0x11;
            if commands == (changed > 0) {
                return Ok(());
            }
            Err(format!("{changed} sectors changed outside"))
        },
    )?;
    assert!(counts["Aligned"] >= 40, "{counts:?}");
    Ok(())
}
