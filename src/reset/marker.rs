//! The restart marker: what makes the next boot finish a reset that was cut.
//!
//! It is the bootloader message at the start of misc, in the layout of AOSP's
//! `bootloader_message.h`, or the same 512 bytes in a file. Only its first sector is written, alone,
//! so that it cannot tear; it holds `command`, `status` and the first 448 bytes of `recovery`.
//! Everything here is pure: bytes in, meaning out.

use std::ops::Range;

/// Size of what is read and written.
pub const SECTOR: usize = 512;
const COMMAND: Range<usize> = 0..32;
const RECOVERY: Range<usize> = 64..SECTOR;

/// Offset of the virtual A/B record in misc: the start of AOSP's system space.
pub const VIRTUAL_AB_OFFSET: u64 = 32 * 1024;
const VIRTUAL_AB_MAGIC: u32 = 0x5674_0ab0;

/// What boots recovery.
const BOOT_RECOVERY: &str = "boot-recovery";
/// How often a reset is begun before a person must look.
pub const MAX_ATTEMPTS: u32 = 3;

/// What the sector says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No command.
    Empty,
    /// A reset of ours that has not been finished.
    Ours {
        /// The first run's token.
        token: String,
        /// How often it was begun.
        attempts: u32,
    },
    /// Recovery was told by somebody else to wipe: until recovery is done, it does for a marker.
    ForeignWipe {
        /// The lines for recovery.
        recovery: String,
    },
    /// Another command; neither overwritten nor cleared.
    Foreign {
        /// The command field.
        command: String,
        /// The lines for recovery.
        recovery: String,
    },
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Reads a sector.
pub fn parse(sector: &[u8; SECTOR]) -> Found {
    let command = text(&sector[COMMAND]);
    let recovery = text(&sector[RECOVERY]);
    if command.is_empty() {
        return Found::Empty;
    }
    let wipes = command == BOOT_RECOVERY && recovery.lines().any(|line| line == "--wipe_data");
    let ours = recovery
        .lines()
        .find_map(|line| line.strip_prefix("--reason=blockd:"))
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(token, attempts)| Some((token.to_owned(), attempts.parse().ok()?)));
    match ours {
        Some((token, attempts)) if wipes => Found::Ours { token, attempts },
        _ if wipes => Found::ForeignWipe { recovery },
        _ => Found::Foreign { command, recovery },
    }
}

/// The sector with our marker in it; `status` is kept.
pub fn with_ours(sector: &[u8; SECTOR], token: &str, attempts: u32) -> [u8; SECTOR] {
    let lines = format!("recovery\n--wipe_data\n--reason=blockd:{token}:{attempts}\n");
    let mut new = cleared(sector);
    new[COMMAND][..BOOT_RECOVERY.len()].copy_from_slice(BOOT_RECOVERY.as_bytes());
    // The next sector may hold the rest of older lines: a NUL stays inside this one.
    let room = &mut new[RECOVERY];
    let length = lines.len().min(room.len() - 1);
    room[..length].copy_from_slice(&lines.as_bytes()[..length]);
    new
}

/// The sector without a command; `status` is kept.
pub fn cleared(sector: &[u8; SECTOR]) -> [u8; SECTOR] {
    let mut new = *sector;
    new[COMMAND].fill(0);
    new[RECOVERY].fill(0);
    new
}

/// What the virtual A/B record says of a pending update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Nothing is pending: no record, or a state without snapshots.
    None,
    /// Snapshots wait for their merge (`SNAPSHOTTED`).
    Snapshotted,
    /// They are being merged (`MERGING`).
    Merging,
}

/// Reads the record: version u8, magic u32, merge_status u8, source_slot u8, packed, little endian.
pub fn parse_merge(record: &[u8]) -> Merge {
    let magic = record.get(1..5).map(|b| [b[0], b[1], b[2], b[3]]);
    if magic.map(u32::from_le_bytes) != Some(VIRTUAL_AB_MAGIC) {
        return Merge::None;
    }
    match record.get(5) {
        Some(2) => Merge::Snapshotted,
        Some(3) => Merge::Merging,
        _ => Merge::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(command: &str, recovery: &str) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        sector[..command.len()].copy_from_slice(command.as_bytes());
        sector[32..36].copy_from_slice(b"okay");
        sector[64..64 + recovery.len()].copy_from_slice(recovery.as_bytes());
        sector
    }

    #[test]
    fn our_marker_is_known_again_and_keeps_the_status() {
        let before = sector("", "old lines that ended\n");
        let ours = with_ours(&before, "abc-1", 2);
        assert_eq!(
            parse(&ours),
            Found::Ours {
                token: "abc-1".to_owned(),
                attempts: 2
            }
        );
        assert_eq!(&ours[32..36], b"okay");
        assert_eq!(ours[SECTOR - 1], 0);
        let after = cleared(&ours);
        assert_eq!(parse(&after), Found::Empty);
        assert_eq!(&after[32..36], b"okay");
    }

    #[test]
    fn a_token_that_is_too_long_stays_inside_the_sector() {
        let ours = with_ours(&[0; SECTOR], &"x".repeat(4096), 1);
        assert_eq!(ours[SECTOR - 1], 0);
    }

    #[test]
    fn others_are_told_apart() {
        let wipe = "recovery\n--wipe_data\n--reason=MasterClearConfirm\n";
        let table = [
            (sector("", ""), "empty"),
            (sector("boot-recovery", wipe), "wipe"),
            (
                sector("boot-recovery", "recovery\n--update_package=x\n"),
                "foreign",
            ),
            (sector("boot-recovery", ""), "foreign"),
            (sector("bootonce-bootloader", ""), "foreign"),
            (sector("boot-fastboot", wipe), "foreign"),
            (
                sector(
                    "boot-recovery",
                    "recovery\n--wipe_data\n--reason=blockd:t:x\n",
                ),
                "wipe",
            ),
            (
                sector("boot-recovery", "recovery\n--reason=blockd:t:1\n"),
                "foreign",
            ),
        ];
        for (sector, want) in table {
            let found = parse(&sector);
            let kind = match found {
                Found::Empty => "empty",
                Found::Ours { .. } => "ours",
                Found::ForeignWipe { .. } => "wipe",
                Found::Foreign { .. } => "foreign",
            };
            assert_eq!(kind, want, "{found:?}");
        }
    }

    #[test]
    fn the_merge_state_is_read_as_fastbootd_does() {
        let record = |status: u8| [2, 0xb0, 0x0a, 0x74, 0x56, status, 0, 0];
        let table = [
            (record(0), Merge::None),
            (record(1), Merge::None),
            (record(2), Merge::Snapshotted),
            (record(3), Merge::Merging),
            (record(4), Merge::None),
            ([0; 8], Merge::None),
        ];
        for (record, want) in table {
            assert_eq!(parse_merge(&record), want, "{record:?}");
        }
        assert_eq!(parse_merge(&[]), Merge::None);
    }
}
