//! The cards that lose their power, and what reached them, seen from the card.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use anyhow::{anyhow, Result};
use blockd::cache::latency::record_offset;
use blockd::units::{Bytes, SectorRange, Sectors};
use emmc::card::{Card, Config, Fields, Lies, Moment, Outage, Timing};
use emmc::store::SECTOR;

use crate::card;
use crate::gpt::Partition;
use crate::powercut::Dice;

/// Sectors of an erase group: 512 KiB.
const GROUP: u64 = 1024;
const MISC: Partition = Partition {
    name: "misc",
    start: 2 * GROUP,
    sectors: 2 * GROUP,
};
/// 64 MiB, ragged at both ends, on whole blocks of 4 KiB.
const USERDATA: Partition = Partition {
    name: "userdata",
    start: 68 * GROUP + 368,
    sectors: 128 * GROUP + 72,
};
/// What the bootloader and AOSP's system space have of misc.
const MESSAGES: usize = 64 << 10;
/// The writer's `--hot-size`, in sectors.
const HOT_SECTORS: u64 = 2048;

/// A kind of card, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No cache.
    Off,
    /// A cache that writes back for want of room only.
    On,
    /// The same, with a flush for each record.
    Flushed,
    /// As On, but a flush does nothing.
    Lying,
}

impl Kind {
    /// Name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "cache off",
            Self::On => "cache on",
            Self::Flushed => "cache on, flushes",
            Self::Lying => "cache on, flush is a lie",
        }
    }

    /// A new card: nothing in misc, old data everywhere else.
    pub fn card(self) -> Result<Card> {
        let cache_size_kibit = match self {
            Self::Off => 0,
            // 2 MiB, twice the hot zone: a record may stay in it for ever.
            _ => 16 << 10,
        };
        let mut config = Config::from(Fields {
            cache_size_kibit,
            ..card::fields()
        });
        config.timing = Timing::zero();
        config.lies = Lies {
            ignore_flush: self == Self::Lying,
            ..Lies::default()
        };
        let mut card = card::with_config(&[MISC, USERDATA], config)?;
        card.store_mut().write(MISC.start, &[0; MESSAGES])?;
        Ok(card)
    }
}

/// First sector of the record.
pub fn record_sector() -> Result<u64> {
    let range = SectorRange {
        start: Sectors(USERDATA.start),
        length: Sectors(USERDATA.sectors),
    };
    let offset = record_offset(range, Bytes(SECTOR as u64)).map_err(|e| anyhow!("{e}"))?;
    Ok(USERDATA.start + offset.0 / SECTOR as u64)
}

/// Both sectors of the record, from the medium.
pub fn medium(card: &Card) -> Result<[Vec<u8>; 2]> {
    let read = |sector| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; SECTOR];
        card.store().read(sector, &mut bytes)?;
        Ok(bytes)
    };
    let record = record_sector()?;
    Ok([read(record)?, read(record + 1)?])
}

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At the write of record `n`.
    Record(u64, Moment),
    /// Before write `.1`, from 0, into the hot zone after record `.0`.
    Hot(u64, u64),
}

/// What the card was sent for the record's two sectors, in order: the index is the sequence.
pub type Sent = Arc<Mutex<[Vec<Vec<u8>>; 2]>>;

/// Ends the power where it is planned, and keeps what the record's place is sent.
pub struct Watch {
    record: u64,
    hot: Range<u64>,
    plan: Where,
    /// Whether the lines of the record's halves had been written back.
    kept: [bool; 2],
    dice: Dice,
    records: u64,
    heated: u64,
    sent: Sent,
}

impl Watch {
    /// Before the run.
    pub fn new(plan: Where, kept: [bool; 2], dice: Dice) -> Result<Self> {
        Ok(Self {
            record: record_sector()?,
            hot: USERDATA.start..USERDATA.start + HOT_SECTORS,
            plan,
            kept,
            dice,
            records: 0,
            heated: 0,
            sent: Sent::default(),
        })
    }

    /// To be read while the card has it.
    pub fn sent(&self) -> Sent {
        Arc::clone(&self.sent)
    }
}

impl Outage for Watch {
    fn command(&mut self, command: u8, argument: u32) -> Option<Moment> {
        let sector = u64::from(argument);
        if !matches!(command, 24 | 25) {
            return None;
        }
        if sector == self.record {
            let number = self.records;
            self.records += 1;
            self.heated = 0;
            return match self.plan {
                Where::Record(n, moment) if number == n => Some(moment),
                _ => None,
            };
        }
        if self.hot.contains(&sector) && self.records > 0 {
            let (record, number) = (self.records - 1, self.heated);
            self.heated += 1;
            if self.plan == Where::Hot(record, number) {
                return Some(Moment::Before);
            }
        }
        None
    }

    fn written_back(&mut self, line: u64) -> bool {
        // Eight sectors a line.
        match [self.record / 8, (self.record + 1) / 8] {
            [first, _] if line == first => self.kept[0],
            [_, second] if line == second => self.kept[1],
            _ => self.dice.below(2) == 0,
        }
    }

    fn written(&mut self, sector: u64, data: &[u8]) {
        let mut sent = self.sent.lock().unwrap_or_else(|e| e.into_inner());
        for (sector, bytes) in (sector..).zip(data.chunks(SECTOR)) {
            if let Some(half) = sector.checked_sub(self.record).filter(|half| *half < 2) {
                sent[half as usize].push(bytes.to_vec());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_lie_on_two_lines_of_the_cache() {
        let record = record_sector().unwrap();
        assert_ne!(record / 8, (record + 1) / 8);
        assert!(record > USERDATA.start + HOT_SECTORS && record + 1 < USERDATA.end());
    }

    #[test]
    fn the_power_fails_where_it_is_planned() {
        let record = record_sector().unwrap() as u32;
        let hot = USERDATA.start as u32;
        let run = [
            hot,
            record,
            hot,
            hot + 8,
            record,
            hot + 16,
            hot + 24,
            record,
        ];
        let at = |plan| {
            let mut watch = Watch::new(plan, [false; 2], Dice(1)).unwrap();
            run.iter().position(|s| watch.command(25, *s).is_some())
        };
        assert_eq!(at(Where::Record(1, Moment::Before)), Some(4));
        assert_eq!(at(Where::Record(3, Moment::Before)), None);
        assert_eq!(at(Where::Hot(0, 1)), Some(3));
        assert_eq!(at(Where::Hot(1, 0)), Some(5));
        assert_eq!(at(Where::Hot(1, 2)), None);
    }
}
