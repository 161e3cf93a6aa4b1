//! Where in a reset the card is, told from the commands that reach it, and the cut at a chosen one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use emmc::card::{Moment, Outage};

/// CMD6 that writes 1 to FLUSH_CACHE.
const FLUSH: u32 = 0x0320_0101;

/// What a run does, by what the card sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From the write of the restart marker until something else is written.
    Marker,
    /// Canaries are written and flushed.
    Canaries,
    /// Ragged edges are overwritten.
    Edges,
    /// A CMD38 is being carried out.
    Erase,
    /// Between two CMD38.
    BetweenChunks,
    /// Cache flushed and everything read back.
    Verify,
    /// mkfs writes.
    Format,
    /// The marker is removed.
    Finish,
}

impl Phase {
    /// All of them; a short suite takes the first ones.
    pub const ALL: [Self; 8] = [
        Self::Erase,
        Self::Marker,
        Self::Edges,
        Self::Format,
        Self::BetweenChunks,
        Self::Verify,
        Self::Canaries,
        Self::Finish,
    ];

    /// Name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Marker => "marker",
            Self::Canaries => "canaries",
            Self::Edges => "edges",
            Self::Erase => "inside_cmd38",
            Self::BetweenChunks => "between_chunks",
            Self::Verify => "verification",
            Self::Format => "format",
            Self::Finish => "finish",
        }
    }

    /// Order in time; CMD38 and the gaps between them alternate.
    fn rank(self) -> Self {
        match self {
            Self::BetweenChunks => Self::Erase,
            other => other,
        }
    }
}

/// Where things lie, in sectors, and how many CMD38 a run sends.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The partition with the marker.
    pub misc: Range<u64>,
    /// What is erased.
    pub targets: Vec<Range<u64>>,
    /// CMD38 of a whole run.
    pub erases: u64,
}

/// What has been seen.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Commands by phase.
    pub seen: BTreeMap<Phase, u64>,
    /// Where the power failed: phase, command, argument.
    pub cut: Option<(Phase, u8, u32, Moment)>,
}

/// Random numbers that a seed decides (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// Follows a run; with a `plan` it ends the power at the nth command of a phase, from 0.
#[derive(Debug)]
pub struct Watch {
    layout: Layout,
    plan: Option<(Phase, u64)>,
    dice: Dice,
    phase: Option<Phase>,
    flushed: bool,
    erases: u64,
    over: bool,
    record: Arc<Mutex<Record>>,
}

impl Watch {
    /// Before the run.
    pub fn new(layout: Layout, plan: Option<(Phase, u64)>, dice: Dice) -> Self {
        Self {
            layout,
            plan,
            dice,
            phase: None,
            flushed: false,
            erases: 0,
            over: false,
            record: Arc::default(),
        }
    }

    /// What it sees, to be read while the card has it.
    pub fn record(&self) -> Arc<Mutex<Record>> {
        self.record.clone()
    }

    /// The phase that the command belongs to, if it is one of the run.
    fn follow(&mut self, command: u8, argument: u32) -> Option<Phase> {
        use Phase::*;
        // Polling, stopping and announcing belong to what they are for.
        if matches!(command, 12 | 13 | 23) || self.over {
            return None;
        }
        let sector = u64::from(argument);
        let write = matches!(command, 24 | 25);
        let data = matches!(command, 17 | 18 | 24 | 25);
        let in_target = data && self.layout.targets.iter().any(|t| t.contains(&sector));
        let to_target = write && in_target;
        let to_misc = write && self.layout.misc.contains(&sector);
        let phase = match self.phase {
            None if to_misc => Marker,
            None | Some(Marker) if to_target => Canaries,
            Some(Canaries) if to_target && self.flushed => Edges,
            Some(Canaries | Edges | Erase | BetweenChunks) if command == 38 => Erase,
            Some(Erase) if self.erases < self.layout.erases => BetweenChunks,
            Some(Erase) => Verify,
            Some(Verify | Format) if to_misc => Finish,
            Some(Verify) if to_target => Format,
            Some(Finish) if in_target => {
                // The system mounts.
                self.over = true;
                return None;
            }
            other => other?,
        };
        self.phase = Some(phase);
        self.flushed |= phase == Canaries && command == 6 && argument == FLUSH;
        self.erases += u64::from(command == 38);
        Some(phase)
    }
}

