//! The EXT_CSD register of an eMMC, JESD84-B51 §7.4: the fields that decisions rest on.

mod modes;
mod properties;
mod registers;
mod rows;
pub mod saved;
mod words;

use crate::device::csd;
use crate::units::{Sectors, SECTOR_SIZE};

pub use rows::Row;
pub use words::standard;

/// The 512 bytes, as CMD8 reads them.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtCsd(pub [u8; 512]);

impl std::fmt::Debug for ExtCsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExtCsd(rev {}, …)", self.rev())
    }
}

/// Byte offsets, by their JEDEC names.
pub mod field {
    #![allow(missing_docs)]
    pub const FLUSH_CACHE: u8 = 32;
    pub const CACHE_CTRL: usize = 33;
    pub const SANITIZE_START: u8 = 165;
    pub const WR_REL_PARAM: usize = 166;
    pub const ERASE_GROUP_DEF: usize = 175;
    pub const ERASED_MEM_CONT: usize = 181;
    pub const EXT_CSD_REV: usize = 192;
    pub const SEC_COUNT: usize = 212;
    pub const HC_WP_GRP_SIZE: usize = 221;
    pub const REL_WR_SEC_C: usize = 222;
    pub const ERASE_TIMEOUT_MULT: usize = 223;
    pub const HC_ERASE_GRP_SIZE: usize = 224;
    pub const SEC_TRIM_MULT: usize = 229;
    pub const SEC_ERASE_MULT: usize = 230;
    pub const SEC_FEATURE_SUPPORT: usize = 231;
    pub const TRIM_MULT: usize = 232;
    pub const CACHE_SIZE: usize = 249;
}

/// How the argument of CMD35 and CMD36 counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// In sectors of 512 bytes: cards above 2 GiB.
    Sector,
    /// In bytes: cards of at most 2 GiB that were made so.
    Byte,
}

impl Addressing {
    /// The argument that names `sector`, or `None` where it does not fit into 32 bits.
    pub fn argument(self, sector: Sectors) -> Option<u32> {
        let number = match self {
            Addressing::Sector => sector.0,
            Addressing::Byte => sector.0.checked_mul(SECTOR_SIZE)?,
        };
        u32::try_from(number).ok()
    }
}

impl ExtCsd {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// EXT_CSD_REV: 5 = 4.41, 6 = 4.5, 7 = 5.0, 8 = 5.1.
    pub fn rev(&self) -> u8 {
        self.0[field::EXT_CSD_REV]
    }

    /// SEC_COUNT: sectors of the user area.
    pub fn sec_count(&self) -> Sectors {
        Sectors(u64::from(self.u32(field::SEC_COUNT)))
    }

    /// How the card counts, by this register and by C_SIZE of its CSD; `None` where both readings
    /// are possible.
    ///
    /// Above 2 GiB it is sectors. Below, the kernel goes by bit 30 of the card's OCR
    /// (drivers/mmc/core/mmc.c, mmc_init_card), which it shows to nobody: a larger card whose user
    /// area was made small by partitions of its own still counts in sectors. Such a card has the
    /// C_SIZE of large ones, 0xfff (JESD84-B51 §7.3.12); one that counts in bytes has its capacity
    /// there, which is 0xfff for 2 GiB exactly, and then it cannot be told.
    pub fn addressing(&self, c_size: Option<u16>) -> Option<Addressing> {
        const TWO_GIB: Sectors = Sectors((2 << 30) / SECTOR_SIZE);
        if self.sec_count() > TWO_GIB {
            return Some(Addressing::Sector);
        }
        (c_size? < csd::C_SIZE_LARGE).then_some(Addressing::Byte)
    }

    /// ERASE_GROUP_DEF: true where the high-capacity groups count, false for those of the CSD.
    pub fn erase_group_def(&self) -> bool {
        self.0[field::ERASE_GROUP_DEF] & 1 != 0
    }

    /// The high-capacity erase group, where ERASE_GROUP_DEF selects it: HC_ERASE_GRP_SIZE × 512 KiB.
    /// `None` where the group is the one of the CSD, or the field says nothing.
    pub fn hc_erase_group(&self) -> Option<Sectors> {
        const UNIT: u64 = 512 * 1024 / SECTOR_SIZE;
        let size = u64::from(self.0[field::HC_ERASE_GRP_SIZE]);
        (self.erase_group_def() && size != 0).then_some(Sectors(size * UNIT))
    }

