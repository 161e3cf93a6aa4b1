//! CMD35, CMD36, CMD38 (JESD84-B51 §6.6.10 to §6.6.13).
use super::ext_csd::{index, REV_4_5, SECURE_ER_EN, SEC_GB_CL_EN};
use super::operation::Operation;
use super::{bits, Card, Response};
use crate::store::SECTOR;
use std::ops::Range;
use std::time::Duration;

/// Arguments of CMD38.
pub mod argument {
    /// Erase of whole groups.
    pub const ERASE: u32 = 0;
    /// Secure erase of whole groups.
    pub const SECURE_ERASE: u32 = 0x8000_0000;
    /// Trim of sectors.
    pub const TRIM: u32 = 1;
    /// Discard of sectors: the card need not do anything.
    pub const DISCARD: u32 = 3;
    /// Secure trim step 1: marks sectors.
    pub const SECURE_TRIM_1: u32 = 0x8000_0001;
    /// Secure trim step 2: erases all marked sectors.
    pub const SECURE_TRIM_2: u32 = 0x8000_8000;
}

/// How far an erase sequence has come; byte addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    None,
    Start(u64),
    Range(u64, u64),
}

impl Card {
    /// The byte address that an argument means.
    pub(super) fn address(&self, argument: u32) -> u64 {
        if self.sector_addressed() {
            u64::from(argument) * SECTOR as u64
        } else {
            argument.into()
        }
    }

    fn in_range(&self, address: u64) -> bool {
        address / (SECTOR as u64) < self.area_sectors()
    }

    /// CMD35. Begins a new sequence, also if one was under way.
    pub(super) fn erase_start(&mut self, argument: u32) -> Response {
        let address = self.address(argument);
        if self.in_range(address) {
            self.sequence = Sequence::Start(address);
        } else {
            self.sequence = Sequence::None;
            self.errors |= bits::OUT_OF_RANGE;
        }
        self.r1()
    }

    /// CMD36.
    pub(super) fn erase_end(&mut self, argument: u32) -> Response {
        let end = self.address(argument);
        let before = std::mem::replace(&mut self.sequence, Sequence::None);
        match before {
            Sequence::Start(_) if !self.in_range(end) => self.errors |= bits::OUT_OF_RANGE,
            Sequence::Start(start) if end < start => {
                // type X: the response of CMD36 itself does not show it
                let response = self.r1();
                self.errors |= bits::ERASE_PARAM;
                return response;
            }
            Sequence::Start(start) => self.sequence = Sequence::Range(start, end),
            Sequence::None | Sequence::Range(..) => self.errors |= bits::ERASE_SEQ_ERROR,
        }
        self.r1()
    }

    /// CMD38.
    pub(super) fn erase(&mut self, now: Duration, argument: u32) -> Response {
        let before = std::mem::replace(&mut self.sequence, Sequence::None);
        let Sequence::Range(start, end) = before else {
            self.errors |= bits::ERASE_SEQ_ERROR;
            return self.r1();
        };
        let response = self.r1();
        if !self.supports(argument) {
            self.errors |= bits::ERASE_PARAM; // type X
            return response;
        }
        // the sectors named, both inclusive
        let (first, last) = (start / SECTOR as u64, end / SECTOR as u64);
        let group = self.erase_group_sectors();
        let range = match argument {
            argument::ERASE | argument::SECURE_ERASE => self.whole_groups(first, last, group),
            _ => first..last + 1,
        };
        let groups = (range.end - 1) / group - range.start / group + 1;
        let us = self.timing.erase_us + groups * self.timing.erase_group_us;
        let count = self.log.counters.erases.entry(argument).or_default();
        count.commands += 1;
        count.sectors += range.end - range.start;
        let operation = match argument {
            argument::ERASE | argument::SECURE_ERASE => Operation::Erase {
                ranges: self.spared(vec![range], group),
                granule: group,
            },
            argument::TRIM => Operation::Erase {
                ranges: self.spared(vec![range], group),
                granule: 1,
            },
            argument::SECURE_TRIM_1 => {
                for range in self.unprotected(vec![range]) {
                    self.marked.insert(range);
                }
                Operation::Nothing
            }
            // the addresses of step 2 only complete the sequence
            argument::SECURE_TRIM_2 => Operation::Erase {
                ranges: {
                    let marked = self.marked.iter().collect();
                    self.spared(marked, group)
                },
                granule: 1,
            },
            // the card may keep everything until it needs the space: the worst case for a
            // host that takes a discard for an erase
            _ => {
                self.discarded.insert(range);
                Operation::Nothing
            }
        };
        self.start(now, us, operation);
        response
    }

    /// True if the card has this kind of erase.
    fn supports(&self, argument: u32) -> bool {
        match argument {
            argument::ERASE => true,
            argument::SECURE_ERASE => self.ext.secure_feature(SECURE_ER_EN),
            argument::TRIM => self.ext.secure_feature(SEC_GB_CL_EN),
            argument::DISCARD => self.ext.0[index::REV] >= REV_4_5,
            argument::SECURE_TRIM_1 | argument::SECURE_TRIM_2 => {
                self.ext.secure_feature(SECURE_ER_EN | SEC_GB_CL_EN)
            }
            _ => false,
        }
    }

    /// The groups that contain the addresses, and all between: the low address bits are
    /// ignored, so a range that does not fill its first or last group widens.
    fn whole_groups(&self, first: u64, last: u64, group: u64) -> Range<u64> {
        let more = self.lies.widen_groups * group;
        let (start, end) = if self.lies.no_rounding {
            (first, last + 1)
        } else {
            (first - first % group, last - last % group + group)
        };
        start.saturating_sub(more)..(end + more).min(self.area_sectors())
    }

    /// What is left to erase once the [lies](super::Lies) have spared their groups.
    fn spared(&mut self, ranges: Vec<Range<u64>>, group: u64) -> Vec<Range<u64>> {
        let ranges = self.unprotected(ranges);
        if self.lies.skip_groups.is_empty() && self.lies.skip_every.is_none() {
            return ranges;
        }
        let mut out = Vec::new();
        let mut nth = 0;
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let number = at / group;
                let end = ((number + 1) * group).min(range.end);
                nth += 1;
                let skipped = self.lies.skip_groups.contains(&number)
                    || self.lies.skip_every.is_some_and(|n| n > 0 && nth % n == 0);
                if !skipped {
                    out.push(at..end);
                }
                at = end;
            }
        }
        out
    }
}
