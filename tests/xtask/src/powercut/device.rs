//! The device that loses its power: a card with userdata ragged at both ends, and what a bootloader
//! and a reader of the bare medium find on it.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use emmc::card::{Card, Timing};
use emmc::server::Server;
use emmc::store::SECTOR;

use super::watch::Layout;
use crate::card::{self, Census};
use crate::gpt::Partition;

/// Sectors of an erase group: 512 KiB.
const GROUP: u64 = 1024;
/// What the client erases.
pub const TARGETS: [&str; 2] = ["metadata", "userdata"];
const MISC: Partition = Partition {
    name: "misc",
    start: 2 * GROUP,
    sectors: 2 * GROUP,
};
const METADATA: Partition = Partition {
    name: "metadata",
    start: 4 * GROUP,
    sectors: 32 * GROUP,
};
/// Both ends of userdata lie inside a group that a neighbour shares, on whole blocks of 4 KiB.
const USERDATA: Partition = Partition {
    name: "userdata",
    start: 68 * GROUP + 368,
    sectors: 1000 * GROUP + 72,
};
const PARTITIONS: &[Partition] = &[
    MISC,
    METADATA,
    Partition {
        name: "frp",
        start: METADATA.start + METADATA.sectors,
        sectors: GROUP,
    },
    Partition {
        name: "persist",
        start: METADATA.start + METADATA.sectors + GROUP,
        sectors: USERDATA.start - (METADATA.start + METADATA.sectors + GROUP),
    },
    USERDATA,
    Partition {
        name: "vendor",
        start: USERDATA.start + USERDATA.sectors,
        sectors: 500 * GROUP,
    },
];
/// The client's `--max-chunk`, in groups: userdata takes several commands.
pub const CHUNK_GROUPS: u64 = 256;
/// What the bootloader and AOSP's system space have of misc; a phone that waits for nothing has
/// zeros there.
const MESSAGES: usize = 64 << 10;
/// bootloader_message.h: the command comes first.
const COMMAND_BYTES: usize = 32;
const BOOT_RECOVERY: &[u8] = b"boot-recovery\0";

/// A new card: old data everywhere, no message in misc.
pub fn card() -> Result<Card> {
    let mut card = card::with(PARTITIONS, Timing::seed_card())?;
    card.store_mut().write(MISC.start, &[0; MESSAGES])?;
    Ok(card)
}

/// The same behind a socket.
pub fn serve(directory: &Path) -> Result<Server> {
    Server::start(card()?, &directory.join("card")).context("card server")
}

/// What the watch must know.
pub fn layout() -> Layout {
    let whole = |p: &Partition| {
        let first = p.start.div_ceil(GROUP);
        (p.end() / GROUP - first).div_ceil(CHUNK_GROUPS)
    };
    Layout {
        misc: MISC.start..MISC.end(),
        targets: vec![
            METADATA.start..METADATA.end(),
            USERDATA.start..USERDATA.end(),
        ],
        erases: whole(&METADATA) + whole(&USERDATA),
    }
}

/// What lies on the medium.
#[derive(Debug)]
pub struct Medium {
    census: Census,
    misc: Vec<u8>,
}

impl Medium {
    /// Reads all of it.
    pub fn read(card: &Card) -> io::Result<Self> {
        let mut misc = vec![0; MISC.sectors as usize * SECTOR];
        card.store().read(MISC.start, &mut misc)?;
        Ok(Self {
            census: Census::of(card, PARTITIONS)?,
            misc,
        })
    }

    /// What the bootloader starts: true for recovery.
    pub fn boots_recovery(&self) -> bool {
        self.misc.starts_with(BOOT_RECOVERY)
    }

    /// No command for the bootloader.
    pub fn no_command(&self) -> bool {
        self.misc[..COMMAND_BYTES].iter().all(|byte| *byte == 0)
    }

    /// Sectors of the targets that still hold what they held first.
    pub fn old_data(&self) -> Result<u64> {
        let sectors = TARGETS.map(|name| Ok(self.census.range(name)?.pattern));
        sectors.into_iter().sum()
    }

    /// Nothing of the targets is gone.
    pub fn is_whole(&self) -> Result<bool> {
        Ok(self.old_data()? == METADATA.sectors + USERDATA.sectors)
    }

    /// Something was written to every target since it was erased.
    pub fn is_formatted(&self) -> Result<bool> {
        for name in TARGETS {
            if self.census.range(name)?.other == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What changed beside the targets and the first sector of misc.
    pub fn changed(&self, before: &Self) -> Vec<String> {
        let exempt = [&TARGETS[..], &["misc"]].concat();
        let mut changed = self.census.changed_beside(&before.census, &exempt);
        if self.misc[SECTOR..] != before.misc[SECTOR..] {
            changed.push("misc behind its first sector".to_owned());
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_medium_is_told() {
        let mut card = card().unwrap();
        let before = Medium::read(&card).unwrap();
        assert!(before.is_whole().unwrap() && before.no_command() && !before.boots_recovery());
        assert!(before.changed(&before).is_empty());
        let layout = layout();
        assert_eq!(layout.erases, 1 + 4);

        let mut sector = [0; SECTOR];
        sector[..BOOT_RECOVERY.len()].copy_from_slice(BOOT_RECOVERY);
        let misc = layout.misc.start;
        card.store_mut().write(misc, &sector).unwrap();
        card.store_mut().erase(layout.targets[0].clone()).unwrap();
        let after = Medium::read(&card).unwrap();
        assert!(after.boots_recovery() && !after.no_command() && !after.is_whole().unwrap());
        assert_eq!(after.old_data().unwrap(), USERDATA.sectors);
        assert!(after.changed(&before).is_empty());

        // One sector too many at either end, and in misc.
        let end = layout.targets[1].end;
        card.store_mut().erase(end - 1..end + 1).unwrap();
        card.store_mut().write(misc + 1, &sector).unwrap();
        let after = Medium::read(&card).unwrap();
        let expected = ["vendor", "misc behind its first sector"];
        assert_eq!(after.changed(&before), expected);
    }
}
