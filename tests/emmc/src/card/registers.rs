//! CID, CSD and OCR.
use super::ext_csd::ExtCsd;
use serde::{Deserialize, Serialize};

/// Largest card, in sectors, that is addressed in bytes (JESD84-B51 §7.4.33; the same limit
/// as in Linux): above it CMD17…CMD38 take sector numbers.
pub const MAX_BYTE_ADDRESSED: u64 = 4_194_304;

/// OCR: 2.7–3.6 V and 1.70–1.95 V.
const OCR_VOLTAGES: u32 = 0x00ff_8080;
/// OCR bit 31: power-up done.
const OCR_READY: u32 = 1 << 31;
/// OCR bits 30:29 = 10: sector mode.
const OCR_SECTOR_MODE: u32 = 1 << 30;

/// The OCR of a card of that size.
pub(super) fn ocr(sectors: u64) -> u32 {
    let mode = if sectors > MAX_BYTE_ADDRESSED {
        OCR_SECTOR_MODE
    } else {
        0
    };
    OCR_READY | OCR_VOLTAGES | mode
}

/// True if CMD1's argument offers a voltage that the card has (0 only asks for the OCR).
pub(super) fn voltage_ok(argument: u32) -> bool {
    argument & OCR_VOLTAGES != 0
}

/// Card identification (JESD84-B51 §7.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cid {
    /// Manufacturer, sysfs `manfid`.
    pub manfid: u8,
    /// OEM, sysfs `oemid`.
    pub oemid: u8,
    /// Product name, sysfs `name`; cut or space-padded to six characters.
    pub name: String,
    /// Product revision.
    pub revision: u8,
    /// Serial number.
    pub serial: u32,
}

impl Default for Cid {
    fn default() -> Self {
        Cid {
            manfid: 0xfe,
            oemid: 0x42,
            name: "RSEMMC".to_owned(),
            revision: 0x51,
            serial: 0x1bad_cafe,
        }
    }
}

impl Cid {
    /// The register, most significant byte first, with its CRC.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut c = [0; 16];
        c[0] = self.manfid;
        c[1] = 1; // BGA
        c[2] = self.oemid;
        c[3..9].fill(b' ');
        for (to, from) in c[3..9].iter_mut().zip(self.name.bytes()) {
            *to = from;
        }
        c[9] = self.revision;
        c[10..14].copy_from_slice(&self.serial.to_be_bytes());
        c[14] = 0xb9; // November 2022 (1997/2013 + nibble, by EXT_CSD_REV)
        with_crc7(c)
    }
}

/// What the card's CSD says that EXT_CSD does not (JESD84-B51 §7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Csd {
    /// ERASE_GRP_SIZE, 0..=31.
    pub erase_grp_size: u8,
    /// ERASE_GRP_MULT, 0..=31.
    pub erase_grp_mult: u8,
    /// C_SIZE of a sector-addressed card. The standard wants 0xfff; Linux derives its
    /// preferred erase size from it, so another value steers how the kernel splits.
    pub c_size: u16,
}

impl Default for Csd {
    fn default() -> Self {
        Csd {
            erase_grp_size: 31,
            erase_grp_mult: 31,
            c_size: 0xfff,
        }
    }
}

/// Command classes: basic, block read, block write, erase, write protection. Lock is not modelled, so
/// it is not advertised.
const CCC: u128 = 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6;

/// WP_GRP_SIZE: erase groups of a write-protect group, less one, while ERASE_GROUP_DEF is 0.
pub(super) const WP_GRP_SIZE: u64 = 31;

impl Csd {
    /// Erase group while ERASE_GROUP_DEF is 0, in sectors.
    pub fn group_sectors(&self) -> u64 {
        (u64::from(self.erase_grp_size & 31) + 1) * (u64::from(self.erase_grp_mult & 31) + 1)
    }

