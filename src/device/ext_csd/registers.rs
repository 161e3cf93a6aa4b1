//! Every field of the EXT_CSD register by its JEDEC name, from eMMC 4.1 to 5.1 (JESD84-B51 §7.4,
//! table 142; the revision that brought a field from the earlier standards).

use super::modes::MODES;
use super::properties::PROPERTIES;
use super::ExtCsd;

/// How a field is read.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A number without a unit.
    Number,
    /// A number of units: the factor, and the name of what comes out.
    Times(u32, &'static str),
    /// Values with a meaning; others are reserved.
    Words(&'static [(u8, &'static str)]),
    /// Groups of bits: the lowest bit, how many, the name. A group of one is named where it is set.
    Bits(&'static [(u8, u8, &'static str)]),
    /// Needs other fields, or a rule of its own.
    By(fn(&ExtCsd) -> String),
    /// Text, or bytes of the maker's own.
    Bytes,
}

/// One field.
#[derive(Clone, Copy)]
pub struct Register {
    /// Lowest byte.
    pub at: u16,
    /// Bytes, the lowest first.
    pub length: u16,
    /// JEDEC's name.
    pub name: &'static str,
    /// EXT_CSD_REV that brought it: bytes of a newer field are reserved.
    pub since: u8,
    /// How it is read.
    pub kind: Kind,
}

pub(super) const fn field(
    at: u16,
    length: u16,
    name: &'static str,
    since: u8,
    kind: Kind,
) -> Register {
    Register {
        at,
        length,
        name,
        since,
        kind,
    }
}

/// EXT_CSD_REV of each standard.
pub(super) mod rev {
    pub(in super::super) const V4_1: u8 = 1;
    pub(in super::super) const V4_2: u8 = 2;
    pub(in super::super) const V4_3: u8 = 3;
    pub(in super::super) const V4_4: u8 = 4;
    pub(in super::super) const V4_41: u8 = 5;
    pub(in super::super) const V4_5: u8 = 6;
    pub(in super::super) const V5_0: u8 = 7;
    pub(in super::super) const V5_1: u8 = 8;
}

pub(super) const NO_YES: &[(u8, &str)] = &[(0, "no"), (1, "yes")];

/// All of them, the highest byte first, as JEDEC's table has them.
pub fn registers() -> impl Iterator<Item = &'static Register> {
    PROPERTIES.iter().chain(MODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_side_by_side() {
        let mut next = 512;
        for register in registers() {
            assert!(
                register.length > 0 && register.at + register.length <= next,
                "{}",
                register.name
            );
            next = register.at;
        }
        // What the standard's table reserves below 511, besides 485 to 309 and the bytes below 15.
        let mut holes: Vec<u16> = (15..506).collect();
        holes.retain(|at| !registers().any(|r| (r.at..r.at + r.length).contains(at)));
        holes.retain(|at| !(309..486).contains(at));
        assert_eq!(
            holes,
            [
                27, 28, 128, 129, 135, 170, 172, 176, 180, 182, 186, 188, 190, 193, 195, 204, 227,
                233, 306
            ]
        );
    }

    #[test]
    fn names_are_told_once() {
        let mut names: Vec<&str> = registers().map(|r| r.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), registers().count());
    }

    #[test]
    fn groups_of_bits_fit_their_field() {
        for register in registers() {
            if let Kind::Bits(groups) = register.kind {
                for (low, count, name) in groups {
                    assert!(u16::from(low + count) <= 8 * register.length, "{name}");
                }
            }
        }
    }
}
