//! The restart marker: what makes the next boot finish a reset that was cut.
//!
//! It is the bootloader message at the start of misc, in the layout of AOSP's
//! `bootloader_message.h`, or the same 512 bytes in a file. Only its first sector is written, alone,
//! so that it cannot tear; it holds `command`, `status` and the first 448 bytes of `recovery`.
//! Everything here is pure: bytes in, meaning out.

use crate::units::Bytes;
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
/// Recovery's options: erase /data, /cache and /metadata; erase /cache.
const WIPE_DATA: &str = "--wipe_data";
const WIPE_CACHE: &str = "--wipe_cache";
/// What recovery only logs, and we know our marker by.
const REASON: &str = "--reason=blockd:";
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
        /// What it erases, as [`target`] writes it.
        targets: Vec<String>,
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
    let boots = command == BOOT_RECOVERY;
    let wipes = boots && recovery.lines().any(|line| line == WIPE_DATA);
    match recovery.lines().find_map(reason) {
        Some(ours) if boots => ours,
        _ if wipes => Found::ForeignWipe { recovery },
        _ => Found::Foreign { command, recovery },
    }
}

/// `--reason=blockd:TOKEN:ATTEMPTS:TARGET,TARGET`
fn reason(line: &str) -> Option<Found> {
    let mut words = line.strip_prefix(REASON)?.splitn(3, ':');
    Some(Found::Ours {
        token: words.next()?.to_owned(),
        attempts: words.next()?.parse().ok()?,
        targets: words.next()?.split(',').map(str::to_owned).collect(),
    })
}

/// A target as the marker names it: `userdata`, or `userdata@1048576+4096` for a part of it, in
/// bytes. `None` for a name that cannot stand there.
pub fn target(name: &str, part: Option<(Bytes, Bytes)>) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    Some(match part {
        None => name.to_owned(),
        Some((offset, length)) => format!("{name}@{}+{}", offset.0, length.0),
    })
}

/// True where a reset of `wanted` does all that is left of one of `pending`.
pub fn covers(wanted: &[String], pending: &[String]) -> bool {
    let whole = |target: &str| target.split('@').next().unwrap_or_default().to_owned();
    pending
        .iter()
        .all(|left| wanted.contains(left) || wanted.contains(&whole(left)))
}

/// What recovery is told, so that it erases at least `targets` (whole partitions) and nothing that
/// they do not have; `None` where recovery has no word for that.
pub fn wipe_option(targets: &[String]) -> Option<&'static str> {
    let has = |name: &str| targets.iter().any(|target| target == name);
    match targets {
        _ if has("userdata") => Some(WIPE_DATA),
        [only] if only == "cache" => Some(WIPE_CACHE),
        _ => None,
    }
}

/// The sector with our marker in it; `status` is kept. `None` where it has no room for all of it.
pub fn with_ours(
    sector: &[u8; SECTOR],
    token: &str,
    attempts: u32,
    targets: &[String],
) -> Option<[u8; SECTOR]> {
    let mut lines = "recovery\n".to_owned();
    if let Some(option) = wipe_option(targets) {
        lines.push_str(&format!("{option}\n"));
    }
    lines.push_str(&format!(
        "{REASON}{token}:{attempts}:{}\n",
        targets.join(",")
    ));
    let mut new = cleared(sector);
    new[COMMAND][..BOOT_RECOVERY.len()].copy_from_slice(BOOT_RECOVERY.as_bytes());
    // The next sector may hold the rest of older lines: a NUL stays inside this one.
    let room = &mut new[RECOVERY];
    (lines.len() < room.len()).then(|| room[..lines.len()].copy_from_slice(lines.as_bytes()))?;
    Some(new)
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
        let targets = ["metadata", "userdata"].map(str::to_owned).to_vec();
        let ours = with_ours(&before, "abc-1", 2, &targets).expect("room");
        assert_eq!(
            parse(&ours),
            Found::Ours {
                token: "abc-1".to_owned(),
                attempts: 2,
                targets
            }
        );
        assert_eq!(&ours[32..36], b"okay");
        assert_eq!(ours[SECTOR - 1], 0);
        let after = cleared(&ours);
        assert_eq!(parse(&after), Found::Empty);
        assert_eq!(&after[32..36], b"okay");
    }

    #[test]
    fn what_has_no_room_in_the_sector_is_not_written() {
        let token = "0".repeat(36);
        for (names, fits) in [(10, true), (11, false)] {
            let targets = vec!["p".repeat(36); names];
            let ours = with_ours(&[0; SECTOR], &token, 1, &targets);
            assert_eq!(ours.is_some(), fits, "{names}");
            if let Some(ours) = ours {
                assert_eq!(ours[SECTOR - 1], 0);
                assert!(matches!(parse(&ours), Found::Ours { targets: t, .. } if t == targets));
            }
        }
    }

    #[test]
    fn recovery_is_told_to_erase_no_more_than_was_asked_for() {
        let table = [
            (&["userdata"][..], Some("--wipe_data")),
            (&["metadata", "userdata", "cache"], Some("--wipe_data")),
            (&["cache"], Some("--wipe_cache")),
            (&["metadata"], None),
            (&["cache", "metadata"], None),
            (&["userdata@0+512"], None),
        ];
        for (targets, want) in table {
            let targets: Vec<String> = targets.iter().map(|t| (*t).to_owned()).collect();
            assert_eq!(wipe_option(&targets), want, "{targets:?}");
        }
    }

    #[test]
    fn a_pending_reset_is_covered_by_the_same_or_more() {
        let table = [
            ("userdata", "userdata", true),
            ("metadata,userdata", "userdata", true),
            ("userdata", "metadata,userdata", false),
            ("cache", "userdata", false),
            ("userdata", "userdata@512+512", true),
            ("userdata@512+512", "userdata@512+512", true),
            ("userdata@0+512", "userdata@512+512", false),
        ];
        let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
        for (wanted, pending, want) in table {
            assert_eq!(
                covers(&list(wanted), &list(pending)),
                want,
                "{wanted} {pending}"
            );
        }
    }

    #[test]
    fn names_that_would_break_the_line_are_not_written() {
        for name in ["", "a:b", "a,b", "a b", "a\n--x", "ü", "a@1"] {
            assert_eq!(target(name, None), None, "{name}");
        }
        let part = Some((Bytes(512), Bytes(1024)));
        assert_eq!(target("cache", part).as_deref(), Some("cache@512+1024"));
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
                    "recovery\n--wipe_data\n--reason=blockd:t:x:userdata\n",
                ),
                "wipe",
            ),
            (
                sector(
                    "boot-recovery",
                    "recovery\n--wipe_cache\n--reason=blockd:t:1:cache\n",
                ),
                "ours",
            ),
            (
                sector("boot-recovery", "recovery\n--wipe_cache\n"),
                "foreign",
            ),
            (
                sector("boot-fastboot", "recovery\n--reason=blockd:t:1:cache\n"),
                "foreign",
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
