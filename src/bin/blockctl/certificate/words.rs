//! What numbers of a report mean, in words.

use blockd::aidl::MmcCommand::MmcCommand;
use blockd::device::mmc::{status, Command};
use blockd::reset::request::{Assurance, Logical, Method, Physical};

/// The bytes of EXT_CSD that commands of ours write, JESD84-B51 table "Extended CSD".
const EXT_CSD: [(u8, &str); 3] = [
    (32, "FLUSH_CACHE"),
    (113, "iNAND CMD38 argument"),
    (165, "SANITIZE_START"),
];

/// A method.
pub fn method(number: i32) -> String {
    let words = match Method::from_number(number) {
        Some(Method::SecureErase) => "secure erase: CMD38 0x80000000 over whole erase groups",
        Some(Method::SecureTrim) => "secure trim: CMD38 0x80000001, then 0x80008000",
        Some(Method::Erase) => "erase: CMD38 0x00000000 over whole erase groups",
        Some(Method::Trim) => "trim: CMD38 0x00000001",
        Some(Method::Overwrite) => "overwriting: a pattern, then the erased value",
        Some(Method::SecureDiscard) => "secure discard by the kernel (BLKSECDISCARD)",
        Some(Method::Discard) => "discard by the kernel (BLKDISCARD), all of it read back",
        Some(Method::Auto) | None => return format!("unknown ({number})"),
    };
    words.to_owned()
}

/// What reading back found: a word and a sentence.
pub fn logical(number: i32) -> (String, &'static str) {
    let (value, sentence) = match Logical::from_number(number) {
        Some(v @ Logical::Verified) => (v, "Every position that was read back is as it must be."),
        Some(v @ Logical::Failed) => (v, "At least one position is not as it must be."),
        Some(v @ Logical::NotChecked) => (v, "Nothing was read back."),
        None => return (format!("unknown ({number})"), ""),
    };
    (value.name().to_owned(), sentence)
}

/// What the device claims: a word and a sentence.
pub fn physical(number: i32) -> (String, &'static str) {
    let (value, sentence) = match Physical::from_number(number) {
        Some(v @ Physical::None) => (
            v,
            "The device claims nothing about its physical blocks: older copies of the data may \
             still be in them.",
        ),
        Some(v @ Physical::SecureErase) => (
            v,
            "The card accepted secure erase, and so claims to have purged the erased blocks and \
             their copies. Its inside cannot be seen.",
        ),
        Some(v @ Physical::SecureTrim) => (
            v,
            "The card accepted both passes of secure trim, and so claims to have purged the range \
             and its copies. Its inside cannot be seen.",
        ),
        Some(v @ Physical::Sanitize) => (
            v,
            "The card accepted SANITIZE, and so claims to have purged every block that holds no \
             live data, those of earlier discards too. Its inside cannot be seen.",
        ),
        None => return (format!("unknown ({number})"), ""),
    };
    (value.name().to_owned(), sentence)
}

/// What it is worth: a word and a sentence.
pub fn assurance(number: i32) -> (String, &'static str) {
    let (value, sentence) = match Assurance::from_number(number) {
        Some(v @ Assurance::None) => (v, "No claim is made."),
        Some(v @ Assurance::Clear) => (
            v,
            "In the words of NIST SP 800-88: the data cannot be read back through the device's \
             interface. Work on the memory chips themselves is not covered.",
        ),
        Some(v @ Assurance::Purge) => (
            v,
            "In the words of NIST SP 800-88: recovery is infeasible even with the means of a \
             laboratory, as far as the card does what it claims.",
        ),
        None => return (format!("unknown ({number})"), ""),
    };
    (value.name().to_owned(), sentence)
}

/// The name of a command and what its argument says.
pub fn command(command: &MmcCommand) -> (String, String) {
    let argument = command.argument;
    let (name, meaning) = match u8::try_from(command.index).unwrap_or(u8::MAX) {
        Command::SWITCH => ("SWITCH", switch(argument)),
        Command::SEND_STATUS => ("SEND_STATUS", String::new()),
        Command::ERASE_GROUP_START => ("ERASE_GROUP_START", "first address".to_owned()),
        Command::ERASE_GROUP_END => ("ERASE_GROUP_END", "last address".to_owned()),
        Command::ERASE => ("ERASE", erase(argument).to_owned()),
        _ => ("", String::new()),
    };
    (format!("CMD{} {name}", command.index), meaning)
}

/// CMD38's argument, JESD84-B51 table "Erase command (CMD38) valid arguments".
fn erase(argument: i64) -> &'static str {
    match argument {
        0 => "erase",
        1 => "trim",
        3 => "discard",
        0x8000_0000 => "secure erase",
        0x8000_0001 => "secure trim, step 1",
        0x8000_8000 => "secure trim, step 2",
        _ => "",
    }
}

