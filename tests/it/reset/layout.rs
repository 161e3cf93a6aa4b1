//! The card of the reset cases: every sector holds a pattern, GPT partitions lie side by side.

use blockd::device::{Access, DirectBuffer, Storage};
use blockd::error::Failure;
use blockd::reset::marker::SECTOR;
use blockd::reset::report::Report;
use blockd::reset::request::Request;
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Config};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, NamedRange, Pattern};
use std::sync::Arc;

/// Sectors of an erase group of 512 KiB.
pub const GROUP: u64 = 1024;

/// `userdata` is made of whole groups; `ragged` starts and ends inside groups that it shares with
/// `persist` and `frp`.
pub fn partitions() -> Vec<Partition> {
    let userdata = 8 * GROUP;
    let persist = userdata + 64 * GROUP;
    let ragged = persist + 5 * GROUP + 72;
    let frp = ragged + 30 * GROUP + 500;
    let misc = frp + 2 * GROUP;
    vec![
        Partition::new("userdata", userdata, 64 * GROUP),
        Partition::new("persist", persist, ragged - persist),
        Partition::new("ragged", ragged, frp - ragged),
        Partition::new("frp", frp, misc - frp),
        Partition::new("misc", misc, GROUP),
        Partition::new("tiny", misc + GROUP + 10, 100),
    ]
}

/// A card with secure erase and nothing besides: no trim, no sanitize.
pub fn plain_fields() -> Fields {
    Fields {
        sec_feature_support: 0x05,
        ..Fields::default()
    }
}

/// The same.
pub fn plain() -> Config {
    plain_fields().into()
}

/// A machine with such a card.
pub fn machine(config: Config) -> Machine {
    let sectors = config.ext_csd.sectors();
    let store = MemStore::with_pattern(sectors, Pattern { seed: 7 });
    let card = Card::new(config, Box::new(store)).expect("a card that can be");
    let machine = Machine::new(card, &partitions()).expect("a card that answers");
    machine
        .files()
        .set("/system/etc/blockd/targets", "ragged\ntiny # too small");
    machine
}

/// Resets `name` by samples without a marker.
pub fn reset(machine: &Machine, name: &str) -> Result<Report, Failure> {
    run(machine, &Request::new(&[name]))
}

/// Runs a request.
pub fn run(machine: &Machine, request: &Request) -> Result<Report, Failure> {
    Arc::new(Reset::new(Arc::new(machine.clone()))).run(request, None)
}

/// Where a partition lies.
pub fn place(name: &str) -> Partition {
    partitions()
        .into_iter()
        .find(|p| p.name == name)
        .expect("a partition of the layout")
}

/// Looks at the whole medium, not through blockd: everything inside `erased` is gone, nothing
/// outside has changed, nothing waits in the card's cache.
pub fn expect_erased_exactly(machine: &Machine, erased: &[&str]) {
    let inside: Vec<NamedRange> = erased
        .iter()
        .map(|name| {
            let p = place(name);
            NamedRange::new(name, p.start, p.sectors)
        })
        .collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    for range in &inside {
        ranges.push(NamedRange::new("outside", at, range.start - at));
        ranges.push(range.clone());
        at = range.start + range.sectors;
    }
    let sectors = machine.with_card(|card| card.sectors());
    ranges.push(NamedRange::new("outside", at, sectors - at));
    let report = machine.report(&ranges).expect("the medium can be read");
    for range in &report.scan.ranges {
        let wanted = if range.range.name == "outside" {
            range.pattern
        } else {
            range.erased
        };
        assert_eq!(wanted, range.range.sectors, "{range:?}");
        assert_eq!(range.dirty, 0, "{range:?}");
    }
}

/// The first sector of `misc`, a kernel name.
pub fn message(machine: &Machine, misc: &str) -> Result<[u8; SECTOR], String> {
    let block = machine
        .open_block(misc, Access::Read)
        .map_err(|e| e.to_string())?;
    let mut buffer = DirectBuffer::new(SECTOR);
    block
        .read_at(Bytes(0), &mut buffer)
        .map_err(|e| e.to_string())?;
    let mut sector = [0; SECTOR];
    sector.copy_from_slice(&buffer);
    Ok(sector)
}

/// Nothing but reading has happened.
pub fn expect_untouched(machine: &Machine) {
    let log = machine.log();
    for command in [6, 24, 25, 35, 36, 38] {
        assert_eq!(log.count(command), 0, "CMD{command} was sent");
    }
    expect_erased_exactly(machine, &[]);
}
