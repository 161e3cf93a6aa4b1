//! Register map (SD Host Controller Simplified Specification 3.00, §2).

/// Size of the register file, the length of BAR 0.
pub const SIZE: usize = 256;

/// Argument 2: block count of Auto CMD23.
pub const ARGUMENT2: usize = 0x00;
pub const BLOCK_SIZE: usize = 0x04;
pub const BLOCK_COUNT: usize = 0x06;
pub const ARGUMENT: usize = 0x08;
pub const TRANSFER_MODE: usize = 0x0c;
pub const COMMAND: usize = 0x0e;
pub const RESPONSE: usize = 0x10;
/// Where the response of Auto CMD12/23 goes.
pub const AUTO_RESPONSE: usize = 0x1c;
pub const BUFFER: usize = 0x20;
pub const PRESENT_STATE: usize = 0x24;
pub const HOST_CONTROL: usize = 0x28;
pub const POWER_CONTROL: usize = 0x29;
pub const CLOCK_CONTROL: usize = 0x2c;
pub const TIMEOUT_CONTROL: usize = 0x2e;
pub const SOFTWARE_RESET: usize = 0x2f;
pub const INT_STATUS: usize = 0x30;
pub const INT_ENABLE: usize = 0x34;
pub const INT_SIGNAL: usize = 0x38;
pub const AUTO_CMD_ERROR: usize = 0x3c;
pub const CAPABILITIES: usize = 0x40;
pub const ADMA_ERROR: usize = 0x54;
pub const ADMA_ADDRESS: usize = 0x58;
pub const SLOT_INT_STATUS: usize = 0xfc;
pub const HOST_VERSION: usize = 0xfe;

/// Transfer mode: DMA enable.
pub const MODE_DMA: u16 = 1;
/// Transfer mode bits 3:2: automatic command.
pub const MODE_AUTO_SHIFT: u16 = 2;
pub const MODE_READ: u16 = 1 << 4;
pub const MODE_MULTI: u16 = 1 << 5;
pub const AUTO_CMD12: u16 = 1;
pub const AUTO_CMD23: u16 = 2;

/// Command register bits 1:0: response type; 3 = 48 bits with busy.
pub const RESPONSE_48_BUSY: u16 = 3;
pub const COMMAND_DATA: u16 = 1 << 5;

/// Host control bits 4:3 = 2: ADMA2 with 32-bit addresses.
pub const DMA_SELECT_SHIFT: u8 = 3;
pub const DMA_ADMA2_32: u8 = 2;

pub const RESET_ALL: u8 = 1;
pub const RESET_DATA: u8 = 4;

/// Interrupt status; the upper half are errors.
pub const INT_RESPONSE: u32 = 1;
pub const INT_DATA_END: u32 = 1 << 1;
pub const INT_SPACE_AVAIL: u32 = 1 << 4;
pub const INT_DATA_AVAIL: u32 = 1 << 5;
pub const INT_ERROR: u32 = 1 << 15;
pub const INT_TIMEOUT: u32 = 1 << 16;
pub const INT_DATA_TIMEOUT: u32 = 1 << 20;
pub const INT_DATA_CRC: u32 = 1 << 21;
pub const INT_AUTO_CMD: u32 = 1 << 24;
pub const INT_ADMA: u32 = 1 << 25;

/// Auto CMD error status: time-out.
pub const AUTO_CMD_TIMEOUT: u8 = 1 << 1;

/// Present state.
pub const CMD_INHIBIT_DATA: u32 = 1 << 1;
pub const DATA_LINE_ACTIVE: u32 = 1 << 2;
pub const WRITE_ACTIVE: u32 = 1 << 8;
pub const READ_ACTIVE: u32 = 1 << 9;
pub const BUFFER_WRITE: u32 = 1 << 10;
pub const BUFFER_READ: u32 = 1 << 11;
/// Card inserted, stable, detect pin, not write protected.
pub const CARD_THERE: u32 = 0xf << 16;
/// DAT0 high: the card is not busy.
pub const DAT0: u32 = 1 << 20;
/// DAT3..1 and CMD high.
pub const LINES_HIGH: u32 = 0xe << 20 | 1 << 24;

/// Base and time-out clock in MHz.
pub const CLOCK_MHZ: u32 = 52;
/// Time-out clock, its unit MHz, base clock, ADMA2, high speed, 3.3 V. SDMA and 64-bit
/// addresses are not offered; maximum block length 512.
pub const CAPABILITIES_VALUE: u32 =
    CLOCK_MHZ | 1 << 7 | CLOCK_MHZ << 8 | 1 << 19 | 1 << 21 | 1 << 24;
/// Specification version 3.00.
pub const VERSION_3_00: u8 = 2;

/// The register file.
pub struct Registers(pub [u8; SIZE]);

impl Registers {
    /// Values after a reset.
    pub fn new() -> Self {
        let mut r = Registers([0; SIZE]);
        r.set32(CAPABILITIES, CAPABILITIES_VALUE);
        r.0[HOST_VERSION] = VERSION_3_00;
        r
    }

    pub fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub fn get32(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub fn set32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Bytes per block.
    pub fn block_size(&self) -> usize {
        usize::from(self.get16(BLOCK_SIZE) & 0xfff)
    }

    /// Bytes of the transfer that the registers describe.
    pub fn transfer_bytes(&self) -> usize {
        let blocks = if self.get16(TRANSFER_MODE) & MODE_MULTI != 0 {
            usize::from(self.get16(BLOCK_COUNT))
        } else {
            1
        };
        self.block_size() * blocks
    }

    /// Latches interrupt bits that are enabled.
    pub fn raise(&mut self, bits: u32) {
        let v = self.get32(INT_STATUS) | (bits & self.get32(INT_ENABLE));
        self.set32(INT_STATUS, v);
        self.sum_errors();
    }

    /// The error summary bit follows the error bits.
    pub fn sum_errors(&mut self) {
        let v = self.get32(INT_STATUS);
        let v = if v >> 16 != 0 {
            v | INT_ERROR
        } else {
            v & !INT_ERROR
        };
        self.set32(INT_STATUS, v);
    }

    /// Level of the interrupt line.
    pub fn irq(&self) -> bool {
        self.get32(INT_STATUS) & self.get32(INT_SIGNAL) != 0
    }
}
