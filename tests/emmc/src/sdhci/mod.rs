//! SDHCI 3.00 host controller with the card in its slot: ADMA2 with 32-bit addresses, PIO
//! (firmware uses it), Auto CMD12 and CMD23, busy on DAT0, hardware data time-out.
//!
//! Like the card it has neither threads nor a clock: the owner calls [`Sdhci::tick`] when
//! [`Sdhci::deadline`] has come.
mod registers;
mod transfer;

pub use registers::SIZE;

use crate::card::{Card, Response};
use registers::*;
use std::time::Duration;
use transfer::Pio;

/// Guest memory by physical address.
pub trait Dma {
    /// False if the range is not memory.
    fn read(&self, address: u64, buf: &mut [u8]) -> bool;
    /// False if the range is not writable memory.
    fn write(&self, address: u64, data: &[u8]) -> bool;
}

/// What waits for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The card's access time before a read.
    Read { len: usize, cmd12: bool },
    /// Busy after a write.
    WriteEnd { cmd12: bool },
    /// Busy after an R1b command.
    BusyEnd,
    /// Busy for longer than the time-out register allows.
    DataTimeout,
}

/// The controller.
pub struct Sdhci {
    /// The card in the slot.
    pub card: Card,
    /// False: the controller never times a busy card out.
    pub hardware_timeout: bool,
    regs: Registers,
    pending: Option<(Duration, Phase)>,
    pio: Option<Pio>,
}

impl Sdhci {
    /// A controller after reset; the card has no power until the guest turns it on.
    pub fn new(mut card: Card) -> Self {
        card.power_cut(Duration::ZERO);
        Sdhci {
            card,
            hardware_timeout: true,
            regs: Registers::new(),
            pending: None,
            pio: None,
        }
    }

    /// Takes the card out.
    pub fn into_card(self) -> Card {
        self.card
    }

    /// Level of the interrupt line.
    pub fn irq(&self) -> bool {
        self.regs.irq()
    }

    /// When [`Sdhci::tick`] has something to do next.
    pub fn deadline(&self) -> Option<Duration> {
        self.pending.map(|p| p.0)
    }

    /// Sets all registers back and takes the card's power away.
    pub fn reset(&mut self, now: Duration) {
        self.card.power_cut(now);
        self.regs = Registers::new();
        self.pending = None;
        self.pio = None;
    }

    /// The guest reads registers.
    pub fn read(&mut self, now: Duration, offset: usize, out: &mut [u8]) {
        self.card.tick(now);
        if (BUFFER..PRESENT_STATE).contains(&offset) {
            return self.pio_read(now, out);
        }
        let present = self.present(now);
        self.regs.set32(PRESENT_STATE, present);
        self.regs.0[SLOT_INT_STATUS] = self.irq().into();
        for (at, byte) in (offset..).zip(out) {
            *byte = self.regs.0.get(at).copied().unwrap_or(0);
        }
    }

    /// The guest writes registers. The upper byte of the command register starts a command.
    pub fn write(&mut self, now: Duration, offset: usize, data: &[u8], dma: &dyn Dma) {
        if (BUFFER..PRESENT_STATE).contains(&offset) {
            self.pio_write(now, data);
            return self.tick(now, dma);
        }
        let mut execute = false;
        for (at, &byte) in (offset..).zip(data) {
            if at < SIZE {
                execute |= self.write_byte(now, at, byte);
            }
        }
        self.regs.sum_errors();
        if execute {
            self.execute(now, dma);
        }
    }

