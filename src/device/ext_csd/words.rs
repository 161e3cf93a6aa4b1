//! What the values of EXT_CSD fields mean, where a factor or a table does not say it.

use super::{field, ExtCsd};
use crate::units::Bytes;

/// PRE_EOL_INFO: reserved blocks.
pub(super) const PRE_EOL: &[(u8, &str)] = &[
    (0, "not defined"),
    (1, "normal"),
    (2, "warning: 80 % of the reserved blocks are used"),
    (3, "urgent: 90 % of the reserved blocks are used"),
];

/// The standard that EXT_CSD_REV stands for.
pub fn standard(rev: u8) -> &'static str {
    match rev {
        0 => "eMMC 4.0",
        1 => "eMMC 4.1",
        2 => "eMMC 4.2",
        3 => "eMMC 4.3",
        4 => "eMMC 4.4",
        5 => "eMMC 4.41",
        6 => "eMMC 4.5",
        7 => "eMMC 5.0",
        8 => "eMMC 5.1",
        9 => "eMMC 5.1B",
        _ => "not known",
    }
}

/// DEVICE_LIFE_TIME_EST_*: steps of 10 %.
pub(super) fn life_time(value: u8) -> String {
    match value {
        0 => "not defined".to_owned(),
        1..=10 => format!("{} to {} % used", (value - 1) * 10, u32::from(value) * 10),
        11 => "past its estimated life time".to_owned(),
        _ => reserved(),
    }
}

pub(super) fn reserved() -> String {
    "reserved value".to_owned()
}

pub(super) fn hpi(e: &ExtCsd) -> String {
    match (e.0[503] & 1, e.0[503] >> 1 & 1) {
        (0, _) => "not supported",
        (_, 0) => "HPI by CMD13",
        _ => "HPI by CMD12",
    }
    .to_owned()
}

pub(super) fn large_unit(e: &ExtCsd) -> String {
    format!("{} MiB", u32::from(e.0[495]) + 1)
}

pub(super) fn queue_depth(e: &ExtCsd) -> String {
    format!("{} tasks", u32::from(e.0[307] & 0x1f) + 1)
}

pub(super) fn trim_unit(e: &ExtCsd) -> String {
    match e.0[264] {
        0 => "not defined".to_owned(),
        n @ 1..=21 => Bytes(4096 << (n - 1)).to_string(),
        _ => reserved(),
    }
}

pub(super) fn cache_size(e: &ExtCsd) -> String {
    match e.cache_kilobits() {
        0 => "no cache".to_owned(),
        kilobits => Bytes(u64::from(kilobits) * 128).to_string(),
    }
}

/// SEC_ERASE_MULT and SEC_TRIM_MULT: 300 ms × ERASE_TIMEOUT_MULT × the factor.
pub(super) fn secure_time(e: &ExtCsd, at: usize) -> String {
    let millis = 300 * u32::from(e.erase_timeout_mult()) * u32::from(e.0[at]);
    format!("{millis} ms per erase group")
}

pub(super) fn access_size(e: &ExtCsd) -> String {
    match e.0[225] & 0xf {
        0 => "not defined".to_owned(),
        n @ 1..=8 => Bytes(512 << (n - 1)).to_string(),
        _ => reserved(),
    }
}

/// HC_WP_GRP_SIZE high-capacity erase groups, in bytes.
fn protect_group_bytes(e: &ExtCsd) -> u64 {
    512 * 1024 * u64::from(e.0[field::HC_ERASE_GRP_SIZE]) * u64::from(e.0[field::HC_WP_GRP_SIZE])
}

pub(super) fn protect_group(e: &ExtCsd) -> String {
    Bytes(protect_group_bytes(e)).to_string()
}

/// A size of 3 bytes in write-protect groups.
pub(super) fn protect_groups(e: &ExtCsd, at: usize) -> String {
    let groups = u64::from(e.0[at]) | u64::from(e.0[at + 1]) << 8 | u64::from(e.0[at + 2]) << 16;
    Bytes(groups * protect_group_bytes(e)).to_string()
}

pub(super) fn sleep_current(value: u8) -> String {
    match value {
        0 => "not defined".to_owned(),
        1..=13 => format!("{} µA at most", 1u32 << value),
        _ => reserved(),
    }
}

/// `unit_us` × 2^value.
pub(super) fn power_of_two(value: u8, largest: u8, unit_us: u64) -> String {
    match value {
        0 => "not defined".to_owned(),
        value if value <= largest => format!("{} µs", unit_us << value),
        _ => reserved(),
    }
}

/// The same in nanoseconds.
pub(super) fn power_of_two_ns(value: u8, largest: u8, unit_ns: u64) -> String {
    match value {
        0 => "not defined".to_owned(),
        value if value <= largest => format!("{} ns", unit_ns << value),
        _ => reserved(),
    }
}

pub(super) fn capacity(e: &ExtCsd) -> String {
    e.sec_count().to_bytes().to_string()
}

pub(super) fn timing(e: &ExtCsd) -> String {
    let mode = match e.0[185] & 0xf {
        0 => "backward compatible",
        1 => "high speed",
        2 => "HS200",
        3 => "HS400",
        _ => return reserved(),
    };
    match e.0[185] >> 4 {
        0 => mode.to_owned(),
        strength => format!("{mode}, driver strength {strength}"),
    }
}

pub(super) fn bus_width(e: &ExtCsd) -> String {
    let width = match e.0[183] & 0xf {
        0 => "1 bit",
        1 => "4 bit",
        2 => "8 bit",
        5 => "4 bit DDR",
        6 => "8 bit DDR",
        _ => return reserved(),
    };
    match e.0[183] >> 7 {
        0 => width.to_owned(),
        _ => format!("{width}, enhanced strobe"),
    }
}

pub(super) fn partition_config(e: &ExtCsd) -> String {
    const AREAS: [&str; 8] = [
        "user area",
        "boot 1",
        "boot 2",
        "RPMB",
        "GP 1",
        "GP 2",
        "GP 3",
        "GP 4",
    ];
    let value = e.0[179];
    let boot = match value >> 3 & 7 {
        0 => "no boot area",
        1 => "boots from boot 1",
        2 => "boots from boot 2",
        7 => "boots from the user area",
        _ => "boot area reserved",
    };
    let acknowledged = match value >> 6 & 1 {
        0 => "",
        _ => ", boot acknowledge",
    };
    format!(
        "{boot}, access to {}{acknowledged}",
        AREAS[usize::from(value & 7)]
    )
}

pub(super) fn wake_up(e: &ExtCsd) -> String {
    const UNITS: [&str; 6] = ["", "months", "weeks", "days", "hours", "minutes"];
    match (e.0[131] & 7, e.0[131] >> 3) {
        (0, _) => "none".to_owned(),
        (unit, number) => match UNITS.get(usize::from(unit)) {
            Some(unit) => format!("every {number} {unit}"),
            None => reserved(),
        },
    }
}

pub(super) fn secure_removal(e: &ExtCsd) -> String {
    const TYPES: [&str; 4] = [
        "erase",
        "overwrite, then erase",
        "overwrite, complement, random",
        "as the maker defines",
    ];
    let value = e.0[16];
    let supported: Vec<&str> = (0..4)
        .filter(|bit| value >> bit & 1 != 0)
        .map(|bit| TYPES[bit])
        .collect();
    match supported.is_empty() {
        true => "not defined".to_owned(),
        false => format!(
            "{}; can: {}",
            TYPES[usize::from(value >> 4 & 3)],
            supported.join(" | ")
        ),
    }
}
