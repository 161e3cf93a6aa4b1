//! CMD8, CMD17, CMD18, CMD24, CMD25 and the data lines.
use super::cache;
use super::ext_csd::{index, EN_REL_WR};
use super::operation::Operation;
use super::{bits, Card, Response, State};
use crate::store::SECTOR;
use std::time::Duration;

/// The transfer that a data command began. `left`: sectors to go; `None` = until CMD12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    None,
    ExtCsd,
    /// CMD30's word.
    Protection(u32),
    Read {
        sector: u64,
        left: Option<u32>,
    },
    Write {
        sector: u64,
        left: Option<u32>,
        reliable: bool,
    },
}

/// A transfer that the card cannot serve; the reason is in the next response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataError;

impl Card {
    /// CMD17, 18, 24, 25; `count` is CMD23's.
    pub(super) fn begin_transfer(
        &mut self,
        command: u8,
        argument: u32,
        count: Option<(u32, bool)>,
    ) -> Response {
        let address = self.address(argument);
        let (sector, unaligned) = (
            address / SECTOR as u64,
            !address.is_multiple_of(SECTOR as u64),
        );
        let left = match (command, count) {
            (17 | 24, _) => Some(1),
            (_, Some((n, _))) if n > 0 => Some(n),
            _ => None,
        };
        if unaligned {
            self.errors |= bits::ADDRESS_MISALIGN;
            return self.r1();
        }
        if sector + u64::from(left.unwrap_or(1)) > self.area_sectors() {
            self.errors |= bits::OUT_OF_RANGE;
            return self.r1();
        }
        // Of an open-ended write only the first sector is known here; the others are looked at as
        // they come.
        let range = sector..sector + u64::from(left.unwrap_or(1));
        if matches!(command, 24 | 25) && self.is_protected(&range) {
            self.errors |= bits::WP_VIOLATION;
            return self.r1();
        }
        let response = self.r1();
        if matches!(command, 17 | 18) {
            self.state = State::Data;
            self.transfer = Transfer::Read { sector, left };
            if let Some(token) = self.token {
                self.log.add_busy(token, self.timing.read_us);
            }
        } else {
            self.state = State::Rcv;
            let asked = count.is_some_and(|c| c.1);
            let reliable = asked && self.reliable(sector, left);
            if asked && !reliable {
                self.log.counters.unreliable_writes += 1;
            }
            self.transfer = Transfer::Write {
                sector,
                left,
                reliable,
            };
        }
        response
    }

    /// True if the card has a reliable write of that shape. With EN_REL_WR any counted write
    /// is one; without, only one sector, or REL_WR_SEC_C sectors at a multiple of it. What
    /// other shapes do is not defined; the model takes them as plain writes, the worst case.
    fn reliable(&self, sector: u64, left: Option<u32>) -> bool {
        let unit = u32::from(self.ext.0[index::REL_WR_SEC_C]);
        if self.lies.ignore_reliable || unit == 0 {
            return false;
        }
        match left {
            None => false,
            Some(_) if self.ext.0[index::WR_REL_PARAM] & EN_REL_WR != 0 => true,
            Some(1) => true,
            Some(n) => n == unit && sector.is_multiple_of(unit.into()),
        }
    }

    /// Time before the first block of the current read is there.
    pub fn read_delay(&self) -> Duration {
        match self.transfer {
            Transfer::Read { .. } => Duration::from_micros(self.timing.read_us),
            _ => Duration::ZERO,
        }
    }

