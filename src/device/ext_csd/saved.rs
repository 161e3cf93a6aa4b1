//! An EXT_CSD register that was saved, without its card.

use super::ExtCsd;

/// Largest file that is looked at: what hexdump makes of 512 bytes is smaller.
pub const LARGEST: usize = 64 * 1024;

/// Reads a saved register: 512 bytes, or hexadecimal text as debugfs (`mmc0:0001/ext_csd`) has it,
/// with or without spaces, lines and `OFFSET:` before each line, which is what `card info --raw`
/// prints.
///
/// # Errors
/// What is wrong with the contents.
pub fn parse(contents: &[u8]) -> Result<ExtCsd, String> {
    let csd = match <[u8; 512]>::try_from(contents) {
        Ok(bytes) => ExtCsd(bytes),
        Err(_) => ExtCsd(hexadecimal(contents)?),
    };
    match csd.implausible() {
        Some(why) => Err(format!("it is no EXT_CSD: {why}")),
        None => Ok(csd),
    }
}

fn hexadecimal(contents: &[u8]) -> Result<[u8; 512], String> {
    let wrong = |what: String| {
        format!("{what}; an EXT_CSD is 512 bytes, or the same as 1024 hexadecimal digits")
    };
    let text = match std::str::from_utf8(contents) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => text,
        _ => return Err(wrong(format!("it has {} bytes", contents.len()))),
    };
    let mut digits = Vec::with_capacity(1024);
    for (number, line) in text.lines().enumerate() {
        let data = line.split_once(':').map_or(line, |(_, data)| data);
        for c in data.chars().filter(|c| !c.is_whitespace()) {
            match c.to_digit(16) {
                Some(digit) => digits.push(digit as u8),
                None => {
                    let shown = c.escape_default();
                    return Err(wrong(format!("line {} has `{shown}`", number + 1)));
                }
            }
        }
    }
    if digits.len() != 1024 {
        return Err(wrong(format!("it has {} hexadecimal digits", digits.len())));
    }
    let mut bytes = [0; 512];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(bytes)
}

/// 16 bytes a line with their decimal offset, which [`parse`] reads.
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{:>3}: {}\n", number * 16, hex.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> [u8; 512] {
        let mut bytes = [0; 512];
        (bytes[192], bytes[212], bytes[231]) = (8, 0x40, 0x55);
        bytes
    }

    #[test]
    fn every_form_is_read() {
        let bytes = card();
        let plain: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let upper = format!("{}\n", plain.to_uppercase());
        let forms = [
            bytes.to_vec(),
            plain.into_bytes(),
            upper.into_bytes(),
            dump(&bytes).into_bytes(),
        ];
        for form in forms {
            assert_eq!(parse(&form).map(|csd| csd.0), Ok(bytes));
        }
    }

    #[test]
    fn what_is_none_is_said() {
        let digits = "00".repeat(512);
        let table: [(&[u8], &str); 7] = [
            (b"", "0 hexadecimal digits"),
            (&card()[..511], "it has 511 bytes"),
            (b"EXT_CSD revision 1.8", "line 1 has `X`"),
            (b"0 1\n2\nq", "line 3 has `q`"),
            (digits.as_bytes(), "every byte is 0x00"),
            (&[0xff; 512], "every byte is 0xff"),
            (&digits.as_bytes()[1..], "1023 hexadecimal digits"),
        ];
        for (contents, want) in table {
            let why = parse(contents).expect_err(want);
            assert!(why.contains(want), "{why}");
        }
    }
}
