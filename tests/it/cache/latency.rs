//! The power-loss test, in process: `write` runs over the card model until the power fails, `check` says
//! what was lost, and what the medium really holds says whether that is true.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::reset::layout::{partitions, plain_fields, GROUP};
use blockd::cache::latency::acks::{Ack, Acks, Start};
use blockd::cache::latency::check::{judge, Finding, Here, Known, Verdict};
use blockd::cache::latency::record::{Record, RunId};
use blockd::cache::latency::write::{write, Listener, Options};
use blockd::cache::latency::{self, record_offset};
use blockd::cache::raw::{Raw, Wanted};
use blockd::device::{Access, Block, Mmc, Storage, Sysfs};
use blockd::error::{Code, Result as UseCaseResult};
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Config, Lies, Timing};
use emmc::machine::{Cut, Machine};
use emmc::store::{MemStore, Pattern, SECTOR};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The cases. Pure computation, and nothing that the guest's emulated processor could add.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cache::latency_verdicts_are_what_the_medium_lost", all).needs(&[Need::Host]),
        Case::new("cache::latency_a_blind_check_fails_the_suite", blind).needs(&[Need::Host]),
        Case::new("cache::latency_a_skipped_flush_fails_the_suite", unflushed).needs(&[Need::Host]),
        Case::new("cache::latency_without_a_cut", no_cut),
        Case::new("cache::latency_writes_where_it_may", where_it_may),
    ]
}

const PARTITION: &str = "userdata";
const HOT: Bytes = Bytes(1 << 20);
/// Writes take long enough to be cut in the middle.
const TIMING: Timing = Timing {
    read_us: 100,
    write_us: 300,
    write_kib_us: 30,
    cached_us: 40,
    reliable_us: 400,
    flush_us: 500,
    flush_line_us: 100,
    erase_us: 0,
    erase_group_us: 0,
    switch_us: 10,
    sanitize_us: 0,
};
/// Cuts of each kind of card.
const CUTS: u64 = 100;

/// A kind of card, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// No cache.
    Off,
    /// A cache that writes back in any order.
    On,
    /// One that writes back for want of room only.
    Lazy,
    /// As On, with a flush for each record.
    Flushed,
    /// As On, but a flush does nothing.
    Lying,
    /// As Lazy, but a flush does nothing.
    LazyLying,
}

const KINDS: [Kind; 6] = [
    Kind::Off,
    Kind::On,
    Kind::Lazy,
    Kind::Flushed,
    Kind::Lying,
    Kind::LazyLying,
];

impl Kind {
    fn machine(self, seed: u64) -> Result<Machine, String> {
        let fields = Fields {
            sectors: 1 << 18,
            rev: 7,
            cache_size_kibit: match self {
                Kind::Off => 0,
                // 2 MiB: more than the hot zone, so that a record may stay in it for long.
                _ => 16 << 10,
            },
            ..plain_fields()
        };
        let config = Config {
            timing: TIMING,
            eviction_seed: (!matches!(self, Kind::Lazy | Kind::LazyLying)).then_some(seed),
            lies: Lies {
                ignore_flush: matches!(self, Kind::Lying | Kind::LazyLying),
                ..Lies::default()
            },
            ..fields.into()
        };
        let store = MemStore::with_pattern(1 << 18, Pattern { seed: 5 });
        let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
        Machine::new(card, &partitions()).map_err(|e| e.to_string())
    }

    fn options(self) -> Options {
        Options {
            hot_writes: 2,
            records: Some(20_000),
            flush: self == Kind::Flushed,
            ..Options::new(HOT)
        }
    }
}

/// What was written to the record's place, with the time: another witness than the product.
type Images = Arc<Mutex<Vec<(Vec<u8>, Duration)>>>;

/// The machine, with a spy at the record's place, and maybe without flushes.
struct Spied {
    machine: Machine,
    place: Bytes,
    images: Images,
    no_flush: bool,
}

impl Storage for Spied {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }

    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.machine.open_mmc(disk)
    }

    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        Ok(Box::new(SpiedBlock {
            inner: self.machine.open_block(name, access)?,
            machine: self.machine.clone(),
            place: self.place,
            images: Arc::clone(&self.images),
            no_flush: self.no_flush,
        }))
    }

    fn now(&self) -> Duration {
        self.machine.now()
    }

    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

