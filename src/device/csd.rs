//! The CSD register of an eMMC, JESD84-B51 §7.3: the fields that EXT_CSD does not always replace.

use crate::units::Sectors;

/// C_SIZE of every card above 2 GiB.
pub const C_SIZE_LARGE: u16 = 0xfff;

/// C_SIZE, bits 73 to 62, of a register as sysfs prints it: 32 hexadecimal digits, the highest bit
/// first.
///
/// # Errors
/// What is wrong with the text.
pub fn c_size(text: &str) -> Result<u16, String> {
    Ok((register(text)? >> 62) as u16 & 0xfff)
}

/// The erase group while ERASE_GROUP_DEF is 0: (ERASE_GRP_SIZE + 1) × (ERASE_GRP_MULT + 1) blocks of
/// 2^WRITE_BL_LEN bytes (JESD84-B51 §7.3.18), of the same text.
///
/// # Errors
/// What is wrong with the text; blocks below a sector.
pub fn erase_group(text: &str) -> Result<Sectors, String> {
    let register = register(text)?;
    let field = |at: u32, bits: u32| (register >> at) as u64 & ((1 << bits) - 1);
    match field(22, 4).checked_sub(9) {
        Some(shift) => Ok(Sectors(((field(42, 5) + 1) * (field(37, 5) + 1)) << shift)),
        None => Err(format!("WRITE_BL_LEN is {}", field(22, 4))),
    }
}

fn register(text: &str) -> Result<u128, String> {
    if text.len() != 32 {
        return Err(format!("`{text}` has not the 32 digits of a CSD"));
    }
    u128::from_str_radix(text, 16).map_err(|e| format!("`{text}`: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_size_is_read_from_the_kernels_text() {
        // A card of 8 GiB, and the same with the size of one of 1 GiB.
        assert_eq!(c_size("d04f01320f5903fffffffff7924000f2"), Ok(0xfff));
        assert_eq!(c_size("d04f01320f5903f3ffffffef92400000"), Ok(0xfcf));
        // Groups of 32 × 32 sectors; blocks of 2 KiB; blocks of 256 bytes.
        let groups = |text| erase_group(text).map(|group| group.0);
        assert_eq!(groups("d04f01320f5903fffffffff7924000f2"), Ok(1024));
        assert_eq!(groups("d04f01320f5903fffffffff792c000f2"), Ok(4096));
        assert!(groups("d04f01320f5903fffffffff7920000f2").is_err());
        assert!(c_size("").is_err());
        assert!(c_size("0x4f01320f5903fffffffff792400000").is_err());
    }
}