    /// READ_BL_LEN, C_SIZE, C_SIZE_MULT of a byte-addressed card:
    /// capacity = (C_SIZE + 1) << (C_SIZE_MULT + 2) << READ_BL_LEN bytes. Sizes that do not
    /// fit exactly are rounded down.
    fn size_fields(sectors: u64) -> (u128, u128, u128) {
        // 0xfff is what cards above 2 GiB say: the others only where nothing else fits.
        for most in [4095, 4096] {
            for read_bl_len in 9..=11 {
                for mult in (0..=7u32).rev() {
                    let unit = 1u64 << (mult + 2 + read_bl_len - 9);
                    if sectors.is_multiple_of(unit) && (1..=most).contains(&(sectors / unit)) {
                        let c_size = sectors / unit - 1;
                        return (
                            u128::from(read_bl_len),
                            u128::from(c_size),
                            u128::from(mult),
                        );
                    }
                }
            }
        }
        let c_size = (sectors / 2048).clamp(1, 4096) - 1;
        (11, u128::from(c_size), 7)
    }

    /// The register for a card with this EXT_CSD, most significant byte first, with its CRC.
    pub fn to_bytes(&self, ext: &ExtCsd) -> [u8; 16] {
        let sectors = ext.sectors();
        let (read_bl_len, c_size, c_size_mult) = if sectors > MAX_BYTE_ADDRESSED {
            (9, u128::from(self.c_size & 0xfff), 7)
        } else {
            Self::size_fields(sectors)
        };
        let v: u128 = 3 << 126 // CSD_STRUCTURE: see EXT_CSD
            | 4 << 122 // SPEC_VERS 4.x
            | 0x27 << 112 // TAAC
            | 1 << 104 // NSAC
            | 0x32 << 96 // TRAN_SPEED 26 MHz
            | CCC << 84
            | read_bl_len << 80
            | c_size << 62
            | 0xfff << 50 // currents: maximum
            | c_size_mult << 47
            | u128::from(self.erase_grp_size & 31) << 42
            | u128::from(self.erase_grp_mult & 31) << 37
            | u128::from(WP_GRP_SIZE) << 32
            | 1 << 31 // WP_GRP_ENABLE
            | 2 << 26 // R2W_FACTOR
            | 9 << 22; // WRITE_BL_LEN
        with_crc7(v.to_be_bytes())
    }
}

/// Puts CRC7 and the end bit into the last byte.
fn with_crc7(mut register: [u8; 16]) -> [u8; 16] {
    let mut crc = 0u8;
    for byte in &register[..15] {
        for bit in (0..8).rev() {
            let feedback = (crc >> 6 ^ byte >> bit) & 1;
            crc = crc << 1 & 0x7f ^ (feedback * 0x09);
        }
    }
    register[15] = crc << 1 | 1;
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc7_of_a_known_register() {
        // the CRC of CMD0's frame 40 00 00 00 00 is 0x4a (95 with the end bit); leading
        // zeros do not change a CRC that starts at 0
        let mut r = [0; 16];
        r[10] = 0x40;
        assert_eq!(with_crc7(r)[15], 0x95);
    }

    #[test]
    fn csd_gives_the_capacity_of_byte_addressed_cards() {
        for mib in [1u64, 4, 16, 100, 128, 1000, 1024, 1536, 2048] {
            let sectors = mib * 2048;
            let ext = ExtCsd::new(sectors as u32);
            let v = u128::from_be_bytes(Csd::default().to_bytes(&ext));
            let field = |at: u32, bits: u32| (v >> at & ((1 << bits) - 1)) as u64;
            let blocks = (field(62, 12) + 1) << (field(47, 3) + 2);
            assert_eq!(blocks << field(80, 4), mib << 20, "{mib} MiB");
        }
    }

    #[test]
    fn ocr_mode_changes_above_2_gib() {
        assert_eq!(ocr(4_194_304) >> 29 & 3, 0);
        assert_eq!(ocr(4_194_305) >> 29 & 3, 2);
    }
}