impl Outage for Watch {
    fn command(&mut self, command: u8, argument: u32) -> Option<Moment> {
        let phase = self.follow(command, argument)?;
        let mut record = self.record.lock().unwrap_or_else(|e| e.into_inner());
        let count = record.seen.entry(phase).or_default();
        let number = *count;
        *count += 1;
        let (wanted, nth) = self.plan?;
        // A run may have fewer commands than the one that was counted.
        let late = phase.rank() > wanted.rank();
        if !late && (phase != wanted || number < nth) {
            return None;
        }
        let share = self.dice.below(1000) as u16;
        let moment = match command {
            38 => Moment::During(share.max(1)),
            6 | 24 | 25 if self.dice.below(2) == 0 => Moment::During(share),
            _ => Moment::Before,
        };
        record.cut = Some((phase, command, argument, moment));
        Some(moment)
    }

    fn written_back(&mut self, _line: u64) -> bool {
        self.dice.below(2) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            misc: 10..20,
            targets: vec![100..200, 300..400],
            erases: 2,
        }
    }

    /// A whole run, with what each command belongs to.
    const RUN: &[(u8, u32, Option<Phase>)] = &[
        (18, 10, None),
        (25, 50, None),
        (25, 10, Some(Phase::Marker)),
        (6, FLUSH, Some(Phase::Marker)),
        (18, 10, Some(Phase::Marker)),
        (25, 300, Some(Phase::Canaries)),
        (24, 110, Some(Phase::Canaries)),
        (6, FLUSH, Some(Phase::Canaries)),
        (25, 300, Some(Phase::Edges)),
        (6, FLUSH, Some(Phase::Edges)),
        (35, 100, Some(Phase::Edges)),
        (36, 199, Some(Phase::Edges)),
        (38, 0, Some(Phase::Erase)),
        (13, 0, None),
        (35, 310, Some(Phase::BetweenChunks)),
        (36, 390, Some(Phase::BetweenChunks)),
        (38, 0, Some(Phase::Erase)),
        (13, 0, None),
        (6, FLUSH, Some(Phase::Verify)),
        (18, 100, Some(Phase::Verify)),
        (25, 100, Some(Phase::Format)),
        (18, 10, Some(Phase::Format)),
        (25, 10, Some(Phase::Finish)),
        (18, 10, Some(Phase::Finish)),
        (18, 100, None),
        (18, 10, None),
        (25, 100, None),
    ];

    #[test]
    fn a_run_is_followed() {
        let mut watch = Watch::new(layout(), None, Dice(1));
        for (n, (command, argument, phase)) in RUN.iter().enumerate() {
            assert_eq!(watch.follow(*command, *argument), *phase, "command {n}");
        }
    }

    #[test]
    fn every_planned_command_is_hit() {
        for phase in Phase::ALL {
            let count = RUN.iter().filter(|(.., p)| *p == Some(phase)).count() as u64;
            assert!(count > 0, "{phase:?}");
            for nth in 0..count {
                let mut watch = Watch::new(layout(), Some((phase, nth)), Dice(nth));
                let record = watch.record();
                let at = RUN
                    .iter()
                    .position(|(command, argument, _)| watch.command(*command, *argument).is_some())
                    .unwrap();
                assert_eq!(RUN[at].2, Some(phase));
                let before = RUN[..at].iter().filter(|(.., p)| *p == Some(phase));
                assert_eq!(before.count() as u64, nth);
                assert_eq!(record.lock().unwrap().cut.unwrap().0, phase);
            }
            // One too many: the power fails at the next phase, if there is one.
            let mut watch = Watch::new(layout(), Some((phase, count)), Dice(0));
            let hit = RUN.iter().find(|(c, a, _)| watch.command(*c, *a).is_some());
            assert_eq!(hit.is_none(), phase == Phase::Finish, "{phase:?}");
        }
    }
}
