//! How long a card may be busy with one erase.

use crate::device::ext_csd::ExtCsd;
use std::time::Duration;

/// JESD84-B51 §7.4.58 and §7.4.65: the unit of both multipliers.
const UNIT_MILLIS: u64 = 300;

/// Less is never asked for: cards with small multipliers have been seen to need seconds.
pub const FLOOR: Duration = Duration::from_secs(60);

/// More is never asked for: sdhci computes microseconds in 32 bits (`sdhci_target_timeout`), and a
/// larger number wraps to a short one.
pub const CAP: Duration = Duration::from_millis(4_294_967);

/// What the specification allows one CMD38 with `argument` over `groups` erase groups, before floor
/// and cap: 300 ms times the multipliers of its kind (JESD84-B51 §6.6.9 to §6.6.12).
pub fn specified(csd: &ExtCsd, argument: u32, groups: u64) -> Duration {
    const SECURE: u32 = 1 << 31;
    const TRIM: u32 = 1;
    const SECURE_TRIM_STEP_2: u32 = 1 << 15;
    let erase = u64::from(csd.erase_timeout_mult().max(1));
    let factor = if argument & SECURE == 0 && argument & TRIM != 0 {
        u64::from(csd.trim_mult().max(1))
    } else if argument & SECURE == 0 {
        erase
    } else if argument & (TRIM | SECURE_TRIM_STEP_2) != 0 {
        erase.saturating_mul(u64::from(csd.sec_trim_mult().max(1)))
    } else {
        erase.saturating_mul(u64::from(csd.sec_erase_mult().max(1)))
    };
    Duration::from_millis(UNIT_MILLIS.saturating_mul(factor).saturating_mul(groups))
}

/// The limit to give to one CMD38: [`specified`], within [`FLOOR`] and [`CAP`]. The specification's
/// value is far above what cards need for many groups at once (22 GiB: hours against 1.4 s), so the
/// cap is not short.
pub fn limit(csd: &ExtCsd, argument: u32, groups: u64) -> Duration {
    specified(csd, argument, groups).clamp(FLOOR, CAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csd(erase: u8, secure_trim: u8, secure_erase: u8, trim: u8) -> ExtCsd {
        let mut bytes = [0; 512];
        bytes[223] = erase;
        bytes[229] = secure_trim;
        bytes[230] = secure_erase;
        bytes[232] = trim;
        ExtCsd(bytes)
    }

    #[test]
    fn each_kind_has_its_multipliers() {
        let csd = csd(2, 5, 7, 3);
        let table = [
            (0x0000_0000, 2),
            (0x0000_0001, 3),
            (0x8000_0000, 2 * 7),
            (0x8000_0001, 2 * 5),
            (0x8000_8000, 2 * 5),
        ];
        for (argument, factor) in table {
            assert_eq!(
                specified(&csd, argument, 10),
                Duration::from_millis(300 * factor * 10),
                "{argument:#x}"
            );
        }
    }

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
            assert_eq!(limit(&csd(erase, 1, secure, 1), 0x8000_0000, groups), want);
        }
    }
}
