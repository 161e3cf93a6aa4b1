//! What the kernel would do instead, and a model of the time that either takes.

use crate::reset::facts::Disk;
use crate::units::{SectorRange, Sectors};
use std::time::Duration;

/// The card of the kernel mailing list's thread on this subject (2015): 22 GiB in 44k secure erase
/// commands of one 512 KiB group took about 20 minutes, in one command 1.4 s. Two numbers fitted to
/// these two rows; an example, not a promise about another card.
pub const PER_COMMAND: Duration = Duration::from_micros(26_500);
/// Time for each erase group, on the same card.
pub const PER_GROUP: Duration = Duration::from_micros(31);

/// One way to erase a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// CMD38s.
    pub commands: u64,
    /// By the model.
    pub time: Duration,
}

impl Cost {
    /// `commands` CMD38s over `groups` erase groups in all.
    pub fn new(commands: u64, groups: u64) -> Cost {
        let times = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Cost {
            commands,
            time: PER_COMMAND * times(commands) + PER_GROUP * times(groups),
        }
    }
}

/// What BLKSECDISCARD over whole groups would send: the block layer splits it at the disk's discard
/// limit (queue/discard_max_bytes; from 5.19 on a limit of its own with the same value), which the
/// MMC driver keeps to whole groups. `None` where the limit is unknown or the kernel has none.
pub fn kernel(disk: &Disk, middle: SectorRange, group: Sectors) -> Option<Cost> {
    let limit = disk.discard_max.value()?.to_sectors()?;
    let step = limit.round_down(group);
    if step.is_zero() || middle.is_empty() {
        return None;
    }
    let commands = middle.length.0.div_ceil(step.0);
    Some(Cost::new(commands, middle.length.0 / group.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_fitted_to_two_rows() {
        let split = Cost::new(45_056, 45_056).time.as_secs_f64();
        let one = Cost::new(1, 45_056).time.as_secs_f64();
        assert!((split / 60.0 - 20.0).abs() < 0.2, "{split}");
        assert!((one - 1.4).abs() < 0.05, "{one}");
    }
}
