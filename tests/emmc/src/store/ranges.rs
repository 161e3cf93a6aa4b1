//! A set of sectors kept as disjoint, sorted ranges.
use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint half-open ranges; adjacent ones are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// No sector at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// True without any sector.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of sectors in the set.
    pub fn sectors(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // the ranges that overlap or touch the new one
        let touching: Vec<u64> = self
            .0
            .range(..=end)
            .rev()
            .take_while(|(_, &e)| e >= start)
            .map(|(&s, _)| s)
            .collect();
        for s in touching {
            let e = self.0.remove(&s).unwrap_or(s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let hit: Vec<(u64, u64)> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|(_, &e)| e > range.start)
            .map(|(&s, &e)| (s, e))
            .collect();
        for (s, e) in hit {
            self.0.remove(&s);
            if s < range.start {
                self.0.insert(s, range.start);
            }
            if e > range.end {
                self.0.insert(range.end, e);
            }
        }
    }

    /// True if the sector is in the set.
    pub fn contains(&self, sector: u64) -> bool {
        self.0
            .range(..=sector)
            .next_back()
            .is_some_and(|(_, &end)| end > sector)
    }

    /// Cuts `range` into maximal pieces that lie wholly inside (`true`) or outside (`false`).
    pub fn split(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut out = Vec::new();
        let mut at = range.start;
        let first = self.0.range(..=at).next_back().map_or(at, |(&s, _)| s);
        for (&s, &e) in self.0.range(first..) {
            if s >= range.end {
                break;
            }
            if e <= at {
                continue;
            }
            if s > at {
                out.push((at..s, false));
                at = s;
            }
            let end = e.min(range.end);
            out.push((at..end, true));
            at = end;
        }
        if at < range.end {
            out.push((at..range.end, false));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain bit vector, with a fixed pseudo-random sequence.
    #[test]
    fn agrees_with_a_bit_vector() {
        let mut set = RangeSet::new();
        let mut bits = [false; 64];
        let mut x = 12345u64;
        let mut next = |n: u64| {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for _ in 0..2000 {
            let start = next(64);
            let range = start..(start + next(20)).min(64);
            let add = next(2) == 0;
            for i in range.clone() {
                bits[i as usize] = add;
            }
            if add {
                set.insert(range);
            } else {
                set.remove(range);
            }
            for (i, &bit) in bits.iter().enumerate() {
                assert_eq!(set.contains(i as u64), bit);
            }
            assert_eq!(
                set.sectors(),
                bits.iter().filter(|b| **b).count() as u64,
                "{set:?}"
            );
            let a = next(64);
            let b = a + next(65 - a);
            let mut at = a;
            for (piece, inside) in set.split(a..b) {
                assert_eq!(piece.start, at);
                assert!(piece.clone().all(|i| bits[i as usize] == inside));
                at = piece.end;
            }
            assert_eq!(at, b);
        }
        let starts: Vec<_> = set.iter().collect();
        assert!(
            starts.windows(2).all(|w| w[0].end < w[1].start),
            "{starts:?}"
        );
    }
}
