//! The card that the guest erases: 4 GiB, partitioned, every sector filled with a pattern.

use std::io;

use anyhow::{Context, Result};
use emmc::card::{Card, Config, Fields, Timing};
use emmc::store::{scan_card, MemStore, NamedRange, Pattern, RangeReport, SECTOR};

use crate::gpt::{self, Partition};

/// 4 GiB: above 2 GiB a card is addressed by sectors, as all cards of today are.
pub const SECTORS: u64 = 4 << 21;
/// High-capacity erase group: 512 KiB.
const GROUP: u64 = 1024;
/// Number of groups of `userdata`.
pub const USERDATA_GROUPS: u64 = 2048;
/// Chooses the pattern; any number does.
const SEED: u64 = 0x626c_6f63_6b64;

/// First sector of `ragged`: inside the group where `persist` ends.
const RAGGED_START: u64 = 68 * GROUP + 368;
/// First sector behind it: inside the group where `vendor` begins.
const RAGGED_END: u64 = 293 * GROUP + 68;
/// First sector of `userdata`, on a group.
const USERDATA_START: u64 = 342 * GROUP;

/// The table. `userdata` is whole groups; `ragged` shares its first and last group.
pub const PARTITIONS: &[Partition] = &[
    Partition {
        name: "misc",
        start: 2 * GROUP,
        sectors: 2 * GROUP,
    },
    Partition {
        name: "frp",
        start: 4 * GROUP,
        sectors: GROUP,
    },
    Partition {
        name: "persist",
        start: 5 * GROUP,
        sectors: RAGGED_START - 5 * GROUP,
    },
    Partition {
        name: "ragged",
        start: RAGGED_START,
        sectors: RAGGED_END - RAGGED_START,
    },
    Partition {
        name: "vendor",
        start: RAGGED_END,
        sectors: USERDATA_START - RAGGED_END,
    },
    Partition {
        name: "userdata",
        start: USERDATA_START,
        sectors: USERDATA_GROUPS * GROUP,
    },
    Partition {
        name: "cache",
        start: USERDATA_START + USERDATA_GROUPS * GROUP,
        sectors: 1000 * GROUP,
    },
];

/// A new card: the pattern everywhere, the table over it.
pub fn new() -> Result<Card> {
    with(PARTITIONS, Timing::seed_card())
}

/// Secure erase and nothing besides, as on the cards of the time when the kernel's split erase was
/// reported: no trim for the edges, no sanitize.
pub fn fields() -> Fields {
    Fields {
        sectors: SECTORS as u32,
        sec_feature_support: 0x05,
        ..Fields::default()
    }
}

/// The same with another table and other delays.
pub fn with(partitions: &[Partition], timing: Timing) -> Result<Card> {
    let mut config = Config::from(fields());
    config.timing = timing;
    with_config(partitions, config)
}

/// Any card of that size.
pub fn with_config(partitions: &[Partition], config: Config) -> Result<Card> {
    let store = MemStore::with_pattern(SECTORS, Pattern { seed: SEED });
    let mut card = Card::new(config, Box::new(store))?;
    for (start, bytes) in gpt::table(SECTORS, partitions)? {
        card.store_mut().write(start, &bytes)?;
    }
    Ok(card)
}

/// What the whole medium holds: all partitions, and every stretch between them.
#[derive(Debug)]
pub struct Census {
    ranges: Vec<RangeReport>,
    tables: Vec<Vec<u8>>,
}

impl Census {
    /// Reads every sector of a card with [`PARTITIONS`].
    pub fn take(card: &Card) -> io::Result<Self> {
        Self::of(card, PARTITIONS)
    }

    /// Reads every sector of a card with another table.
    pub fn of(card: &Card, partitions: &[Partition]) -> io::Result<Self> {
        let mut ranges = Vec::new();
        let mut at = 0;
        let mut add = |name: &str, start: u64, end: u64| {
            if start < end {
                ranges.push(NamedRange::new(name, start, end - start));
            }
        };
        for partition in partitions {
            add("", at, partition.start);
            add(partition.name, partition.start, partition.end());
            at = partition.end();
        }
        add("", at, SECTORS);
        let mut tables = Vec::new();
        for (start, sectors) in [(0, gpt::FIRST_USABLE), (SECTORS - gpt::TAIL, gpt::TAIL)] {
            let mut bytes = vec![0; sectors as usize * SECTOR];
            card.store().read(start, &mut bytes)?;
            tables.push(bytes);
        }
        Ok(Self {
            ranges: scan_card(card, &ranges)?.ranges,
            tables,
        })
    }

    /// The partition of that name.
    pub fn range(&self, name: &str) -> Result<&RangeReport> {
        self.ranges
            .iter()
            .find(|r| r.range.name == name)
            .context("no such range")
    }

    /// Names of the ranges other than `targets` that do not hold what they held before; a
    /// stretch between partitions is named by its first sector.
    pub fn changed_beside(&self, before: &Self, targets: &[&str]) -> Vec<String> {
        let name = |r: &RangeReport| match r.range.name.as_str() {
            "" => format!("sectors from {}", r.range.start),
            name => name.to_owned(),
        };
        let same = |a: &RangeReport, b: &RangeReport| {
            (a.pattern, a.erased, a.other, a.dirty) == (b.pattern, b.erased, b.other, b.dirty)
        };
        let pairs = self.ranges.iter().zip(&before.ranges);
        let mut changed: Vec<_> = pairs
            .filter(|(now, then)| !targets.contains(&&*now.range.name) && !same(now, then))
            .map(|(now, _)| name(now))
            .collect();
        if self.tables != before.tables {
            changed.push("partition table".to_owned());
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_card_holds_the_pattern_and_the_table() {
        let mut card = new().unwrap();
        let before = Census::take(&card).unwrap();
        for partition in PARTITIONS {
            assert_eq!(
                before.range(partition.name).unwrap().pattern,
                partition.sectors
            );
        }
        assert!(before.changed_beside(&before, &["userdata"]).is_empty());
        // One sector of a neighbour, and one of the table.
        let frp = PARTITIONS.iter().find(|p| p.name == "frp").unwrap();
        card.store_mut().erase(frp.start..frp.start + 1).unwrap();
        card.store_mut().write(1, &[0; SECTOR]).unwrap();
        let after = Census::take(&card).unwrap();
        assert_eq!(
            after.changed_beside(&before, &["userdata"]),
            ["sectors from 0", "frp", "partition table"]
        );
        assert_eq!(after.range("frp").unwrap().erased, 1);
    }
}
