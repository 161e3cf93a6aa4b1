//! Where the whole erase groups of a range are, and what is left over at its ends.

use crate::units::{SectorRange, Sectors};

/// A range cut at erase group borders. The parts are adjacent and make up the range exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Before the first whole group; the card would erase the neighbour's sectors with it.
    pub head: SectorRange,
    /// Whole groups only.
    pub middle: SectorRange,
    /// After the last whole group.
    pub tail: SectorRange,
}

impl Parts {
    /// Cuts `range` for groups of `group` sectors (not zero).
    ///
    /// A card takes the group that contains the address of CMD35 and CMD36 (JESD84-B51 §6.6.9:
    /// address bits below the group size are ignored), so only groups that lie inside the range
    /// wholly are ever named to it.
    pub fn cut(range: SectorRange, group: Sectors) -> Parts {
        let end = range.end();
        let first = range.start.round_up(group).unwrap_or(end);
        let last = end.round_down(group);
        if first >= last {
            // No whole group inside: everything is head.
            let none = SectorRange::between(end, end);
            return Parts {
                head: range,
                middle: none,
                tail: none,
            };
        }
        Parts {
            head: SectorRange::between(range.start, first),
            middle: SectorRange::between(first, last),
            tail: SectorRange::between(last, end),
        }
    }

    /// All middle: for methods that work by sectors.
    pub fn whole(range: SectorRange) -> Parts {
        Parts {
            head: SectorRange::between(range.start, range.start),
            middle: range,
            tail: SectorRange::between(range.end(), range.end()),
        }
    }

    /// Head and tail, where they are not empty.
    pub fn edges(&self) -> impl Iterator<Item = SectorRange> {
        [self.head, self.tail].into_iter().filter(|e| !e.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> SectorRange {
        SectorRange::between(Sectors(start), Sectors(end))
    }

    #[test]
    fn ranges_are_cut_at_group_borders() {
        // (range, head, middle, tail), groups of 1024
        let table = [
            ((1024, 4096), (1024, 1024), (1024, 4096), (4096, 4096)),
            ((1000, 4096), (1000, 1024), (1024, 4096), (4096, 4096)),
            ((1024, 4100), (1024, 1024), (1024, 4096), (4096, 4100)),
            ((1023, 4097), (1023, 1024), (1024, 4096), (4096, 4097)),
            ((1000, 1020), (1000, 1020), (1020, 1020), (1020, 1020)),
            ((1000, 2000), (1000, 2000), (2000, 2000), (2000, 2000)),
            ((1000, 2048), (1000, 1024), (1024, 2048), (2048, 2048)),
            // A start of 8 mod 1024: the case that cost real phones the partition before.
            (
                (67592, 71688),
                (67592, 68608),
                (68608, 71680),
                (71680, 71688),
            ),
        ];
        for ((start, end), head, middle, tail) in table {
            let parts = Parts::cut(range(start, end), Sectors(1024));
            assert_eq!(parts.head, range(head.0, head.1), "{start}..{end}");
            assert_eq!(parts.middle, range(middle.0, middle.1), "{start}..{end}");
            assert_eq!(parts.tail, range(tail.0, tail.1), "{start}..{end}");
        }
    }

    #[test]
    fn parts_make_up_the_range() {
        fn property(start: u32, length: u16, group: u8) -> bool {
            let group = Sectors(u64::from(group) * 8 + 8);
            let start = u64::from(start);
            let whole = range(start, start + u64::from(length));
            let parts = Parts::cut(whole, group);
            let aligned = parts.middle.is_empty()
                || (parts.middle.start.0 % group.0 == 0 && parts.middle.end().0 % group.0 == 0);
            aligned
                && parts.head.start == whole.start
                && parts.head.end() == parts.middle.start
                && parts.middle.end() == parts.tail.start
                && parts.tail.end() == whole.end()
                && parts.head.length < group + group
                && parts.tail.length < group
        }
        quickcheck::quickcheck(property as fn(u32, u16, u8) -> bool);
    }
}
