//! Power cuts, all of them: before each command of a run, and in the middle of each operation. After
//! each the machine boots again as a bootloader would have it: a marker in misc means recovery, which
//! runs the reset once more. What must hold: either nothing was touched and there is no marker, or
//! the marker is there and the next run completes; the neighbours never change.

use super::layout::{self, plain_fields, GROUP};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::device::{Access, Block, Mmc, Storage, Sysfs};
use blockd::reset::marker::{parse, Found, SECTOR};
use blockd::reset::request::{Marker, Request};
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Config, Timing};
use emmc::machine::{Cut, Machine, Partition};
use emmc::store::{MemStore, NamedRange, Pattern};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The cases. Pure computation: minutes on the guest's emulated processor, and nothing that it could
/// add.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::cuts_at_every_command_and_in_every_operation", all).needs(&[Need::Host]),
        Case::new("reset::a_late_marker_fails_the_cut_suite", late_marker).needs(&[Need::Host]),
    ]
}

/// A card and a range on it.
pub(super) struct Layout {
    pub name: &'static str,
    features: u8,
    start: u64,
    pub sectors: u64,
    chunk: u64,
}

pub(super) const LAYOUTS: [Layout; 4] = [
    Layout {
        name: "aligned",
        features: 0x05,
        start: 8 * GROUP,
        sectors: 12 * GROUP,
        chunk: 0,
    },
    Layout {
        name: "ragged",
        features: 0x05,
        start: 8 * GROUP + 72,
        sectors: 5 * GROUP,
        chunk: 0,
    },
    Layout {
        name: "trim, sanitize",
        features: 0x55,
        start: 8 * GROUP + 8,
        sectors: 4 * GROUP,
        chunk: 0,
    },
    Layout {
        name: "chunks",
        features: 0x05,
        start: 8 * GROUP,
        sectors: 12 * GROUP,
        chunk: 1,
    },
];

impl Layout {
    pub fn machine(&self) -> Result<Machine, String> {
        let fields = Fields {
            sectors: 1 << 21,
            sec_feature_support: self.features,
            ..plain_fields()
        };
        let config = Config {
            timing: Timing::seed_card(),
            // What a cut finds on the medium is a matter of luck.
            eviction_seed: Some(self.start),
            ..fields.into()
        };
        let mut store = MemStore::with_pattern(1 << 21, Pattern { seed: 3 });
        let misc = self.misc();
        // As on a phone: no message, no update.
        emmc::store::Store::write(&mut store, misc, &vec![0; 128 * SECTOR])
            .map_err(|e| e.to_string())?;
        let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
        let table = [
            Partition::new("userdata", self.start, self.sectors),
            Partition::new("misc", misc, GROUP),
        ];
        Machine::new(card, &table).map_err(|e| e.to_string())
    }

    fn misc(&self) -> u64 {
        self.start + self.sectors + 2 * GROUP
    }

    pub fn request(&self) -> Request {
        Request {
            marker: Marker::Misc,
            max_chunk: Bytes(self.chunk * GROUP * 512),
            ..Request::new(&["userdata"])
        }
    }

    /// Sectors of the range that hold the pattern, and that are erased; an error where anything
    /// outside it and misc has changed.
    pub fn scan(&self, machine: &Machine) -> Result<(u64, u64), String> {
        let (end, misc) = (self.start + self.sectors, self.misc());
        let capacity = machine.with_card(|card| card.sectors());
        let report = machine
            .report(&[
                NamedRange::new("before", 0, self.start),
                NamedRange::new("range", self.start, self.sectors),
                NamedRange::new("after", end, misc - end),
                NamedRange::new("rest", misc + 128, capacity - misc - 128),
            ])
            .map_err(|e| e.to_string())?;
        let ranges = &report.scan.ranges;
        for outside in [&ranges[0], &ranges[2], &ranges[3]] {
            if outside.pattern != outside.range.sectors {
                return Err(format!("outside the range: {outside:?}"));
            }
        }
        Ok((ranges[1].pattern, ranges[1].erased))
    }
}

/// How one cut ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// Nothing was touched, no marker.
    Untouched,
    /// The marker was there, the range whole: the second run did it all.
    MarkedOnly,
    /// The marker was there, the range half gone: the second run completed it.
    Completed,
    /// The cut came after the last command.
    Done,
}