struct SpiedBlock {
    inner: Box<dyn Block>,
    machine: Machine,
    place: Bytes,
    images: Images,
    no_flush: bool,
}

impl Block for SpiedBlock {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        if offset == self.place {
            let mut images = self.images.lock().unwrap_or_else(|e| e.into_inner());
            images.push((data.to_vec(), self.machine.now()));
        }
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> Result<(), Errno> {
        match self.no_flush {
            true => Ok(()),
            false => self.inner.sync(),
        }
    }

    fn discard(&self, offset: Bytes, length: Bytes, secure: bool) -> Result<(), Errno> {
        self.inner.discard(offset, length, secure)
    }

    fn flush_buffers(&self) -> Result<(), Errno> {
        self.inner.flush_buffers()
    }

    fn read_only(&self) -> Result<bool, Errno> {
        self.inner.read_only()
    }

    fn size(&self) -> Result<Bytes, Errno> {
        self.inner.size()
    }

    fn logical_block_size(&self) -> Result<u32, Errno> {
        self.inner.logical_block_size()
    }
}

/// Takes the lines as they are printed, and plans the cut once the first record is flushed.
struct Captured {
    machine: Machine,
    cut: Option<Cut>,
    lines: String,
    last: Option<u64>,
}

impl Listener for Captured {
    fn started(&mut self, start: &Start) -> UseCaseResult<()> {
        self.lines = format!("{start}\n");
        if let Some(cut) = self.cut {
            self.machine.cut_power(match cut {
                Cut::At(after) => Cut::At(self.machine.now() + after),
                cut => cut,
            });
        }
        Ok(())
    }

    fn acknowledged(&mut self, ack: &Ack) -> UseCaseResult<()> {
        self.lines.push_str(&format!("{ack}\n"));
        self.last = Some(ack.sequence);
        Ok(())
    }
}

fn wanted() -> Wanted {
    Wanted {
        partition: PARTITION.to_owned(),
        disk: None,
        merges_done: true,
    }
}

/// What the medium really lost.
#[derive(Debug, PartialEq, Eq)]
struct Truth {
    verdict: Verdict,
    lost: Option<u64>,
    age: Option<Duration>,
}

/// The two sectors on the medium against everything that was written there: no checksum, no record is
/// read for it.
fn truth(medium: &[u8], images: &[(Vec<u8>, Duration)], before: &[Vec<u8>], last: u64) -> Truth {
    let halves = [&medium[..SECTOR], &medium[SECTOR..]];
    let is = |image: &[u8], half: usize| image[half * SECTOR..][..SECTOR] == *halves[half];
    let now = [0, 1].map(|half| images.iter().position(|(image, _)| is(image, half)));
    let [a, b] = match now {
        [Some(a), Some(b)] => [a as u64, b as u64],
        [None, None] => {
            let old = [0, 1].map(|half| before.iter().position(|image| is(image, half)));
            let verdict = match old {
                [Some(a), Some(b)] if a != b => Verdict::Torn,
                _ => Verdict::Stale,
            };
            let lost = (verdict == Verdict::Stale).then_some(last + 1);
            return Truth {
                verdict,
                lost,
                age: None,
            };
        }
        _ => {
            return Truth {
                verdict: Verdict::Torn,
                lost: None,
                age: None,
            }
        }
    };
    let older = a.min(b);
    let lost = last.saturating_sub(older);
    let time = |n: u64| images[n as usize].1;
    Truth {
        verdict: match (a == b, lost) {
            (false, _) => Verdict::Torn,
            (true, 0) => Verdict::NothingLost,
            (true, _) => Verdict::Lost,
        },
        lost: Some(lost),
        age: Some(match lost {
            0 => Duration::ZERO,
            _ => time(last) - time(older),
        }),
    }
}

/// How a verdict is come to.
type Check = fn(&Machine, &Raw, &Known) -> Result<Finding, String>;

fn honest(machine: &Machine, raw: &Raw, known: &Known) -> Result<Finding, String> {
    latency::check(machine, raw, known).map_err(|e| e.to_string())
}

