//! Write protection by groups: CMD28, CMD29, CMD30 (JESD84-B51 §6.6.15). Temporary protection only; it
//! survives a power cycle.
use super::ext_csd::index;
use super::operation::Operation;
use super::{bits, Card, Response, State, Transfer};
use crate::store::SECTOR;
use std::ops::Range;
use std::time::Duration;

/// Groups that one CMD30 tells of.
const TOLD: u64 = 32;

impl Card {
    /// Sectors of a write-protect group.
    pub fn protect_group_sectors(&self) -> u64 {
        let hc = u64::from(self.ext.0[index::HC_WP_GRP_SIZE]);
        let erase_groups = if self.ext.0[index::ERASE_GROUP_DEF] & 1 != 0 && hc > 0 {
            hc
        } else {
            super::registers::WP_GRP_SIZE + 1
        };
        erase_groups * self.erase_group_sectors()
    }

    /// Protects the groups that the sectors of `range` lie in.
    pub fn protect(&mut self, range: Range<u64>) {
        let group = self.protect_group_sectors();
        let whole = range.start / group * group..range.end.div_ceil(group) * group;
        self.protected
            .insert(whole.start..whole.end.min(self.sectors()));
    }

    /// True where a sector of `range` is protected.
    pub(super) fn is_protected(&self, range: &Range<u64>) -> bool {
        self.area.is_user()
            && self
                .protected
                .iter()
                .any(|p| p.start < range.end && range.start < p.end)
    }

    /// CMD28 and CMD29.
    pub(super) fn set_protection(&mut self, now: Duration, argument: u32, on: bool) -> Response {
        let sector = self.address(argument) / SECTOR as u64;
        if sector >= self.sectors() {
            self.errors |= bits::OUT_OF_RANGE;
            return self.r1();
        }
        let response = self.r1();
        if on {
            self.protect(sector..sector + 1);
        } else {
            let group = self.protect_group_sectors();
            let first = sector / group * group;
            self.protected.remove(first..first + group);
        }
        self.start(now, self.timing.switch_us, Operation::Nothing);
        response
    }

    /// CMD30: a bit for each of 32 groups, the addressed one lowest.
    pub(super) fn send_protection(&mut self, argument: u32) -> Response {
        let sector = self.address(argument) / SECTOR as u64;
        if sector >= self.sectors() {
            self.errors |= bits::OUT_OF_RANGE;
            return self.r1();
        }
        let group = self.protect_group_sectors();
        let first = sector / group;
        let word = (0..TOLD).fold(0, |word, n| {
            let start = (first + n) * group;
            word | u32::from(self.is_protected(&(start..start + group))) << n
        });
        self.transfer = Transfer::Protection(word);
        let response = self.r1();
        self.state = State::Data;
        response
    }

    /// What is left of `ranges` without protected groups; says in the next response that some were
    /// spared.
    pub(super) fn unprotected(&mut self, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        if !ranges.iter().any(|range| self.is_protected(range)) {
            return ranges;
        }
        self.errors |= bits::WP_ERASE_SKIP;
        let protected: Vec<Range<u64>> = self.protected.iter().collect();
        protected.iter().fold(ranges, |ranges, cut| {
            ranges
                .into_iter()
                .flat_map(|r| [r.start..cut.start.min(r.end), cut.end.max(r.start)..r.end])
                .filter(|r| r.start < r.end)
                .collect()
        })
    }
}
