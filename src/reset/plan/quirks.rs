//! Cards that do not do what they say: the kernel's lists (drivers/mmc/core/quirks.h), which guard
//! its own erase path but not the raw ioctl.

/// Samsung: secure erase and secure trim lose data or kill the card
/// (MMC_QUIRK_SEC_ERASE_TRIM_BROKEN). CID MID and CID PNM.
const SECURE_BROKEN: [(u32, &str); 8] = [
    (0x15, "M8G2FA"),
    (0x15, "MAG4FA"),
    (0x15, "MBG8FA"),
    (0x15, "MCGAFA"),
    (0x15, "VAL00M"),
    (0x15, "VYL00M"),
    (0x15, "KYL00M"),
    (0x15, "VZL00M"),
];

/// Kingston and Micron: trim corrupts data or fails (MMC_QUIRK_TRIM_BROKEN).
const TRIM_BROKEN: [(u32, &str); 4] = [
    (0x70, "V10008"),
    (0x70, "V10016"),
    (0x70, "M62704"),
    (0x13, "Q2J54A"),
];

/// SanDisk iNAND: the kind of an erase is taken from EXT_CSD byte 113 besides CMD38's argument
/// (MMC_QUIRK_INAND_CMD38).
const INAND: [(u32, &str); 5] = [
    (0x45, "SEM02G"),
    (0x45, "SEM04G"),
    (0x45, "SEM08G"),
    (0x45, "SEM16G"),
    (0x45, "SEM32G"),
];

/// EXT_CSD byte of iNAND's erase kind.
pub const INAND_CMD38_ARG: u8 = 113;

/// What is known against a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Neither secure erase nor secure trim may be sent.
    pub secure_broken: bool,
    /// Neither trim nor secure trim may be sent.
    pub trim_broken: bool,
    /// The kind of an erase must be written to [`INAND_CMD38_ARG`] first.
    pub inand: bool,
}

impl Quirks {
    /// Those of a card by its maker and product name.
    pub fn of(manfid: u32, name: &str) -> Quirks {
        let listed = |list: &[(u32, &str)]| list.contains(&(manfid, name));
        Quirks {
            secure_broken: listed(&SECURE_BROKEN),
            trim_broken: listed(&TRIM_BROKEN),
            inand: listed(&INAND),
        }
    }
}

/// iNAND's name for a CMD38 argument: bit 31 becomes bit 7, bit 15 becomes bit 3, bit 0 stays.
pub fn inand_kind(argument: u32) -> u8 {
    ((argument >> 31 & 1) << 7 | (argument >> 15 & 1) << 3 | argument & 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maker_and_name_must_both_match() {
        assert!(Quirks::of(0x15, "MAG4FA").secure_broken);
        assert_eq!(Quirks::of(0x16, "MAG4FA"), Quirks::default());
        assert_eq!(Quirks::of(0x15, "MAG4FB"), Quirks::default());
        assert!(Quirks::of(0x70, "V10016").trim_broken);
        assert!(Quirks::of(0x45, "SEM16G").inand);
    }

    #[test]
    fn inand_kinds_are_the_kernel_s() {
        let table = [
            (0, 0),
            (1, 1),
            (0x8000_0000, 0x80),
            (0x8000_0001, 0x81),
            (0x8000_8000, 0x88),
        ];
        for (argument, kind) in table {
            assert_eq!(inand_kind(argument), kind, "{argument:#x}");
        }
    }
}