/// Broken: takes the first half for both.
fn one_eyed(machine: &Machine, raw: &Raw, known: &Known) -> Result<Finding, String> {
    let offset = place(raw);
    let medium = medium(machine, raw, offset)?;
    let half = Record::decode(&medium[..SECTOR], 0);
    let here = Here {
        partition: raw.partition.name.clone(),
        offset,
    };
    Ok(judge([&half, &half], known, &here))
}

fn place(raw: &Raw) -> Bytes {
    record_offset(raw.partition.range, Bytes(512)).expect("a place")
}

/// Both sectors, from the store.
fn medium(machine: &Machine, raw: &Raw, offset: Bytes) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 2 * SECTOR];
    let sector = raw.partition.range.start.0 + offset.0 / 512;
    machine
        .with_card(|card| card.store().read(sector, &mut bytes))
        .map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Small random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// All cuts of all kinds; how often each verdict was true.
fn suite(check: Check, no_flush: bool) -> Result<BTreeMap<(Kind, &'static str), u64>, String> {
    let mut outcomes = BTreeMap::new();
    for kind in KINDS {
        let mut dice = Dice(kind as u64);
        let machine = kind.machine(11 + kind as u64)?;
        let raw = Raw::find(&machine, &wanted()).map_err(|e| e.to_string())?;
        let place = place(&raw);
        let mut before: Vec<Vec<u8>> = Vec::new();
        for n in 0..CUTS {
            let name = format!("{kind:?} {n}");
            let images = Images::default();
            let spied = Spied {
                machine: machine.clone(),
                place,
                images: Arc::clone(&images),
                no_flush,
            };
            let cut = match dice.below(2) {
                0 => Cut::BeforeCommand(1 + dice.below(60)),
                _ => Cut::At(Duration::from_micros(1 + dice.below(30_000))),
            };
            let mut captured = Captured {
                machine: machine.clone(),
                cut: Some(cut),
                lines: String::new(),
                last: None,
            };
            let mut run = [0; 16];
            run[0] = kind as u8 + 1;
            run[8..].copy_from_slice(&n.to_le_bytes());
            let ended = write(&spied, &raw, RunId(run), &kind.options(), &mut captured);
            let ended = ended.err().ok_or(format!("{name}: it ended by itself"))?;
            if machine.powered() || ended.code != Code::DeviceFailed {
                return Err(format!("{name}: no cut, but {ended}"));
            }
            let images: Vec<_> = images.lock().unwrap_or_else(|e| e.into_inner()).clone();
            let medium = medium(&machine, &raw, place)?;
            machine.reboot().map_err(|e| e.to_string())?;
            let last = captured.last.unwrap_or(0);
            if captured.lines.is_empty() {
                return Err(format!("{name}: cut before record 0 was flushed: {ended}"));
            }
            let acks = Acks::parse(&captured.lines).map_err(|e| e.to_string())?;
            let known = Known::Acks(acks);
            let finding = check(&machine, &raw, &known)?;
            let mut truth = truth(&medium, &images, &before, last);
            if matches!(truth.verdict, Verdict::Torn) && finding.lost.is_none() {
                // Halves of two runs: no number is claimed.
                truth.lost = None;
                truth.age = None;
            }
            let told = Truth {
                verdict: finding.verdict,
                lost: finding.lost,
                age: finding.age,
            };
            if told != truth {
                return Err(format!(
                    "{name}: told {told:?}, true {truth:?}: {}",
                    finding.text
                ));
            }
            if kind == Kind::Flushed && finding.lost != Some(0) {
                return Err(format!("{name}: flushed and lost: {}", finding.text));
            }
            *outcomes.entry((kind, truth.verdict.name())).or_default() += 1;
            before.extend(images.into_iter().map(|(image, _)| image));
        }
    }
    Ok(outcomes)
}

fn all() -> Outcome {
    let outcomes = suite(honest, false)?;
    for verdict in [
        Verdict::NothingLost,
        Verdict::Lost,
        Verdict::Torn,
        Verdict::Stale,
    ] {
        let of = outcomes
            .iter()
            .filter(|((_, name), _)| *name == verdict.name());
        let count: u64 = of.map(|(_, count)| count).sum();
        assert!(
            count >= KINDS.len() as u64 * CUTS / 20,
            "{verdict}: {outcomes:?}"
        );
    }
    let told = |kind, verdict: Verdict| outcomes.get(&(kind, verdict.name())).copied();
    assert_eq!(
        told(Kind::Off, Verdict::Lost),
        None,
        "without a cache nothing is lost"
    );
    assert_eq!(
        told(Kind::On, Verdict::Stale),
        None,
        "an honest card keeps what it flushed"
    );
    Ok(())
}

