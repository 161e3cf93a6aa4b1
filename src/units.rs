//! Units as types: what a number counts is part of its type.
//!
//! sysfs, the MMC commands and dm tables count 512-byte sectors whatever the logical block size of
//! the disk; AIDL, JSON and people count bytes.

use std::fmt;
use std::ops::{Add, Sub};

/// Size of the unit that [`Sectors`] counts, in bytes.
pub const SECTOR_SIZE: u64 = 512;

/// A length or an offset in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A length or an offset in 512-byte sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

impl Bytes {
    /// Whole sectors, or `None` where the number is not a multiple of 512.
    pub fn to_sectors(self) -> Option<Sectors> {
        (self.0 % SECTOR_SIZE == 0).then_some(Sectors(self.0 / SECTOR_SIZE))
    }

    /// The sum, or `None` where it does not fit.
    pub fn checked_add(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_add(other.0).map(Bytes)
    }
}

impl Sectors {
    /// The same length in bytes. Saturates: no device is larger than 2^64 bytes.
    pub fn to_bytes(self) -> Bytes {
        Bytes(self.0.saturating_mul(SECTOR_SIZE))
    }

    /// The largest multiple of `unit` that is not above `self`.
    pub fn round_down(self, unit: Sectors) -> Sectors {
        Sectors(self.0 - self.0 % unit.0)
    }

    /// The smallest multiple of `unit` that is not below `self`, or `None` where it does not fit.
    pub fn round_up(self, unit: Sectors) -> Option<Sectors> {
        match self.0 % unit.0 {
            0 => Some(self),
            rest => self.0.checked_add(unit.0 - rest).map(Sectors),
        }
    }

    /// The sum, or `None` where it does not fit.
    pub fn checked_add(self, other: Sectors) -> Option<Sectors> {
        self.0.checked_add(other.0).map(Sectors)
    }

    /// True for zero sectors.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, other: Sectors) -> Sectors {
        Sectors(self.0 + other.0)
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, other: Sectors) -> Sectors {
        Sectors(self.0 - other.0)
    }
}

/// Binary units, and only where the number is a whole multiple: `512 KiB`, `22 GiB`, `4608 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (name, shift) in UNITS {
            if self.0 >> shift != 0 && self.0 % (1 << shift) == 0 {
                return write!(f, "{} {name}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sectors", self.0)
    }
}

/// A span of sectors on a disk, `start` included, `end()` not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SectorRange {
    /// First sector, absolute on the disk.
    pub start: Sectors,
    /// Number of sectors.
    pub length: Sectors,
}

impl SectorRange {
    /// The range from `start` up to, not including, `end`; empty where `end` is not above `start`.
    pub fn between(start: Sectors, end: Sectors) -> SectorRange {
        SectorRange {
            start,
            length: Sectors(end.0.saturating_sub(start.0)),
        }
    }

    /// First sector after the range. Saturates.
    pub fn end(self) -> Sectors {
        Sectors(self.start.0.saturating_add(self.length.0))
    }

    /// True where the range has no sector.
    pub fn is_empty(self) -> bool {
        self.length.is_zero()
    }

    /// True where both have a sector in common.
    pub fn overlaps(self, other: SectorRange) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.start < other.end()
            && other.start < self.end()
    }

    /// True where `sector` lies inside.
    pub fn contains(self, sector: Sectors) -> bool {
        self.start <= sector && sector < self.end()
    }
}

impl fmt::Display for SectorRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}+{} ({})",
            self.start.0,
            self.length.0,
            self.length.to_bytes()
        )
    }
}

/// Reads a size as util-linux does: plain bytes, or with K, M, G, T (also `KiB` …) for powers of
/// 1024 and `KB` … for powers of 1000.
///
/// # Errors
/// A sentence that says what was wrong with the text.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!(
            "`{text}` is not a size; write bytes, or 512KiB, 22G, …"
        ));
    }
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is too large"))?;
    let (base, power) = match unit {
        "" | "B" => (1u64, 0),
        "K" | "k" | "KiB" => (1024, 1),
        "M" | "MiB" => (1024, 2),
        "G" | "GiB" => (1024, 3),
        "T" | "TiB" => (1024, 4),
        "KB" | "kB" => (1000, 1),
        "MB" => (1000, 2),
        "GB" => (1000, 3),
        "TB" => (1000, 4),
        _ => {
            return Err(format!(
                "`{text}`: unknown unit `{unit}`; use K, M, G, T, KiB … or KB …"
            ))
        }
    };
    base.pow(power)
        .checked_mul(number)
        .map(Bytes)
        .ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_util_linux_reads_them() {
        let table: [(&str, Option<u64>); 12] = [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("4096B", Some(4096)),
            ("512K", Some(512 << 10)),
            ("512KiB", Some(512 << 10)),
            ("512KB", Some(512_000)),
            ("22G", Some(22 << 30)),
            ("2TiB", Some(2 << 40)),
            ("", None),
            ("G", None),
            ("12 G", None),
            ("99999999999T", None),
        ];
        for (text, want) in table {
            assert_eq!(parse_size(text).ok().map(|b| b.0), want, "{text:?}");
        }
        assert!(parse_size("1Ü").is_err(), "no panic inside a character");
    }

    #[test]
    fn sizes_are_printed_exactly() {
        let table = [
            (0, "0 B"),
            (512, "512 B"),
            (512 << 10, "512 KiB"),
            (22 << 30, "22 GiB"),
            ((1 << 20) + 512, "1049088 B"),
        ];
        for (bytes, want) in table {
            assert_eq!(Bytes(bytes).to_string(), want);
        }
    }

    #[test]
    fn rounding_keeps_aligned_numbers() {
        let unit = Sectors(1024);
        assert_eq!(Sectors(1024).round_down(unit), Sectors(1024));
        assert_eq!(Sectors(1024).round_up(unit), Some(Sectors(1024)));
        assert_eq!(Sectors(1025).round_up(unit), Some(Sectors(2048)));
        assert_eq!(Sectors(u64::MAX).round_up(unit), None);
    }

    #[test]
    fn empty_ranges_overlap_nothing() {
        let all = SectorRange::between(Sectors(0), Sectors(10));
        assert!(!all.overlaps(SectorRange::between(Sectors(5), Sectors(5))));
        assert!(!all.overlaps(SectorRange::between(Sectors(10), Sectors(11))));
        assert!(all.overlaps(SectorRange::between(Sectors(9), Sectors(11))));
    }
}
