//! How long the card is busy.
use serde::{Deserialize, Serialize};

/// Durations of the model, in microseconds. All zero: every command ends at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Access time before the first block of a read.
    pub read_us: u64,
    /// A plain write that goes to the medium.
    pub write_us: u64,
    /// More per KiB of any write to the medium.
    pub write_kib_us: u64,
    /// A write that only goes to the cache.
    pub cached_us: u64,
    /// A reliable write.
    pub reliable_us: u64,
    /// FLUSH_CACHE, and turning the cache off.
    pub flush_us: u64,
    /// More per 4 KiB line written back, also by an eviction.
    pub flush_line_us: u64,
    /// Any CMD38.
    pub erase_us: u64,
    /// More per erase group that a CMD38 touches.
    pub erase_group_us: u64,
    /// CMD6, unless it has a time of its own.
    pub switch_us: u64,
    /// SANITIZE_START.
    pub sanitize_us: u64,
}

impl Timing {
    /// No delay at all.
    pub fn zero() -> Self {
        Self::default()
    }

    /// Erase times fitted to the first and the last row of the published split table for
    /// 22 GiB = 45056 groups of 512 KiB: one command per group about 20 min (here 1195 s),
    /// one command for everything about 1.4 s (here 1.42 s). Nothing else is known of that
    /// card, so nothing else takes time.
    pub fn seed_card() -> Self {
        Timing {
            erase_us: 26_500,
            erase_group_us: 31,
            ..Self::zero()
        }
    }
}