/// CMD6's argument: access 3 writes a byte.
fn switch(argument: i64) -> String {
    let byte = |shift: u32| (argument >> shift & 0xff) as u8;
    let (index, value) = (byte(16), byte(8));
    match EXT_CSD.iter().find(|(known, _)| *known == index) {
        Some((_, name)) => format!("{name} := {value}"),
        None => format!("EXT_CSD byte {index} := {value}"),
    }
}

/// An answer, and the names of what is set in it.
pub fn response(command: &MmcCommand) -> (String, String) {
    let Ok(word) = u32::try_from(command.response) else {
        return ("not sent".to_owned(), String::new());
    };
    let mut names: Vec<String> = status::names(word)
        .iter()
        .map(|n| (*n).to_owned())
        .collect();
    // The kernel polls after an R1b command and leaves the OR of the answers: no state.
    if !matches!(command.index, 6 | 38) {
        names.push(format!("state {}", status::state_name(word)));
    }
    (format!("{word:#010x}"), names.join(", "))
}

/// What the samples would have found.
pub fn detection(probability: f64) -> String {
    if !(0.0..=1.0).contains(&probability) || probability == 0.0 {
        return "no sample was read: a device that skips erase groups would not have been found"
            .to_owned();
    }
    let percent = probability * 100.0;
    let chance = if percent > 99.9 {
        "with a probability above 99.9 %".to_owned()
    } else {
        let times = percent.floor();
        format!("with a probability of {percent:.1} %, {times} times out of 100")
    };
    format!(
        "a device that silently skips one erase group in a hundred would have been found {chance}"
    )
}

/// A time of the device's clock by ISO 8601, in UTC, with a doubt where it deserves one.
pub fn date(unix_millis: i64) -> String {
    const SECOND: i64 = 1000;
    const DAY: i64 = 24 * 60 * 60;
    /// 2020-01-01: before any blockd.
    const PLAUSIBLE: i64 = 1_577_836_800;
    /// The first second of the year 10000, which has no place in the format.
    const END: i64 = 253_402_300_800;
    let seconds = unix_millis.div_euclid(SECOND);
    if !(0..END).contains(&seconds) {
        return "unknown: the device's clock was not set".to_owned();
    }
    let (mut days, time) = (seconds / DAY, seconds % DAY);
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hours, minutes) = (time / 3600, time / 60 % 60);
    let day = days + 1;
    let seconds_left = time % 60;
    let text = format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds_left:02}Z");
    if seconds < PLAUSIBLE {
        return format!("{text} (the device's clock was not set)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d @SECONDS +%FT%TZ`.
        for (seconds, want) in [
            (1_582_934_400, "2020-02-29T00:00:00Z"),
            (1_583_020_799, "2020-02-29T23:59:59Z"),
            (1_796_083_200, "2026-12-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(seconds * 1000 + 999), want);
        }
        assert!(date(0).starts_with("1970-01-01T00:00:00Z ("));
        for wrong in [i64::MIN, -1, 253_402_300_800_000, i64::MAX] {
            assert!(date(wrong).starts_with("unknown"), "{wrong}");
        }
    }

    #[test]
    fn answers_are_read() {
        fn response_of(index: i32, word: i64) -> (String, String) {
            response(&MmcCommand {
                index,
                argument: 0,
                response: word,
            })
        }
        assert_eq!(response_of(35, 0x900).1, "READY_FOR_DATA, state tran");
        assert_eq!(response_of(38, 0x900).1, "READY_FOR_DATA");
        assert_eq!(
            response_of(13, 1 << 28 | 0x900).1,
            "ERASE_SEQ_ERROR, READY_FOR_DATA, state tran"
        );
        assert_eq!(response_of(38, 0x800).0, "0x00000800");
        assert_eq!(response_of(38, -1).0, "not sent");
    }

    #[test]
    fn commands_are_read() {
        let read = |index, argument| {
            command(&MmcCommand {
                index,
                argument,
                response: 0,
            })
        };
        let words = |name: &str, meaning: &str| (name.to_owned(), meaning.to_owned());
        assert_eq!(read(38, 0x8000_0000), words("CMD38 ERASE", "secure erase"));
        assert_eq!(
            read(6, 0x03a5_0101),
            words("CMD6 SWITCH", "SANITIZE_START := 1")
        );
        assert_eq!(
            read(6, 0x0303_0201),
            words("CMD6 SWITCH", "EXT_CSD byte 3 := 2")
        );
        assert_eq!(read(-4, -4), words("CMD-4 ", ""));
    }

    #[test]
    fn the_probability_is_in_words() {
        assert!(detection(0.9267).ends_with("a probability of 92.7 %, 92 times out of 100"));
        assert!(detection(0.999_95).ends_with("above 99.9 %"));
        assert!(detection(1.0).ends_with("above 99.9 %"));
        for nothing in [0.0, -1.0, f64::NAN] {
            assert!(detection(nothing).starts_with("no sample"));
        }
    }
}
