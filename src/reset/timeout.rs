//! How long a card may be busy with one erase.

use std::time::Duration;

/// JESD84-B51 §7.4.58 and §7.4.65: the unit of both multipliers.
const UNIT_MILLIS: u64 = 300;

/// Less is never asked for: cards with small multipliers have been seen to need seconds.
pub const FLOOR: Duration = Duration::from_secs(60);

/// More is never asked for: sdhci computes microseconds in 32 bits (`sdhci_target_timeout`), and a
/// larger number wraps to a short one.
pub const CAP: Duration = Duration::from_millis(4_294_967);

/// The limit of one secure erase of `groups` erase groups: 300 ms × ERASE_TIMEOUT_MULT ×
/// SEC_ERASE_MULT × groups, within [`FLOOR`] and [`CAP`]. The specification's value is far above
/// what cards need for many groups at once (22 GiB: hours against 1.4 s), so the cap is not short.
pub fn secure_erase(erase_timeout_mult: u8, sec_erase_mult: u8, groups: u64) -> Duration {
    let millis = UNIT_MILLIS
        .saturating_mul(u64::from(erase_timeout_mult.max(1)))
        .saturating_mul(u64::from(sec_erase_mult.max(1)))
        .saturating_mul(groups);
    Duration::from_millis(millis).clamp(FLOOR, CAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_stay_between_floor_and_cap() {
        let table = [
            ((1, 1, 1), FLOOR),
            ((0, 0, 1), FLOOR),
            ((1, 1, 1000), Duration::from_secs(300)),
            ((2, 27, 45056), CAP),
            ((255, 255, u64::MAX), CAP),
        ];
        for ((erase, secure, groups), want) in table {
            assert_eq!(secure_erase(erase, secure, groups), want);
        }
    }
}