    /// SEC_ER_EN: secure erase and secure trim can be had.
    pub fn has_secure_erase(&self) -> bool {
        self.0[field::SEC_FEATURE_SUPPORT] & 0x01 != 0
    }

    /// SEC_GB_CL_EN: trim and secure trim can be had.
    pub fn has_trim(&self) -> bool {
        self.0[field::SEC_FEATURE_SUPPORT] & 0x10 != 0
    }

    /// SEC_SANITIZE.
    pub fn has_sanitize(&self) -> bool {
        self.0[field::SEC_FEATURE_SUPPORT] & 0x40 != 0
    }

    /// ERASED_MEM_CONT: what an erased byte reads as.
    pub fn erased_value(&self) -> u8 {
        if self.0[field::ERASED_MEM_CONT] & 1 != 0 {
            0xff
        } else {
            0
        }
    }

    /// CACHE_SIZE in kilobits; 0 = no cache.
    pub fn cache_kilobits(&self) -> u32 {
        self.u32(field::CACHE_SIZE)
    }

    /// True where a volatile cache exists and CACHE_CTRL has it on.
    pub fn cache_on(&self) -> bool {
        self.cache_kilobits() != 0 && self.0[field::CACHE_CTRL] & 1 != 0
    }

    /// ERASE_TIMEOUT_MULT, in units of 300 ms per erase group.
    pub fn erase_timeout_mult(&self) -> u8 {
        self.0[field::ERASE_TIMEOUT_MULT]
    }

    /// SEC_ERASE_MULT, the factor of a secure erase over an erase.
    pub fn sec_erase_mult(&self) -> u8 {
        self.0[field::SEC_ERASE_MULT]
    }

    /// SEC_TRIM_MULT, the factor of a secure trim over an erase.
    pub fn sec_trim_mult(&self) -> u8 {
        self.0[field::SEC_TRIM_MULT]
    }

    /// TRIM_MULT, in units of 300 ms per erase group.
    pub fn trim_mult(&self) -> u8 {
        self.0[field::TRIM_MULT]
    }

    /// What makes the register unusable for planning, or `None` where it is plausible.
    pub fn implausible(&self) -> Option<String> {
        if self.0.iter().all(|byte| *byte == self.0[0]) {
            return Some(format!("every byte is {:#04x}", self.0[0]));
        }
        if !(1..=9).contains(&self.rev()) {
            return Some(format!("EXT_CSD_REV is {}", self.rev()));
        }
        if self.sec_count().is_zero() {
            return Some("SEC_COUNT is 0".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[(usize, u8)]) -> ExtCsd {
        let mut bytes = [0; 512];
        for (at, value) in fields {
            bytes[*at] = *value;
        }
        ExtCsd(bytes)
    }

    #[test]
    fn addressing_is_known_or_not_guessed() {
        let two_gib = with(&[(214, 0x40)]);
        assert_eq!(two_gib.sec_count(), Sectors(4_194_304));
        let more = with(&[(212, 1), (214, 0x40)]);
        let table = [
            (&two_gib, Some(0xffe), Some(Addressing::Byte)),
            (&two_gib, Some(0xfff), None),
            (&two_gib, None, None),
            (&more, Some(0xfff), Some(Addressing::Sector)),
            (&more, None, Some(Addressing::Sector)),
        ];
        for (csd, c_size, want) in table {
            assert_eq!(csd.addressing(c_size), want, "{csd:?} {c_size:?}");
        }
        assert_eq!(Addressing::Byte.argument(Sectors(2)), Some(1024));
        assert_eq!(Addressing::Sector.argument(Sectors(2)), Some(2));
        assert_eq!(Addressing::Byte.argument(Sectors(1 << 23)), None);
        assert_eq!(Addressing::Sector.argument(Sectors(1 << 32)), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(ExtCsd([0; 512]).implausible().is_some());
        assert!(ExtCsd([0xff; 512]).implausible().is_some());
        assert!(with(&[(192, 8)]).implausible().is_some(), "no sectors");
        assert!(with(&[(192, 8), (214, 1)]).implausible().is_none());
    }

    #[test]
    fn the_erase_group_follows_erase_group_def() {
        assert_eq!(with(&[(224, 8)]).hc_erase_group(), None);
        assert_eq!(
            with(&[(175, 1), (224, 8)]).hc_erase_group(),
            Some(Sectors(8192))
        );
    }
}