    /// Sends data to the host: EXT_CSD, or whole sectors of the current read.
    ///
    /// # Errors
    /// No read is under way, it runs past the end, or the medium failed.
    pub fn read_data(&mut self, buf: &mut [u8]) -> Result<(), DataError> {
        match self.transfer {
            Transfer::ExtCsd => {
                let n = buf.len().min(self.ext.0.len());
                buf[..n].copy_from_slice(&self.ext.0[..n]);
                self.transfer = Transfer::None;
                self.state = State::Tran;
                Ok(())
            }
            Transfer::Protection(word) => {
                // Most significant byte first, as registers go over the data line.
                let bytes = word.to_be_bytes();
                let n = buf.len().min(bytes.len());
                buf[..n].copy_from_slice(&bytes[..n]);
                self.transfer = Transfer::None;
                self.state = State::Tran;
                Ok(())
            }
            Transfer::Read { sector, left } => {
                let n = self.sectors_of(sector, left, buf.len())?;
                if let Err(e) = self.store.read(sector, buf) {
                    ::log::error!("medium: {e}");
                    self.errors |= bits::ERROR;
                    return Err(DataError);
                }
                self.cache.overlay(sector, buf);
                self.log.counters.read_bytes += buf.len() as u64;
                let left = left.map(|l| l - n);
                if left == Some(0) {
                    self.transfer = Transfer::None;
                    self.state = State::Tran;
                } else {
                    self.transfer = Transfer::Read {
                        sector: sector + u64::from(n),
                        left,
                    };
                }
                Ok(())
            }
            _ => Err(DataError),
        }
    }

    /// Takes whole sectors of the current write; the card is busy with them afterwards.
    ///
    /// # Errors
    /// No write is under way, or it runs past the end.
    pub fn write_data(&mut self, now: Duration, data: &[u8]) -> Result<(), DataError> {
        let Transfer::Write {
            sector,
            left,
            reliable,
        } = self.transfer
        else {
            return Err(DataError);
        };
        let n = self.sectors_of(sector, left, data.len())?;
        if self.is_protected(&(sector..sector + u64::from(n))) {
            self.errors |= bits::WP_VIOLATION;
            return Err(DataError);
        }
        self.log.counters.written_bytes += data.len() as u64;
        if let Some(outage) = self.outage.as_mut() {
            outage.written(sector, data);
        }
        let left = left.map(|l| l - n);
        self.transfer = match left {
            Some(0) => Transfer::None,
            _ => Transfer::Write {
                sector: sector + u64::from(n),
                left,
                reliable,
            },
        };
        let written = sector..sector + u64::from(n);
        // a written sector is mapped again, and no longer marked for secure trim step 2
        self.marked.remove(written.clone());
        self.discarded.remove(written);
        if self.cache_on() && !reliable {
            let us = self.write_cached(sector, data);
            self.start(now, us, Operation::Nothing);
        } else {
            let t = &self.timing;
            let base = if reliable { t.reliable_us } else { t.write_us };
            let us = base + data.len() as u64 / 1024 * t.write_kib_us;
            if reliable {
                self.log.counters.reliable_writes += 1;
            }
            let data = data.to_vec();
            self.start(now, us, Operation::Write { sector, data });
        }
        Ok(())
    }

    /// Puts sectors into the cache and evicts what does not fit; the time that takes.
    fn write_cached(&mut self, sector: u64, data: &[u8]) -> u64 {
        self.cache.write(sector, data);
        let capacity = cache::lines(self.ext.cache_bytes());
        let over = self.cache.len().saturating_sub(capacity) + self.early();
        if over > 0 {
            self.log.counters.evicted_lines += over as u64;
            if let Err(e) = self.write_back(over) {
                ::log::error!("medium: {e}");
                self.errors |= bits::ERROR;
            }
        }
        self.timing.cached_us + over as u64 * self.timing.flush_line_us
    }

    /// Lines that leave the cache though there is room: none without a seed, else now and then one.
    fn early(&mut self) -> usize {
        let drawn = self.draw().map_or(0, |n| (n % 2) as usize);
        drawn.min(self.cache.len())
    }

    /// The next number of the eviction's draw.
    pub(super) fn draw(&mut self) -> Option<u64> {
        // Knuth's MMIX generator; its low bits are weak.
        let state = self.eviction.as_mut()?;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some(*state >> 33)
    }

    /// Whole sectors in so many bytes of a transfer, checked against its end and the card's.
    fn sectors_of(
        &mut self,
        sector: u64,
        left: Option<u32>,
        bytes: usize,
    ) -> Result<u32, DataError> {
        let n = (bytes / SECTOR) as u32;
        if n == 0 || !bytes.is_multiple_of(SECTOR) || left.is_some_and(|l| n > l) {
            return Err(DataError);
        }
        if sector + u64::from(n) > self.area_sectors() {
            self.errors |= bits::OUT_OF_RANGE;
            return Err(DataError);
        }
        Ok(n)
    }
}
