//! The fields of a register with their values, as people read them.

use super::registers::{registers, Kind, Register};
use super::{words, ExtCsd};
use crate::units::Bytes;

/// A field with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Lowest byte.
    pub at: u16,
    /// Bytes.
    pub length: u16,
    /// JEDEC's name; `RESERVED` for bytes that the card's revision does not name and that are not 0.
    pub name: &'static str,
    /// Hexadecimal, the highest byte first; in the order of the bytes where there are more than 4.
    pub value: String,
    /// What it means; empty where the number says it.
    pub meaning: String,
}

impl ExtCsd {
    fn number(&self, register: &Register) -> u64 {
        let at = usize::from(register.at);
        let bytes = &self.0[at..at + usize::from(register.length)];
        bytes
            .iter()
            .rev()
            .take(8)
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn hex(&self, at: u16, length: u16) -> String {
        let bytes = &self.0[usize::from(at)..usize::from(at + length)];
        if length > 4 {
            return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        }
        let digits: String = bytes
            .iter()
            .rev()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("0x{digits}")
    }

    fn meaning(&self, register: &Register) -> String {
        let number = self.number(register);
        match register.kind {
            Kind::Number => match number {
                0..=9 => String::new(),
                number => number.to_string(),
            },
            Kind::Times(factor, "KiB") => Bytes(number * u64::from(factor) * 1024).to_string(),
            Kind::Times(factor, unit) => format!("{} {unit}", number * u64::from(factor)),
            Kind::Words(words) => words
                .iter()
                .find(|(value, _)| u64::from(*value) == number)
                .map_or_else(words::reserved, |(_, word)| (*word).to_owned()),
            Kind::Bits(groups) => bits(number, groups),
            Kind::By(words) => words(self),
            Kind::Bytes => self.text(register),
        }
    }

    /// Printable text, or nothing.
    fn text(&self, register: &Register) -> String {
        let at = usize::from(register.at);
        let bytes = &self.0[at..at + usize::from(register.length)];
        let end = bytes
            .iter()
            .rposition(|b| *b != 0)
            .map_or(0, |last| last + 1);
        let text = &bytes[..end];
        if !text.is_empty() && text.iter().all(|b| (0x20..0x7f).contains(b)) {
            format!("\"{}\"", String::from_utf8_lossy(text))
        } else {
            String::new()
        }
    }

    /// Every field that the card's revision has, the highest byte first, as JEDEC's table has them;
    /// and the bytes that are not 0 although the revision reserves them.
    pub fn rows(&self) -> Vec<Row> {
        let mut reserved = [true; 512];
        let mut rows = Vec::new();
        for register in registers() {
            // Revision 9 adds nothing that could be read here; newer ones are read as the newest known.
            if register.since > self.rev() {
                continue;
            }
            let at = usize::from(register.at);
            reserved[at..at + usize::from(register.length)].fill(false);
            rows.push(Row {
                at: register.at,
                length: register.length,
                name: register.name,
                value: self.hex(register.at, register.length),
                meaning: self.meaning(register),
            });
        }
        for at in (0..512u16).filter(|at| reserved[usize::from(*at)]) {
            if self.0[usize::from(at)] != 0 {
                rows.push(Row {
                    at,
                    length: 1,
                    name: "RESERVED",
                    value: self.hex(at, 1),
                    meaning: match registers().find(|r| (r.at..r.at + r.length).contains(&at)) {
                        Some(later) => {
                            format!("{} from EXT_CSD_REV {} on", later.name, later.since)
                        }
                        None => "the standard names nothing here".to_owned(),
                    },
                });
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.at));
        rows
    }

    /// The meaning of one field by its name; `None` where the card's revision does not have it.
    pub fn means(&self, name: &str) -> Option<String> {
        registers()
            .find(|register| register.name == name && register.since <= self.rev())
            .map(|register| self.meaning(register))
    }
}

fn bits(number: u64, groups: &[(u8, u8, &str)]) -> String {
    let mut known = 0;
    let mut words: Vec<String> = Vec::new();
    for (low, count, name) in groups {
        let mask = (1u64 << count) - 1;
        known |= mask << low;
        match (number >> low & mask, count) {
            (0, 1) => {}
            (_, 1) => words.push((*name).to_owned()),
            (value, _) => words.push(format!("{name} {value}")),
        }
    }
    if number & !known != 0 {
        words.push(format!("reserved bits {:#x}", number & !known));
    }
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(fields: &[(usize, u8)]) -> ExtCsd {
        let mut bytes = [0; 512];
        bytes[192] = 8;
        for (at, value) in fields {
            bytes[*at] = *value;
        }
        ExtCsd(bytes)
    }

    #[test]
    fn values_have_the_standard_s_meaning() {
        let csd = card(&[
            (16, 0x3b),
            (131, 0x1a),
            (157, 2),
            (177, 0x12),
            (179, 0x48),
            (183, 0x86),
            (185, 0x13),
            (210, 8),
            (212, 0),
            (214, 0x40),
            (217, 0x10),
            (218, 0x0a),
            (220, 7),
            (221, 16),
            (223, 2),
            (224, 8),
            (225, 6),
            (230, 17),
            (231, 0x55),
            (250, 2),
            (254, b'A'),
            (255, b'7'),
            (264, 1),
            (267, 2),
            (268, 11),
            (269, 1),
            (307, 31),
            (503, 3),
        ]);
        let table = [
            (
                "SECURE_REMOVAL_TYPE",
                "as the maker defines; can: erase | overwrite, then erase | as the maker defines",
            ),
            ("PERIODIC_WAKEUP", "every 3 weeks"),
            ("MAX_ENH_SIZE_MULT", "128 MiB"),
            ("BOOT_BUS_CONDITIONS", "BOOT_BUS_WIDTH 2, BOOT_MODE 2"),
            (
                "PARTITION_CONFIG",
                "boots from boot 1, access to user area, boot acknowledge",
            ),
            ("BUS_WIDTH", "8 bit DDR, enhanced strobe"),
            ("HS_TIMING", "HS400, driver strength 1"),
            ("MIN_PERF_W_8_52", "2400 kB/s"),
            ("SEC_COUNT", "2 GiB"),
            ("S_A_TIMEOUT", "6553600 ns"),
            ("PRODUCTION_STATE_AWARENESS_TIMEOUT", "102400 µs"),
            ("S_C_VCC", "128 µA at most"),
            ("HC_WP_GRP_SIZE", "64 MiB"),
            ("ERASE_TIMEOUT_MULT", "600 ms"),
            ("HC_ERASE_GRP_SIZE", "4 MiB"),
            ("ACC_SIZE", "16 KiB"),
            ("SEC_ERASE_MULT", "10200 ms per erase group"),
            (
                "SEC_FEATURE_SUPPORT",
                "SECURE_ER_EN, SEC_BD_BLK_EN, SEC_GB_CL_EN, SEC_SANITIZE",
            ),
            ("CACHE_SIZE", "64 KiB"),
            ("FIRMWARE_VERSION", "\"A7\""),
            ("OPTIMAL_TRIM_UNIT_SIZE", "4 KiB"),
            (
                "PRE_EOL_INFO",
                "warning: 80 % of the reserved blocks are used",
            ),
            ("DEVICE_LIFE_TIME_EST_TYP_A", "past its estimated life time"),
            ("DEVICE_LIFE_TIME_EST_TYP_B", "0 to 10 % used"),
            ("CMDQ_DEPTH", "32 tasks"),
            ("HPI_FEATURES", "HPI by CMD12"),
            ("EXT_CSD_REV", "eMMC 5.1"),
            ("USER_WP", "none"),
        ];
        for (name, want) in table {
            assert_eq!(csd.means(name).as_deref(), Some(want), "{name}");
        }
        assert_eq!(csd.means("NOTHING"), None);
    }

    #[test]
    fn a_revision_has_its_own_fields_only() {
        let rows = card(&[(192, 5), (249, 1), (232, 3), (300, 9)]).rows();
        let of = |at: u16| rows.iter().find(|row| row.at == at);
        assert_eq!(of(232).map(|row| row.meaning.as_str()), Some("900 ms"));
        let cache = of(249).expect("bytes that are not 0 are shown");
        assert_eq!(cache.name, "RESERVED");
        assert_eq!(cache.meaning, "CACHE_SIZE from EXT_CSD_REV 6 on");
        assert!(of(33).is_none(), "CACHE_CTRL is 0 and not of 4.41");
        assert!(of(300).is_some());
        assert!(rows.windows(2).all(|pair| pair[0].at > pair[1].at));
        let every = card(&[]).rows();
        assert_eq!(
            every.len(),
            registers().count(),
            "5.1 has all, and nothing reserved is set"
        );
    }

    #[test]
    fn what_the_standard_reserves_is_said() {
        let csd = card(&[(231, 0x02), (225, 9), (268, 12), (167, 0xff), (267, 9)]);
        assert_eq!(
            csd.means("SEC_FEATURE_SUPPORT").as_deref(),
            Some("reserved bits 0x2")
        );
        assert_eq!(csd.means("ACC_SIZE").as_deref(), Some("reserved value"));
        assert_eq!(
            csd.means("DEVICE_LIFE_TIME_EST_TYP_A").as_deref(),
            Some("reserved value")
        );
        assert_eq!(csd.means("PRE_EOL_INFO").as_deref(), Some("reserved value"));
        assert!(csd
            .means("WR_REL_SET")
            .is_some_and(|text| text.ends_with("reserved bits 0xe0")));
    }
}