/// Runs a reset that is cut, boots, does what a bootloader and recovery would do.
fn cut(
    layout: &Layout,
    at: Cut,
    storage: impl FnOnce(Machine) -> Arc<dyn Storage>,
) -> Result<End, String> {
    let machine = layout.machine()?;
    machine.cut_power(at);
    let result = Arc::new(Reset::new(storage(machine.clone()))).run(&layout.request(), None);
    if machine.powered() {
        return match result {
            Ok(_) => Ok(End::Done),
            Err(failure) => Err(format!("it failed with the power on: {failure:?}")),
        };
    }
    if result.is_ok() {
        return Err("success was said without power".to_owned());
    }
    machine.reboot().map_err(|e| e.to_string())?;
    let (pattern, _) = layout.scan(&machine)?;
    let whole = pattern == layout.sectors;
    match message(&machine)? {
        Found::Empty if whole => Ok(End::Untouched),
        Found::Empty => Err(format!(
            "data is gone ({pattern} of {} sectors left) and no marker says so",
            layout.sectors
        )),
        Found::Ours { .. } => {
            let reset = Arc::new(Reset::new(Arc::new(machine.clone())));
            let report = reset
                .run(&layout.request(), None)
                .map_err(|e| format!("the next run failed: {e:?}"))?;
            reset
                .finish(&report.token, None)
                .map_err(|e| e.to_string())?;
            match layout.scan(&machine)? {
                (0, erased) if erased == layout.sectors => {}
                (pattern, erased) => {
                    return Err(format!(
                        "after the next run: {pattern} old, {erased} erased"
                    ))
                }
            }
            if message(&machine)? != Found::Empty {
                return Err("the marker is still there after finish".to_owned());
            }
            Ok(if whole {
                End::MarkedOnly
            } else {
                End::Completed
            })
        }
        other => Err(format!("misc holds {other:?}")),
    }
}

pub(super) fn message(machine: &Machine) -> Result<Found, String> {
    layout::message(machine, "mmcblk0p2").map(|sector| parse(&sector))
}

/// Every moment to cut: before each command, and halfway into each busy phase.
fn moments(layout: &Layout) -> Result<Vec<Cut>, String> {
    let machine = layout.machine()?;
    machine.reset_logs();
    Arc::new(Reset::new(Arc::new(machine.clone())))
        .run(&layout.request(), None)
        .map_err(|e| format!("{}: {e:?}", layout.name))?;
    let log = machine.log();
    if log.dropped != 0 {
        return Err("the log is too small for this layout".to_owned());
    }
    let mut moments: Vec<Cut> = (1..=log.entries.len() as u64)
        .map(Cut::BeforeCommand)
        .collect();
    for entry in log.entries.iter().filter(|e| e.busy_us != 0) {
        let halfway = Duration::from_micros(entry.at_us + entry.busy_us / 2);
        moments.push(Cut::At(halfway));
    }
    Ok(moments)
}

fn all() -> Outcome {
    let mut ends: BTreeMap<End, u64> = BTreeMap::new();
    let mut total = 0;
    for layout in &LAYOUTS {
        for at in moments(layout)? {
            let end = cut(layout, at, |machine| Arc::new(machine))
                .map_err(|why| format!("{}, cut {at:?}: {why}", layout.name))?;
            *ends.entry(end).or_default() += 1;
            total += 1;
        }
    }
    let count = |end: End| ends.get(&end).copied().unwrap_or(0);
    assert!(total >= 2000, "{total} cuts: {ends:?}");
    for end in [End::Untouched, End::MarkedOnly, End::Completed] {
        assert!(count(end) >= 12, "{ends:?}");
    }
    assert!(count(End::Completed) >= 1000, "{ends:?}");
    Ok(())
}

/// A machine on which the marker reaches misc only when somebody reads the next sector: the fault
/// that the suite is there to find.
struct LateMarker {
    machine: Machine,
    held: Arc<Mutex<Option<Vec<u8>>>>,
}

struct LateBlock(Box<dyn Block>, Arc<Mutex<Option<Vec<u8>>>>);

impl Storage for LateMarker {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.machine.open_mmc(disk)
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        let block = self.machine.open_block(name, access)?;
        Ok(match access {
            Access::Update => Box::new(LateBlock(block, Arc::clone(&self.held))),
            _ => block,
        })
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

impl Block for LateBlock {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.0.read_at(offset, buffer)?;
        if let Some(held) = self.1.lock().expect("no panic").as_deref() {
            buffer.copy_from_slice(held);
        }
        Ok(())
    }
    fn write_at(&self, _: Bytes, data: &[u8]) -> Result<(), Errno> {
        *self.1.lock().expect("no panic") = Some(data.to_vec());
        Ok(())
    }
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn discard(&self, _: Bytes, _: Bytes, _: bool) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn flush_buffers(&self) -> Result<(), Errno> {
        self.0.flush_buffers()
    }
    fn read_only(&self) -> Result<bool, Errno> {
        self.0.read_only()
    }
    fn size(&self) -> Result<Bytes, Errno> {
        self.0.size()
    }
    fn logical_block_size(&self) -> Result<u32, Errno> {
        self.0.logical_block_size()
    }
}

fn late_marker() -> Outcome {
    let layout = &LAYOUTS[0];
    let mut found = 0;
    for at in moments(layout)?.into_iter().step_by(40) {
        let verdict = cut(layout, at, |machine| {
            Arc::new(LateMarker {
                machine,
                held: Arc::default(),
            })
        });
        if let Err(why) = verdict {
            assert!(why.contains("no marker says so"), "{why}");
            found += 1;
        }
    }
    assert!(found >= 5, "the suite saw {found} of the late markers");
    Ok(())
}
