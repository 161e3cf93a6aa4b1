//! Operations that keep the card busy, and how they end or tear.
use super::{bits, Card, State, Transfer};
use crate::store::SECTOR;
use std::ops::Range;
use std::time::Duration;

/// What reaches the medium when the time is over.
pub(super) enum Operation {
    Nothing,
    Write {
        sector: u64,
        data: Vec<u8>,
    },
    /// `granule`: sectors that change together.
    Erase {
        ranges: Vec<Range<u64>>,
        granule: u64,
    },
    Flush,
}

pub(super) struct InFlight {
    start: Duration,
    end: Duration,
    operation: Operation,
}

/// The share num/den of a whole, rounded down.
#[derive(Clone, Copy)]
pub(super) struct Share {
    num: u128,
    den: u128,
}

impl Share {
    const ALL: Share = Share { num: 1, den: 1 };

    pub(super) fn per_mille(n: u16) -> Share {
        Share {
            num: n.into(),
            den: 1000,
        }
    }

    fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * self.num.min(self.den) / self.den) as u64
    }
}

impl Card {
    /// End of the operation in flight.
    pub fn busy_until(&self) -> Option<Duration> {
        self.in_flight.as_ref().map(|f| f.end)
    }

    /// True while the card pulls DAT0 low.
    pub fn busy(&mut self, now: Duration) -> bool {
        self.tick(now);
        self.in_flight.is_some()
    }

    /// Commits the operation in flight once its time has come.
    pub fn tick(&mut self, now: Duration) {
        if self.busy_until().is_some_and(|end| end <= now) {
            self.finish();
        }
    }

    /// Commits the operation in flight at once.
    pub(super) fn finish(&mut self) {
        let Some(done) = self.in_flight.take() else {
            return;
        };
        self.commit(done.operation, Share::ALL);
        self.state = match self.state {
            State::Prg if matches!(self.transfer, Transfer::Write { .. }) => State::Rcv,
            State::Prg => State::Tran,
            State::Dis => State::Stby,
            other => other,
        };
    }

    /// Commits what has passed of the operation in flight.
    pub(super) fn tear(&mut self, now: Duration) {
        if let Some(f) = self.in_flight.take() {
            let share = Share {
                num: now.saturating_sub(f.start).as_micros(),
                den: f.end.saturating_sub(f.start).as_micros().max(1),
            };
            self.commit(f.operation, share);
        }
    }

    /// Starts an operation of `us` microseconds. Time 0: it is done at once.
    pub(super) fn start(&mut self, now: Duration, us: u64, operation: Operation) {
        // the next block of a CMD25 while the last one is still being programmed
        let start = self.busy_until().unwrap_or(now).max(now);
        self.finish();
        if let Some(share) = self.tearing {
            self.commit(operation, share);
            return self.fail(now);
        }
        if let Some(token) = self.token {
            self.log.add_busy(token, us);
        }
        self.in_flight = Some(InFlight {
            start,
            end: start + Duration::from_micros(us),
            operation,
        });
        self.state = State::Prg;
        if us == 0 && start <= now {
            self.finish();
        }
    }

    fn commit(&mut self, operation: Operation, share: Share) {
        let result = match operation {
            Operation::Nothing => Ok(()),
            Operation::Write { sector, data } => {
                let parts = self.passed((data.len() / SECTOR) as u64, share);
                parts.into_iter().try_for_each(|part| {
                    let bytes = part.start as usize * SECTOR..part.end as usize * SECTOR;
                    self.cache.forget(&(sector + part.start..sector + part.end));
                    self.store.write(sector + part.start, &data[bytes])
                })
            }
            Operation::Erase { ranges, granule } => self.commit_erase(&ranges, granule, share),
            Operation::Flush => {
                let lines = share.of(self.cache.len() as u64);
                self.write_back(lines as usize)
            }
        };
        if let Err(e) = result {
            ::log::error!("medium: {e}");
            self.errors |= bits::ERROR;
        }
    }

    fn commit_erase(
        &mut self,
        ranges: &[Range<u64>],
        granule: u64,
        share: Share,
    ) -> std::io::Result<()> {
        let granules = |r: &Range<u64>| (r.end - r.start).div_ceil(granule);
        let parts = self.passed(ranges.iter().map(granules).sum(), share);
        let mut first = 0;
        for range in ranges {
            let behind = first + granules(range);
            for part in &parts {
                let (from, to) = (part.start.max(first), part.end.min(behind));
                if from >= to {
                    continue;
                }
                let at = |n: u64| (range.start + (n - first) * granule).min(range.end);
                let part = at(from)..at(to);
                self.cache.forget(&part);
                self.marked.remove(part.clone());
                self.discarded.remove(part.clone());
                self.store.erase(part)?;
            }
            first = behind;
        }
        Ok(())
    }

    /// Which of `whole` parts have changed when `share` of the time has passed: the first ones, or
    /// with a seed any. No order is promised (JESD84-B51 §6.6.9, §6.6.7.1: a part is old or new).
    fn passed(&mut self, whole: u64, share: Share) -> Vec<Range<u64>> {
        let first = share.of(whole);
        if first == 0 || first == whole || self.eviction.is_none() {
            return std::iter::once(0..first).collect();
        }
        let mut parts: Vec<Range<u64>> = Vec::new();
        for n in 0..whole {
            let drawn = u128::from(self.draw().unwrap_or(0));
            if drawn * share.den >= share.num << 31 {
                continue;
            }
            match parts.last_mut() {
                Some(last) if last.end == n => last.end += 1,
                _ => parts.push(n..n + 1),
            }
        }
        parts
    }

    /// Writes up to `lines` of the cache back.
    pub(super) fn write_back(&mut self, lines: usize) -> std::io::Result<()> {
        // All of them in any order is all of them.
        let some = lines < self.cache.len();
        if self.eviction.is_some() && some {
            for _ in 0..lines {
                let dirty = self.cache.len() as u64;
                let nth = self.draw().unwrap_or(0) % dirty.max(1);
                self.cache.write_back_nth(nth as usize, &mut *self.store)?;
            }
            self.log.counters.flushed_lines += lines as u64;
            return Ok(());
        }
        let done = self.cache.write_back(lines, &mut *self.store)?;
        self.log.counters.flushed_lines += done;
        Ok(())
    }
}
