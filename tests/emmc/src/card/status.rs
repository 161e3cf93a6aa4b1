//! Responses, the device status word and the card's states.
use serde::{Deserialize, Serialize};

/// Bits of the device status (R1), JESD84-B51 table 68. The letter after the number is the
/// spec's type: R = set for the command answered, X = found while executing and shown by a
/// later response.
pub mod bits {
    /// 31 R: the address is beyond the capacity.
    pub const OUT_OF_RANGE: u32 = 1 << 31;
    /// 30 R: the address does not match the block length.
    pub const ADDRESS_MISALIGN: u32 = 1 << 30;
    /// 29 R: the block length is not allowed.
    pub const BLOCK_LEN_ERROR: u32 = 1 << 29;
    /// 28 R: erase commands out of order.
    pub const ERASE_SEQ_ERROR: u32 = 1 << 28;
    /// 27 X: invalid selection of groups, or an argument of CMD38 the card does not have.
    pub const ERASE_PARAM: u32 = 1 << 27;
    /// 26 X: write to a protected block.
    pub const WP_VIOLATION: u32 = 1 << 26;
    /// 22 R: command not legal in this state.
    pub const ILLEGAL_COMMAND: u32 = 1 << 22;
    /// 19 X: general error.
    pub const ERROR: u32 = 1 << 19;
    /// 15 X: an erase skipped write-protected blocks.
    pub const WP_ERASE_SKIP: u32 = 1 << 15;
    /// 13 R: an erase sequence was cleared by another command.
    pub const ERASE_RESET: u32 = 1 << 13;
    /// 12..9: the state, see [`super::State`].
    pub const STATE_SHIFT: u32 = 9;
    /// 8: the card can take data.
    pub const READY_FOR_DATA: u32 = 1 << 8;
    /// 7 X: CMD6 did not switch.
    pub const SWITCH_ERROR: u32 = 1 << 7;
    /// All error bits that the model can set.
    pub const ERRORS: u32 = OUT_OF_RANGE
        | ADDRESS_MISALIGN
        | BLOCK_LEN_ERROR
        | ERASE_SEQ_ERROR
        | ERASE_PARAM
        | WP_VIOLATION
        | ILLEGAL_COMMAND
        | ERROR
        | WP_ERASE_SKIP
        | ERASE_RESET
        | SWITCH_ERROR;
}

/// State of the card; the number is the CURRENT_STATE field of R1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// After power-on or CMD0.
    Idle = 0,
    /// CMD1 done.
    Ready = 1,
    /// CMD2 done.
    Ident = 2,
    /// Has an address, not selected.
    Stby = 3,
    /// Selected.
    Tran = 4,
    /// Sends data.
    Data = 5,
    /// Receives data.
    Rcv = 6,
    /// Busy.
    Prg = 7,
    /// Busy and not selected.
    Dis = 8,
    /// Asleep (CMD5); no R1 shows it.
    Slp = 10,
}

/// What the card puts on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Nothing: the host sees a command time-out (or expected no response).
    None,
    /// Device status.
    R1(u32),
    /// CID or CSD, most significant byte first.
    R2([u8; 16]),
    /// OCR.
    R3(u32),
}

impl Response {
    /// The device status of an R1.
    pub fn r1(self) -> Option<u32> {
        match self {
            Response::R1(status) => Some(status),
            _ => None,
        }
    }
}
