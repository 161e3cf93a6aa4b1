//! The volatile write-back cache.
use crate::store::{Store, SECTOR};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Sectors per line.
const LINE: u64 = 8;

struct Line {
    /// Bit n: sector n of the line is dirty.
    dirty: u8,
    data: Box<[u8; LINE as usize * SECTOR]>,
}

impl Line {
    fn sector(&self, i: usize) -> &[u8] {
        &self.data[i * SECTOR..][..SECTOR]
    }

    /// Puts the dirty sectors onto the medium.
    fn write(&self, number: u64, store: &mut dyn Store) -> io::Result<()> {
        if self.dirty == 0xff {
            return store.write(number * LINE, &self.data[..]);
        }
        (0..LINE)
            .filter(|i| self.dirty >> i & 1 != 0)
            .try_for_each(|i| store.write(number * LINE + i, self.sector(i as usize)))
    }
}

/// Dirty data by line of 4 KiB. The lowest line is written back first; a real card's order
/// is unknown, and nothing may depend on it.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<u64, Line>);

/// Lines that a cache of so many bytes holds.
pub(super) fn lines(bytes: u64) -> usize {
    (bytes / (LINE * SECTOR as u64)).max(1) as usize
}

impl Cache {
    /// Number of dirty lines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of dirty sectors within a range.
    pub fn dirty_in(&self, range: &Range<u64>) -> u64 {
        self.lines_of(range)
            .flat_map(|(&n, line)| (0..LINE).map(move |i| (n * LINE + i, line.dirty >> i & 1)))
            .filter(|(lba, dirty)| *dirty != 0 && range.contains(lba))
            .count() as u64
    }

    fn lines_of(&self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &Line)> {
        self.0.range(range.start / LINE..range.end.div_ceil(LINE))
    }

    /// Takes written sectors.
    pub fn write(&mut self, sector: u64, data: &[u8]) {
        for (lba, content) in (sector..).zip(data.chunks_exact(SECTOR)) {
            let line = self.0.entry(lba / LINE).or_insert_with(|| Line {
                dirty: 0,
                data: Box::new([0; LINE as usize * SECTOR]),
            });
            let i = (lba % LINE) as usize;
            line.dirty |= 1 << i;
            line.data[i * SECTOR..][..SECTOR].copy_from_slice(content);
        }
    }

    /// Replaces what the medium returned by newer data.
    pub fn overlay(&self, sector: u64, buf: &mut [u8]) {
        let range = sector..sector + (buf.len() / SECTOR) as u64;
        for (&number, line) in self.lines_of(&range) {
            for i in 0..LINE {
                let lba = number * LINE + i;
                if line.dirty >> i & 1 != 0 && range.contains(&lba) {
                    let at = (lba - sector) as usize * SECTOR;
                    buf[at..at + SECTOR].copy_from_slice(line.sector(i as usize));
                }
            }
        }
    }

    /// Forgets dirty sectors of a range: they were erased or overwritten on the medium.
    pub fn forget(&mut self, range: &Range<u64>) {
        let lines = range.start / LINE..range.end.div_ceil(LINE);
        let mut clean = Vec::new();
        for (&number, line) in self.0.range_mut(lines) {
            for i in 0..LINE {
                if range.contains(&(number * LINE + i)) {
                    line.dirty &= !(1 << i);
                }
            }
            if line.dirty == 0 {
                clean.push(number);
            }
        }
        for number in clean {
            self.0.remove(&number);
        }
    }

    /// Writes the lines back that `chosen` takes, by number; returns how many.
    pub fn write_back_some(
        &mut self,
        mut chosen: impl FnMut(u64) -> bool,
        store: &mut dyn Store,
    ) -> io::Result<u64> {
        let numbers: Vec<_> = self.0.keys().copied().filter(|n| chosen(*n)).collect();
        for number in &numbers {
            if let Some(line) = self.0.remove(number) {
                line.write(*number, store)?;
            }
        }
        Ok(numbers.len() as u64)
    }

    /// Writes the `n`-th dirty line back.
    pub fn write_back_nth(&mut self, n: usize, store: &mut dyn Store) -> io::Result<()> {
        let Some(number) = self.0.keys().nth(n).copied() else {
            return Ok(());
        };
        match self.0.remove(&number) {
            Some(line) => line.write(number, store),
            None => Ok(()),
        }
    }

    /// Writes up to `count` lines back; returns how many.
    pub fn write_back(&mut self, count: usize, store: &mut dyn Store) -> io::Result<u64> {
        let mut done = 0;
        while done < count as u64 {
            let Some((number, line)) = self.0.pop_first() else {
                break;
            };
            line.write(number, store)?;
            done += 1;
        }
        Ok(done)
    }
}
