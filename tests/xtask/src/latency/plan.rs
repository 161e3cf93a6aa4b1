//! Which cuts are made: kinds of cards, instants, and what the cache kept.

use emmc::card::Moment;

use super::card::{Kind, Where};
use crate::powercut::Dice;

/// One cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The card.
    pub kind: Kind,
    /// The instant.
    pub place: Where,
    /// Which halves of the record the cache had written back.
    pub kept: [bool; 2],
}

/// What a cut is meant for; what came of it is read from the medium.
#[derive(Clone, Copy, Debug)]
enum Aim {
    Between,
    Torn,
    NoneKept,
    HalfKept,
    AllKept,
}

/// In 25 at least five times each: nothing lost, lost, torn, stale.
const CUTS: [(Kind, Aim); 25] = {
    use Aim::*;
    use Kind::*;
    [
        (On, NoneKept),
        (On, HalfKept),
        (Lying, NoneKept),
        (Off, Torn),
        (Flushed, NoneKept),
        (On, NoneKept),
        (Off, Between),
        (Lying, NoneKept),
        (Off, Torn),
        (On, NoneKept),
        (Flushed, HalfKept),
        (Lying, NoneKept),
        (On, AllKept),
        (Off, Between),
        (Lying, NoneKept),
        (On, NoneKept),
        (Off, Torn),
        (Lying, HalfKept),
        (On, NoneKept),
        (Lying, NoneKept),
        (Flushed, NoneKept),
        (On, NoneKept),
        (Off, Between),
        (Lying, NoneKept),
        (Flushed, AllKept),
    ]
};

/// The first `count` cuts, by seed.
pub fn cuts(count: usize, seed: u64) -> Vec<Cut> {
    let mut dice = Dice(seed);
    let all = (0..count).map(|n| CUTS[n % CUTS.len()]);
    all.map(|(kind, aim)| cut(kind, aim, &mut dice)).collect()
}

fn cut(kind: Kind, aim: Aim, dice: &mut Dice) -> Cut {
    let record = 3 + dice.below(12);
    let hot = Where::Hot(record, dice.below(2));
    let (place, kept) = match aim {
        // One sector of two.
        Aim::Torn => {
            let share = 500 + dice.below(499) as u16;
            (Where::Record(record, Moment::During(share)), [true; 2])
        }
        Aim::Between => (hot, [true; 2]),
        Aim::NoneKept => (hot, [false; 2]),
        Aim::AllKept => (hot, [true; 2]),
        Aim::HalfKept => {
            // With flushes nothing is left to lose between two records.
            let place = Where::Record(record, Moment::During(0));
            (
                place,
                [[true, false], [false, true]][dice.below(2) as usize],
            )
        }
    };
    Cut { kind, place, kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides() {
        assert_eq!(cuts(25, 1), cuts(25, 1));
        assert_ne!(cuts(25, 1), cuts(25, 2));
        let cuts = cuts(30, 1);
        assert_eq!(cuts.len(), 30);
        assert_eq!(cuts[25].kind, cuts[0].kind);
    }
}