fn expect_failure(
    result: Result<BTreeMap<(Kind, &'static str), u64>, String>,
    words: &str,
) -> Outcome {
    match result {
        Err(why) if why.contains(words) => Ok(()),
        other => Err(format!("the suite passes a broken variant: {other:?}")),
    }
}

fn blind() -> Outcome {
    expect_failure(suite(one_eyed, false), "true Truth { verdict: Torn")
}

fn unflushed() -> Outcome {
    expect_failure(suite(honest, true), "flushed and lost")
}

fn no_cut() -> Outcome {
    let machine = Kind::On.machine(1)?;
    let raw = Raw::look(&machine, &wanted()).map_err(|e| e.to_string())?;
    let mut captured = Captured {
        machine: machine.clone(),
        cut: None,
        lines: String::new(),
        last: None,
    };
    let nothing = latency::check(&machine, &raw, &Known::Nothing).map_err(|e| e.to_string())?;
    assert_eq!(nothing.verdict, Verdict::NoRecord);
    let options = Options {
        records: Some(7),
        pause: Duration::from_millis(50),
        ..Options::new(HOT)
    };
    let begin = machine.now();
    write(&machine, &raw, RunId([9; 16]), &options, &mut captured).map_err(|e| e.to_string())?;
    assert!(machine.now() - begin >= 7 * options.pause);
    assert_eq!(captured.last, Some(7));
    let acks = Acks::parse(&captured.lines).map_err(|e| e.to_string())?;
    let finding = latency::check(&machine, &raw, &Known::Acks(acks)).map_err(|e| e.to_string())?;
    assert_eq!(finding.verdict, Verdict::NothingLost);
    let unknown = latency::check(&machine, &raw, &Known::Nothing).map_err(|e| e.to_string())?;
    assert_eq!((unknown.verdict, unknown.exit()), (Verdict::Unknown, 2));
    assert_eq!(unknown.survivor.map(|record| record.sequence), Some(7));
    Ok(())
}

/// The hot zone and the record, nothing else; and nothing at all where a guard refuses.
fn where_it_may() -> Outcome {
    let machine = Kind::Off.machine(1)?;
    let raw = Raw::look(&machine, &wanted()).map_err(|e| e.to_string())?;
    let images = Images::default();
    let spied = Spied {
        machine: machine.clone(),
        place: place(&raw),
        images: Arc::clone(&images),
        no_flush: false,
    };
    let mut captured = Captured {
        machine: machine.clone(),
        cut: None,
        lines: String::new(),
        last: None,
    };
    let options = Options {
        // More than once through the hot zone.
        records: Some(20),
        hot_writes: 16,
        ..Options::new(HOT)
    };
    machine.reset_logs();
    write(&spied, &raw, RunId([9; 16]), &options, &mut captured).map_err(|e| e.to_string())?;
    let start = raw.partition.range.start.0;
    let record = start + place(&raw).0 / 512;
    let (mut hot, mut records) = (0, 0);
    for event in machine.journal().events {
        if let emmc::machine::Event::Write {
            sector, sectors, ..
        } = event
        {
            match sector {
                s if s == record && sectors == 2 => records += 1,
                s if s >= start && s + sectors <= start + HOT.0 / 512 => hot += 1,
                other => return Err(format!("sector {other}+{sectors} was written")),
            }
        }
    }
    assert_eq!((hot, records), (20 * 16, 21));
    assert!(record > start + HOT.0 / 512 + 8 * GROUP, "not far away");

    machine
        .mount(&raw.partition.node, "/data")
        .map_err(|e| e.to_string())?;
    machine.reset_logs();
    let refused = write(&spied, &raw, RunId([9; 16]), &options, &mut captured);
    assert_eq!(refused.map_err(|f| f.code), Err(Code::InUse));
    let wrote = |e: &emmc::machine::Event| matches!(e, emmc::machine::Event::Write { .. });
    assert!(!machine.journal().events.iter().any(wrote));
    Ok(())
}
