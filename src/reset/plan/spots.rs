//! Where it is looked: samples inside a range, neighbours outside of it.

use crate::reset::canary::spread;
use crate::reset::facts::NEAR;
use crate::units::{SectorRange, Sectors};

/// Seeded samples per target, besides the borders.
const SAMPLES: u64 = 256;

/// First and last sector of a range.
pub fn borders(range: SectorRange) -> [Sectors; 2] {
    [range.start, range.end() - Sectors(1)]
}

/// Up to [`SAMPLES`] seeded positions, and the first and last sector of the first and last group.
pub fn samples(middle: SectorRange, group: Sectors, seed: u64) -> Vec<Sectors> {
    if middle.is_empty() {
        return Vec::new();
    }
    let last = middle.end() - Sectors(1);
    let mut positions = vec![
        middle.start,
        (middle.start + group - Sectors(1)).min(last),
        last.round_down(group).max(middle.start),
        last,
    ];
    // One draw in each of equal parts: evenly spread, and still unknown to the card.
    let parts = SAMPLES.min(middle.length.0);
    let mut state = seed ^ middle.start.0;
    for part in 0..parts {
        let from = middle.length.0 * part / parts;
        let to = middle.length.0 * (part + 1) / parts;
        state = spread(state);
        positions.push(middle.start + Sectors(from + state % (to - from)));
    }
    positions.sort();
    positions.dedup();
    positions
}

/// On each side: the rest of the group that the range shares, at least one sector, at most 1 MiB.
pub fn neighbours(range: SectorRange, group: Sectors, capacity: Sectors) -> Vec<SectorRange> {
    const MOST: u64 = NEAR.0;
    const BLOCK: u64 = 8;
    let before = range
        .start
        .round_down(group)
        .0
        .min(range.start.0.saturating_sub(1));
    let before = before.max(range.start.0.saturating_sub(MOST));
    // Whole blocks of disks that have larger ones: 4 KiB is the largest there is.
    let before = before - before % BLOCK;
    let after = range.end().round_up(group).map_or(u64::MAX, |s| s.0);
    let after = after.max(range.end().0.saturating_add(1));
    let after = after.min(range.end().0.saturating_add(MOST));
    let after = (after.saturating_add(BLOCK - 1) / BLOCK * BLOCK).min(capacity.0);
    [
        SectorRange::between(Sectors(before), range.start),
        SectorRange::between(range.end(), Sectors(after)),
    ]
    .into_iter()
    .filter(|n| !n.is_empty())
    .collect()
}

/// `ranges` without the sectors of `cuts`.
pub fn without(ranges: &[SectorRange], cuts: &[SectorRange]) -> Vec<SectorRange> {
    cuts.iter().fold(ranges.to_vec(), |rest, cut| {
        rest.into_iter()
            .flat_map(|range| {
                [
                    SectorRange::between(range.start, cut.start.min(range.end())),
                    SectorRange::between(cut.end().max(range.start), range.end()),
                ]
            })
            .filter(|range| !range.is_empty())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> SectorRange {
        SectorRange::between(Sectors(start), Sectors(end))
    }

    #[test]
    fn cuts_take_out_their_sectors_and_no_others() {
        let table = [
            (vec![range(20, 30)], vec![range(10, 20), range(30, 40)]),
            (vec![range(0, 10)], vec![range(10, 40)]),
            (vec![range(40, 50)], vec![range(10, 40)]),
            (vec![range(0, 50)], vec![]),
            (vec![range(5, 15), range(35, 45)], vec![range(15, 35)]),
        ];
        for (cuts, want) in table {
            assert_eq!(without(&[range(10, 40)], &cuts), want, "{cuts:?}");
        }
    }

    #[test]
    fn neighbours_begin_and_end_on_blocks_of_4_kib() {
        for start in [8, 1024, 1032] {
            for near in neighbours(range(start, start + 4096), Sectors(1), Sectors(1 << 20)) {
                assert_eq!((near.start.0 % 8, near.end().0 % 8), (0, 0), "{near}");
            }
        }
    }
}
