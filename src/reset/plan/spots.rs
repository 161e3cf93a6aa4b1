//! Where it is looked: samples inside a range, neighbours outside of it.

use crate::reset::canary::spread;
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
    const MOST: u64 = 2048;
    let before = range
        .start
        .round_down(group)
        .0
        .min(range.start.0.saturating_sub(1));
    let before = before.max(range.start.0.saturating_sub(MOST));
    let after = range.end().round_up(group).map_or(u64::MAX, |s| s.0);
    let after = after.max(range.end().0.saturating_add(1));
    let after = after
        .min(range.end().0.saturating_add(MOST))
        .min(capacity.0);
    [
        SectorRange::between(Sectors(before), range.start),
        SectorRange::between(range.end(), Sectors(after)),
    ]
    .into_iter()
    .filter(|n| !n.is_empty())
    .collect()
}
