//! The CID register of an eMMC, JESD84-B51 §7.2: who made the card, and when.

/// Makers by MID, as drivers/mmc/core/card.h and quirks.h name them.
const MAKERS: [(u8, &str); 11] = [
    (0x02, "SanDisk"),
    (0x09, "ATP"),
    (0x11, "Toshiba"),
    (0x13, "Micron"),
    (0x15, "Samsung"),
    (0x27, "Apacer"),
    (0x45, "SanDisk"),
    (0x5d, "Swissbit"),
    (0x70, "Kingston"),
    (0x90, "Hynix"),
    (0xfe, "Numonyx"),
];

/// The fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cid {
    /// MID: the maker, given out by JEDEC.
    pub mid: u8,
    /// CBX: 0 = removable, 1 = BGA, 2 = package on package.
    pub cbx: u8,
    /// OID: the maker's customer.
    pub oid: u8,
    /// PNM: product name, what is not printable as `?`.
    pub pnm: String,
    /// PRV: revision, two BCD digits.
    pub prv: u8,
    /// PSN: serial number.
    pub psn: u32,
    /// MDT: month in the high nibble, year code in the low one.
    pub mdt: u8,
}

impl Cid {
    /// Of the text that sysfs prints: 32 hexadecimal digits, the highest byte first.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Cid, String> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("`{text}` has not the 32 digits of a CID"));
        }
        let all = u128::from_str_radix(text, 16).map_err(|e| format!("`{text}`: {e}"))?;
        let b = all.to_be_bytes();
        let printable = |byte: &u8| match byte {
            0x20..=0x7e => char::from(*byte),
            _ => '?',
        };
        Ok(Cid {
            mid: b[0],
            cbx: b[1] & 3,
            oid: b[2],
            pnm: b[3..9].iter().map(printable).collect(),
            prv: b[9],
            psn: u32::from_be_bytes([b[10], b[11], b[12], b[13]]),
            mdt: b[14],
        })
    }

    /// The maker's name, where it is known.
    pub fn maker(&self) -> Option<&'static str> {
        MAKERS
            .iter()
            .find(|(mid, _)| *mid == self.mid)
            .map(|(_, name)| *name)
    }

    /// What CBX says.
    pub fn package(&self) -> &'static str {
        match self.cbx {
            0 => "removable card",
            1 => "BGA",
            2 => "package on package",
            _ => "reserved",
        }
    }

    /// MDT as `MM/YYYY`, as drivers/mmc/core/mmc.c reads it: the year counts from 1997; above
    /// EXT_CSD_REV 4, years before 2010 stand for 16 years later; from 9 on, those before 2023.
    /// `None` where it says no month.
    pub fn date(&self, rev: u8) -> Option<String> {
        let month = self.mdt >> 4;
        let year = 1997 + u32::from(self.mdt & 0xf);
        let year = match rev {
            0..=4 => year,
            5..=8 if year >= 2010 => year,
            5..=8 => year + 16,
            _ if year >= 2010 => year + 16,
            // 1997 to 2009 were 2013 to 2025; those before 2023 are reused.
            _ if year + 16 >= 2023 => year + 16,
            _ => year + 32,
        };
        (1..=12)
            .contains(&month)
            .then(|| format!("{month:02}/{year}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_register() {
        let cid = Cid::parse("150100424a544434520739ad1a2c9500").expect("a CID");
        assert_eq!(
            (cid.mid, cid.maker(), cid.package()),
            (0x15, Some("Samsung"), "BGA")
        );
        assert_eq!((cid.pnm.as_str(), cid.prv), ("BJTD4R", 0x07));
        assert_eq!((cid.psn, cid.oid), (0x39ad_1a2c, 0));
        assert_eq!(cid.date(8).as_deref(), Some("09/2018"));
        assert_eq!(cid.date(4).as_deref(), Some("09/2002"));
        assert!(Cid::parse("").is_err());
        assert!(Cid::parse("0x0100424a544434520739ad1a2c9500").is_err());
    }

    #[test]
    fn years_wrap_with_the_revision() {
        let mut cid = Cid::parse("150100424a544434520739ad1a2c9500").expect("a CID");
        let table = [
            (0x10, 4, Some("01/1997")),
            (0x10, 5, Some("01/2013")),
            (0x1c, 8, Some("01/2025")),
            (0x1d, 8, Some("01/2010")),
            (0x1d, 9, Some("01/2026")),
            (0x1c, 9, Some("01/2025")),
            (0x10, 9, Some("01/2029")),
            (0x00, 8, None),
            (0xd0, 8, None),
        ];
        for (mdt, rev, want) in table {
            cid.mdt = mdt;
            assert_eq!(cid.date(rev).as_deref(), want, "{mdt:#x} {rev}");
        }
    }
}
