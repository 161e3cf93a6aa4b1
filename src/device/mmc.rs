//! An eMMC card behind its whole-disk node: raw commands.

use crate::uapi;
use crate::uapi::mmc::{mmc_ioc_cmd, MMC_RSP_R1, MMC_RSP_R1B, MMC_RSP_R1_ADTC};
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// What the card answers with, and whether it is busy after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// R1: a status word.
    R1,
    /// R1b: a status word, then busy on DAT0. Linux ≥ 5.15.138, 6.1.61 and 6.3 overwrites the word
    /// with the OR of the CMD13 polls that wait for the end (drivers/mmc/core/block.c).
    R1b,
}

/// One MMC command without a data phase, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Command index, JEDEC JESD84.
    pub index: u8,
    /// Argument.
    pub argument: u32,
    /// Kind of the answer.
    pub reply: Reply,
    /// How long the kernel may wait for the busy phase to end; `None` leaves it its 10 s.
    pub timeout: Option<Duration>,
    /// First word of the answer, once it was sent.
    pub response: u32,
}

impl Command {
    /// CMD6 SWITCH: writes `value` to byte `index` of the EXT_CSD.
    pub const SWITCH: u8 = 6;
    /// CMD8 SEND_EXT_CSD.
    pub const SEND_EXT_CSD: u8 = 8;
    /// CMD13 SEND_STATUS.
    pub const SEND_STATUS: u8 = 13;
    /// CMD35 ERASE_GROUP_START.
    pub const ERASE_GROUP_START: u8 = 35;
    /// CMD36 ERASE_GROUP_END.
    pub const ERASE_GROUP_END: u8 = 36;
    /// CMD38 ERASE.
    pub const ERASE: u8 = 38;

    /// A command that has not been sent.
    pub fn new(index: u8, argument: u32, reply: Reply) -> Command {
        Command {
            index,
            argument,
            reply,
            timeout: None,
            response: 0,
        }
    }

    /// CMD13 for the card at relative address `rca`.
    pub fn send_status(rca: u16) -> Command {
        Command::new(Command::SEND_STATUS, u32::from(rca) << 16, Reply::R1)
    }

    /// CMD6 that writes `value` to EXT_CSD byte `index`, command set 1.
    pub fn switch(index: u8, value: u8) -> Command {
        const WRITE_BYTE: u32 = 3;
        let argument = WRITE_BYTE << 24 | u32::from(index) << 16 | u32::from(value) << 8 | 1;
        Command::new(Command::SWITCH, argument, Reply::R1b)
    }

    fn to_uapi(self) -> mmc_ioc_cmd {
        mmc_ioc_cmd {
            opcode: u32::from(self.index),
            arg: self.argument,
            flags: match self.reply {
                Reply::R1 => MMC_RSP_R1,
                Reply::R1b => MMC_RSP_R1B,
            },
            cmd_timeout_ms: self
                .timeout
                .map_or(0, |t| u32::try_from(t.as_millis()).unwrap_or(u32::MAX)),
            ..mmc_ioc_cmd::default()
        }
    }
}

/// `CMD38 0x80000000`.
impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CMD{} {:#010x}", self.index, self.argument)
    }
}

/// A card. Addresses inside commands are absolute; range safety is the caller's alone, since the
/// kernel checks neither bounds nor mounts nor a read-only flag on this path.
pub trait Mmc: Send + Sync {
    /// MMC_IOC_MULTI_CMD: the commands without anything in between; the first that fails ends it.
    /// Answers are written into `commands` even where an errno is returned.
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno>;
    /// MMC_IOC_CMD: one command.
    fn cmd(&self, command: &mut Command) -> Result<(), Errno>;
    /// CMD8: the 512 bytes of the EXT_CSD register.
    fn ext_csd(&self) -> Result<[u8; 512], Errno>;
}

/// A real card.
pub struct Card(File);

impl Card {
    /// Opens the whole-disk node. O_RDONLY is enough: the kernel asks for CAP_SYS_RAWIO and a
    /// whole disk, never for a mode, and a read-only open claims nothing.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn open(path: &Path) -> Result<Card, Errno> {
        File::open(path).map(Card).map_err(super::block::errno)
    }
}

impl Mmc for Card {
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno> {
        let mut raw: Vec<mmc_ioc_cmd> = commands.iter().map(|c| c.to_uapi()).collect();
        let result = uapi::mmc::multi_cmd(self.0.as_fd(), &mut raw);
        for (command, raw) in commands.iter_mut().zip(&raw) {
            command.response = raw.response[0];
        }
        result
    }

    fn cmd(&self, command: &mut Command) -> Result<(), Errno> {
        let mut raw = command.to_uapi();
        let result = uapi::mmc::cmd(self.0.as_fd(), &mut raw);
        command.response = raw.response[0];
        result
    }

    fn ext_csd(&self) -> Result<[u8; 512], Errno> {
        let mut block = [0; 512];
        let mut raw = mmc_ioc_cmd {
            opcode: u32::from(Command::SEND_EXT_CSD),
            flags: MMC_RSP_R1_ADTC,
            ..mmc_ioc_cmd::default()
        };
        uapi::mmc::cmd_read_block(self.0.as_fd(), &mut raw, &mut block)?;
        Ok(block)
    }
}

