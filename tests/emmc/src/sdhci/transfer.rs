//! Data between the card and guest memory: ADMA2 and the PIO buffer port.
use super::registers::*;
use super::{Dma, Phase, Sdhci};
use std::time::Duration;

/// A transfer through the buffer data port.
pub(super) struct Pio {
    buf: Vec<u8>,
    pos: usize,
    read: bool,
    cmd12: bool,
}

impl Pio {
    /// Present-state bits.
    pub fn present(&self) -> u32 {
        let direction = if self.read {
            BUFFER_READ | READ_ACTIVE
        } else {
            BUFFER_WRITE | WRITE_ACTIVE
        };
        CMD_INHIBIT_DATA | DATA_LINE_ACTIVE | direction
    }
}

/// ADMA2 descriptor: attributes in byte 0, length in bytes 2–3, address in 4–7.
const ADMA_VALID: u8 = 1;
const ADMA_END: u8 = 2;
const ADMA_ACT_TRANSFER: u8 = 2;
const ADMA_ACT_LINK: u8 = 3;
/// Length 0 means 64 KiB.
const ADMA_MAX: usize = 65536;
/// A table this long without end is a loop.
const ADMA_MAX_DESCRIPTORS: usize = 65536;
/// ADMA error states: fetching a descriptor, transferring.
const ADMA_ERROR_FETCH: u8 = 1;
const ADMA_ERROR_TRANSFER: u8 = 3;

impl Sdhci {
    /// The data phase of the command just sent.
    pub(super) fn begin_data(&mut self, now: Duration, dma: &dyn Dma) {
        let mode = self.regs.get16(TRANSFER_MODE);
        let len = self.regs.transfer_bytes();
        let cmd12 = mode >> MODE_AUTO_SHIFT & 3 == AUTO_CMD12;
        if mode & MODE_READ != 0 {
            let at = now + self.card.read_delay();
            self.set_pending(now, at, Phase::Read { len, cmd12 });
            return;
        }
        let mut buf = vec![0; len];
        if mode & MODE_DMA == 0 {
            self.pio = Some(Pio {
                buf,
                pos: 0,
                read: false,
                cmd12,
            });
            self.regs.raise(INT_SPACE_AVAIL);
        } else if self.adma(&mut buf, dma, false) {
            self.finish_write(now, &buf, cmd12);
        } else {
            self.regs.raise(INT_ADMA);
        }
    }

    /// The card has the first block of a read ready.
    pub(super) fn finish_read(&mut self, now: Duration, len: usize, cmd12: bool, dma: &dyn Dma) {
        let mut buf = vec![0; len];
        if self.card.read_data(&mut buf).is_err() {
            // the card sends nothing
            self.regs.raise(INT_DATA_TIMEOUT);
            return;
        }
        if self.regs.get16(TRANSFER_MODE) & MODE_DMA == 0 {
            self.pio = Some(Pio {
                buf,
                pos: 0,
                read: true,
                cmd12,
            });
            self.regs.raise(INT_DATA_AVAIL);
        } else if self.adma(&mut buf, dma, true) {
            self.end_data(now, cmd12);
        } else {
            self.regs.raise(INT_ADMA);
        }
    }

    fn finish_write(&mut self, now: Duration, buf: &[u8], cmd12: bool) {
        if self.card.write_data(now, buf).is_err() {
            // the card's data-response token says no
            self.regs.raise(INT_DATA_CRC);
            return;
        }
        let at = self.card.busy_until().unwrap_or(now);
        self.set_pending(now, at, Phase::WriteEnd { cmd12 });
    }

    /// Auto CMD12, then "transfer complete".
    pub(super) fn end_data(&mut self, now: Duration, cmd12: bool) {
        if cmd12 {
            if let Some(status) = self.card.command(now, 12, 0).r1() {
                self.regs.set32(AUTO_RESPONSE, status);
            }
        }
        self.regs.raise(INT_DATA_END);
    }

    /// The guest reads the buffer port.
    pub(super) fn pio_read(&mut self, now: Duration, out: &mut [u8]) {
        out.fill(0);
        let block = self.regs.block_size().max(1);
        let Some(p) = self.pio.as_mut().filter(|p| p.read) else {
            return;
        };
        let n = out.len().min(p.buf.len() - p.pos);
        out[..n].copy_from_slice(&p.buf[p.pos..p.pos + n]);
        p.pos += n;
        if p.pos == p.buf.len() {
            let cmd12 = p.cmd12;
            self.pio = None;
            self.end_data(now, cmd12);
        } else if p.pos.is_multiple_of(block) {
            self.regs.raise(INT_DATA_AVAIL);
        }
    }

    /// The guest writes the buffer port.
    pub(super) fn pio_write(&mut self, now: Duration, data: &[u8]) {
        let block = self.regs.block_size().max(1);
        let Some(p) = self.pio.as_mut().filter(|p| !p.read) else {
            return;
        };
        let n = data.len().min(p.buf.len() - p.pos);
        p.buf[p.pos..p.pos + n].copy_from_slice(&data[..n]);
        p.pos += n;
        if p.pos < p.buf.len() {
            if p.pos.is_multiple_of(block) {
                self.regs.raise(INT_SPACE_AVAIL);
            }
        } else if let Some(p) = self.pio.take() {
            self.finish_write(now, &p.buf, p.cmd12);
        }
    }

    /// Moves `buf` along the descriptor table; false with the ADMA error set if it cannot.
    fn adma(&mut self, buf: &mut [u8], dma: &dyn Dma, to_guest: bool) -> bool {
        match adma(&self.regs, buf, dma, to_guest) {
            Ok(()) => true,
            Err(state) => {
                self.regs.0[ADMA_ERROR] = state;
                false
            }
        }
    }
}

fn adma(regs: &Registers, buf: &mut [u8], dma: &dyn Dma, to_guest: bool) -> Result<(), u8> {
    if regs.0[HOST_CONTROL] >> DMA_SELECT_SHIFT & 3 != DMA_ADMA2_32 {
        return Err(ADMA_ERROR_FETCH); // a mode that the capabilities do not offer
    }
    let mut table = u64::from(regs.get32(ADMA_ADDRESS));
    let mut pos = 0;
    for _ in 0..ADMA_MAX_DESCRIPTORS {
        if pos == buf.len() {
            return Ok(());
        }
        let mut d = [0; 8];
        if !dma.read(table, &mut d) || d[0] & ADMA_VALID == 0 {
            return Err(ADMA_ERROR_FETCH);
        }
        table += d.len() as u64;
        let length = match u16::from_le_bytes([d[2], d[3]]) {
            0 => ADMA_MAX,
            n => n.into(),
        };
        let address = u64::from(u32::from_le_bytes([d[4], d[5], d[6], d[7]]));
        match d[0] >> 4 & 3 {
            ADMA_ACT_TRANSFER => {
                let end = buf.len().min(pos + length);
                let part = &mut buf[pos..end];
                pos = end;
                let moved = if to_guest {
                    dma.write(address, part)
                } else {
                    dma.read(address, part)
                };
                if !moved {
                    return Err(ADMA_ERROR_TRANSFER);
                }
            }
            ADMA_ACT_LINK => table = address,
            _ => {}
        }
        if d[0] & ADMA_END != 0 {
            break;
        }
    }
    if pos == buf.len() {
        Ok(())
    } else {
        Err(ADMA_ERROR_TRANSFER)
    }
}
