//! CMD6 (JESD84-B51 §6.6.1, §7.4).
use super::ext_csd::{index, SEC_SANITIZE};
use super::operation::Operation;
use super::{bits, Card, Response};
use std::time::Duration;

/// Highest writable byte of EXT_CSD; above lies the read-only properties segment.
const LAST_MODE: usize = 191;

impl Card {
    /// CMD6: access mode in bits 25:24, index in 23:16, value in 15:8. Failure is
    /// SWITCH_ERROR in the next response (type X).
    pub(super) fn switch(&mut self, now: Duration, argument: u32) -> Response {
        let response = self.r1();
        let at = (argument >> 16 & 0xff) as usize;
        let value = (argument >> 8) as u8;
        let old = self.ext.0[at];
        let new = match argument >> 24 & 3 {
            0 => return response, // command set: there is only one
            1 => old | value,
            2 => old & !value,
            _ => value,
        };
        match self.switched(at, old, new) {
            Some((us, operation)) => self.start(now, us, operation),
            None => self.errors |= bits::SWITCH_ERROR,
        }
        response
    }

    /// Stores the byte if the card has it; the time it takes, and what it does.
    fn switched(&mut self, at: usize, old: u8, new: u8) -> Option<(u64, Operation)> {
        let t = self.timing;
        if at > LAST_MODE {
            return None;
        }
        let flush_us = t.flush_us + self.dirty_lines() as u64 * t.flush_line_us;
        match at {
            index::FLUSH_CACHE if new & 1 != 0 => {
                self.log.counters.flushes += 1;
                let operation = if self.lies.ignore_flush {
                    Operation::Nothing
                } else {
                    Operation::Flush
                };
                return Some((flush_us, operation));
            }
            index::FLUSH_CACHE => {}
            index::CACHE_CTRL => {
                self.ext.0[at] = new & 1;
                // turning the cache off must not lose what it holds
                if old & 1 != 0 && new & 1 == 0 {
                    return Some((t.switch_us + flush_us, Operation::Flush));
                }
            }
            index::SANITIZE_START => return self.sanitize(),
            index::PARTITION_CONFIG if !self.select(new & 7) => return None,
            index::HS_TIMING if new & 0xf > 1 => return None, // no HS200, HS400
            index::BUS_WIDTH if new > 2 => return None,       // no DDR
            index::POWER_OFF_NOTIFICATION
            | index::BKOPS_EN
            | index::ERASE_GROUP_DEF
            | index::BOOT_BUS_CONDITIONS
            | index::PARTITION_CONFIG
            | index::BUS_WIDTH
            | index::HS_TIMING
            | index::POWER_CLASS => self.ext.0[at] = new,
            _ => return None,
        }
        Some((t.switch_us, Operation::Nothing))
    }

    /// Sanitize: what is unmapped (discarded, or marked by secure trim step 1) is erased.
    /// Limits: the model has no spare blocks and no stale copies, so this proves that the
    /// command was sent and took its time, not that a real card would be physically clean.
    fn sanitize(&mut self) -> Option<(u64, Operation)> {
        if !self.ext.secure_feature(SEC_SANITIZE) {
            return None;
        }
        let mut ranges = self.marked.clone();
        self.discarded.iter().for_each(|r| ranges.insert(r));
        let operation = Operation::Erase {
            ranges: ranges.iter().collect(),
            granule: 1,
        };
        Some((self.timing.sanitize_us, operation))
    }
}