    /// True if the byte starts a command.
    fn write_byte(&mut self, now: Duration, at: usize, byte: u8) -> bool {
        const COMMAND_HIGH: usize = COMMAND + 1;
        match at {
            // read-only
            RESPONSE..BUFFER | PRESENT_STATE..=0x27 => {}
            AUTO_CMD_ERROR..=0x3d | CAPABILITIES..=0x4f | SLOT_INT_STATUS..SIZE => {}
            // write 1 to clear
            INT_STATUS..INT_ENABLE => self.regs.0[at] &= !byte,
            POWER_CONTROL => {
                let before = std::mem::replace(&mut self.regs.0[at], byte);
                match (before & 1, byte & 1) {
                    (0, 1) => self.card.power_on(),
                    (1, 0) => self.card.power_cut(now),
                    _ => {}
                }
            }
            // bit 1: the internal clock is stable as soon as bit 0 enables it
            CLOCK_CONTROL => self.regs.0[at] = byte & !2 | (byte & 1) << 1,
            SOFTWARE_RESET => {
                if byte & RESET_ALL != 0 {
                    self.reset(now);
                }
                if byte & RESET_DATA != 0 {
                    self.pending = None;
                    self.pio = None;
                }
            }
            _ => self.regs.0[at] = byte,
        }
        at == COMMAND_HIGH
    }

    fn present(&mut self, now: Duration) -> u32 {
        let mut v = CARD_THERE | LINES_HIGH;
        if !self.card.busy(now) {
            v |= DAT0;
        }
        if let Some((_, phase)) = self.pending {
            v |= CMD_INHIBIT_DATA | DATA_LINE_ACTIVE;
            if matches!(phase, Phase::Read { .. }) {
                v |= READ_ACTIVE;
            }
        }
        v | self.pio.as_ref().map_or(0, Pio::present)
    }

    fn set_pending(&mut self, now: Duration, at: Duration, phase: Phase) {
        let n = self.regs.0[TIMEOUT_CONTROL] & 0xf;
        let limit = Duration::from_micros((1u64 << (13 + n)) / u64::from(CLOCK_MHZ));
        let reading = matches!(phase, Phase::Read { .. });
        self.pending = if self.hardware_timeout && !reading && at > now + limit {
            Some((now + limit, Phase::DataTimeout))
        } else {
            Some((at, phase))
        };
    }

    fn execute(&mut self, now: Duration, dma: &dyn Dma) {
        let register = self.regs.get16(COMMAND);
        let command = (register >> 8 & 0x3f) as u8;
        let (response_type, data) = (register & 3, register & COMMAND_DATA != 0);
        let auto = self.regs.get16(TRANSFER_MODE) >> MODE_AUTO_SHIFT & 3;
        if data && auto == AUTO_CMD23 {
            let count = self.regs.get32(ARGUMENT2);
            match self.card.command(now, 23, count) {
                Response::R1(status) => self.regs.set32(AUTO_RESPONSE, status),
                _ => {
                    self.regs.0[AUTO_CMD_ERROR] |= AUTO_CMD_TIMEOUT;
                    return self.regs.raise(INT_AUTO_CMD);
                }
            }
        }
        let argument = self.regs.get32(ARGUMENT);
        let response = self.card.command(now, command, argument);
        let state = self.card.state();
        log::trace!("{now:?} CMD{command} {argument:#010x} -> {response:x?} {state:?}");
        match response {
            Response::None if response_type != 0 => return self.regs.raise(INT_TIMEOUT),
            Response::None => {}
            Response::R1(v) | Response::R3(v) => self.regs.set32(RESPONSE, v),
            // the registers hold bits 127:8
            Response::R2(bytes) => {
                let v = u128::from_be_bytes(bytes) >> 8;
                self.regs.0[RESPONSE..BUFFER].copy_from_slice(&v.to_le_bytes());
            }
        }
        self.regs.raise(INT_RESPONSE);
        if data {
            self.begin_data(now, dma);
        } else if response_type == RESPONSE_48_BUSY {
            let at = self.card.busy_until().unwrap_or(now);
            self.set_pending(now, at, Phase::BusyEnd);
        }
        self.tick(now, dma);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration, dma: &dyn Dma) {
        self.card.tick(now);
        let Some((at, phase)) = self.pending else {
            return;
        };
        if at > now {
            return;
        }
        self.pending = None;
        match phase {
            Phase::Read { len, cmd12 } => self.finish_read(now, len, cmd12, dma),
            Phase::WriteEnd { cmd12 } => self.end_data(now, cmd12),
            Phase::BusyEnd => self.regs.raise(INT_DATA_END),
            Phase::DataTimeout => self.regs.raise(INT_DATA_TIMEOUT),
        }
    }
}
