//! The CSD register of an eMMC, JESD84-B51 §7.3: the one field that EXT_CSD does not replace.

/// C_SIZE of every card above 2 GiB.
pub const C_SIZE_LARGE: u16 = 0xfff;

/// C_SIZE, bits 73 to 62, of a register as sysfs prints it: 32 hexadecimal digits, the highest bit
/// first.
///
/// # Errors
/// What is wrong with the text.
pub fn c_size(text: &str) -> Result<u16, String> {
    if text.len() != 32 {
        return Err(format!("`{text}` has not the 32 digits of a CSD"));
    }
    let register = u128::from_str_radix(text, 16).map_err(|e| format!("`{text}`: {e}"))?;
    Ok((register >> 62) as u16 & 0xfff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_size_is_read_from_the_kernels_text() {
        // A card of 8 GiB, and the same with the size of one of 1 GiB.
        assert_eq!(c_size("d04f01320f5903fffffffff7924000f2"), Ok(0xfff));
        assert_eq!(c_size("d04f01320f5903f3ffffffef92400000"), Ok(0xfcf));
        assert!(c_size("").is_err());
        assert!(c_size("0x4f01320f5903fffffffff792400000").is_err());
    }
}