/// Bits of the R1 status word, JESD84 table "Device status".
pub mod status {
    /// Each error bit that a command of ours can see, with its JEDEC name.
    pub const ERRORS: [(u32, &str); 17] = [
        (1 << 31, "ADDRESS_OUT_OF_RANGE"),
        (1 << 30, "ADDRESS_MISALIGN"),
        (1 << 29, "BLOCK_LEN_ERROR"),
        (1 << 28, "ERASE_SEQ_ERROR"),
        (1 << 27, "ERASE_PARAM"),
        (1 << 26, "WP_VIOLATION"),
        (1 << 24, "LOCK_UNLOCK_FAILED"),
        (1 << 23, "COM_CRC_ERROR"),
        (1 << 22, "ILLEGAL_COMMAND"),
        (1 << 21, "DEVICE_ECC_FAILED"),
        (1 << 20, "CC_ERROR"),
        (1 << 19, "ERROR"),
        (1 << 16, "CID/CSD_OVERWRITE"),
        (1 << 15, "WP_ERASE_SKIP"),
        (1 << 13, "ERASE_RESET"),
        (1 << 7, "SWITCH_ERROR"),
        (1 << 25, "DEVICE_IS_LOCKED"),
    ];

    /// Bits that are no errors.
    const FLAGS: [(u32, &str); 3] = [
        (READY_FOR_DATA, "READY_FOR_DATA"),
        (1 << 6, "EXCEPTION_EVENT"),
        (1 << 5, "APP_CMD"),
    ];

    /// CURRENT_STATE by number.
    const STATES: [&str; 11] = [
        "idle", "ready", "ident", "stby", "tran", "data", "rcv", "prg", "dis", "btst", "slp",
    ];

    /// ERASE_SEQ_ERROR.
    pub const ERASE_SEQ_ERROR: u32 = 1 << 28;
    /// ERASE_RESET: a command that is no part of an erase sequence has ended it.
    pub const ERASE_RESET: u32 = 1 << 13;
    /// READY_FOR_DATA.
    pub const READY_FOR_DATA: u32 = 1 << 8;
    /// CURRENT_STATE value `tran`.
    const STATE_TRAN: u32 = 4;

    /// CURRENT_STATE, bits 12..9. Means nothing in the answer of an R1b command that the kernel
    /// polled for: that word is an OR of several.
    pub fn state(word: u32) -> u32 {
        word >> 9 & 0xf
    }

    /// CURRENT_STATE by its JEDEC name; see [`state`] for when it means nothing.
    pub fn state_name(word: u32) -> &'static str {
        STATES.get(state(word) as usize).copied().unwrap_or("?")
    }

    /// Every bit that is set, by its JEDEC name, the highest first.
    pub fn names(word: u32) -> Vec<&'static str> {
        let mut set: Vec<(u32, &str)> = ERRORS
            .into_iter()
            .chain(FLAGS)
            .filter(|(bit, _)| word & bit != 0)
            .collect();
        set.sort_by_key(|(bit, _)| std::cmp::Reverse(*bit));
        set.into_iter().map(|(_, name)| name).collect()
    }

    /// True where the card has ended its busy phase.
    pub fn is_ready(word: u32) -> bool {
        state(word) == STATE_TRAN && word & READY_FOR_DATA != 0
    }

    /// The error bits that are set, by name, joined by `, `; empty where none is.
    pub fn error_names(word: u32) -> String {
        let names: Vec<&str> = ERRORS
            .iter()
            .filter(|(bit, _)| word & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        names.join(", ")
    }

    /// True where an error bit is set.
    pub fn has_error(word: u32) -> bool {
        ERRORS.iter().any(|(bit, _)| word & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_names() {
        assert_eq!(status::names(0x900), ["READY_FOR_DATA"]);
        assert_eq!(status::state_name(0x900), "tran");
        assert_eq!(
            status::names(1 << 25 | 1 << 28 | 1 << 6),
            ["ERASE_SEQ_ERROR", "DEVICE_IS_LOCKED", "EXCEPTION_EVENT"]
        );
        assert!(status::names(0).is_empty());
        assert_eq!(status::state_name(15 << 9), "?");
    }

    #[test]
    fn switch_is_a_write_byte() {
        assert_eq!(Command::switch(32, 1).argument, 0x0320_0101);
    }

    #[test]
    fn status_words_of_a_real_card() {
        let table = [
            (0x0000_0900, true, ""),
            (0x0000_0e00, false, ""),
            (0x1000_0900, true, "ERASE_SEQ_ERROR"),
            (0x8000_0900, true, "ADDRESS_OUT_OF_RANGE"),
            (0x0000_8900, true, "WP_ERASE_SKIP"),
            (0x0800_0900, true, "ERASE_PARAM"),
        ];
        for (word, ready, names) in table {
            assert_eq!(status::is_ready(word), ready, "{word:#x}");
            assert_eq!(status::error_names(word), names, "{word:#x}");
        }
    }
}
