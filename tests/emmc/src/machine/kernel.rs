//! The MMC part of the kernel: commands, waiting, requests.
use super::bus::Bus;
use crate::card::ext_csd::{index, SEC_SANITIZE};
use crate::card::{bits, Response};
use crate::store::SECTOR;
use blockd::device::mmc::Reply;
use blockd::device::Command;
use nix::errno::Errno;
use std::time::Duration;

/// What differs between kernels on the ioctl path (drivers/mmc/core/block.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// 4.14: no wait after R1b; the card may still be busy (a host without busy detection).
    V4_14,
    /// 4.19, 5.4, 5.10: CMD13 polls for at most 10 s, cmd_timeout_ms is ignored.
    V5_10,
    /// 5.15.46 and 5.19 to 6.2: polls for cmd_timeout_ms.
    V5_15,
    /// 5.15.138, 6.1.61, 6.3 and later: the same, and `response[0]` of an R1b command becomes the
    /// OR of the polls.
    #[default]
    V6_12,
}

/// MMC_BLK_TIMEOUT_MS.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time-outs of the kernel's own commands.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(30);
const SANITIZE_TIMEOUT: Duration = Duration::from_secs(240);
/// Sleep between polls: doubles from 32 µs to 32 ms.
const POLL_MIN: Duration = Duration::from_micros(32);
const POLL_MAX: Duration = Duration::from_micros(32_768);
/// MMC_IOC_MAX_CMDS.
const MAX_COMMANDS: usize = 255;
/// Sectors per request, queue/max_sectors_kb = 512.
pub(super) const MAX_REQUEST: usize = 1024;

/// Bits that fail a read or write request (CMD_ERRORS); others, as ERASE_RESET, do not.
const DATA_ERRORS: u32 = bits::OUT_OF_RANGE
    | bits::ADDRESS_MISALIGN
    | bits::BLOCK_LEN_ERROR
    | bits::WP_VIOLATION
    | bits::ERROR;

/// CMD6 that writes a byte.
pub(super) fn switch_argument(index: usize, value: u8) -> u32 {
    3 << 24 | (index as u32) << 16 | u32::from(value) << 8 | 1
}

impl Bus {
    /// One command on the wire. No response: ETIMEDOUT, as the SDHCI driver says.
    pub fn send(&mut self, command: u8, argument: u32) -> Result<u32, Errno> {
        self.count_down();
        match self.card.command(self.now, command, argument) {
            Response::R1(status) | Response::R3(status) => Ok(status),
            Response::R2(_) => Ok(0),
            Response::None => Err(Errno::ETIMEDOUT),
        }
    }

    /// CMD13.
    fn status(&mut self) -> Result<u32, Errno> {
        self.send(13, self.rca())
    }

    /// Polls CMD13 until the card is ready; the OR of all words, also at a time-out.
    fn poll(&mut self, timeout: Duration) -> (u32, Result<(), Errno>) {
        let (start, mut pause, mut all) = (self.now, POLL_MIN, 0);
        loop {
            let expired = self.now > start + timeout;
            let word = match self.status() {
                Ok(word) => word,
                Err(e) => return (all, Err(e)),
            };
            all |= word;
            let tran = word >> bits::STATE_SHIFT & 0xf == 4;
            if tran && word & bits::READY_FOR_DATA != 0 {
                return (all, Ok(()));
            }
            if expired {
                return (all, Err(Errno::ETIMEDOUT));
            }
            self.sleep(pause);
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    /// The controller waits for DAT0. Its time-out register counts powers of two.
    fn wait_dat0(&mut self, timeout: Duration) -> Result<(), Errno> {
        let Some(end) = self.card.busy_until() else {
            return Ok(());
        };
        let limit = (0..=14)
            .map(|n| self.max_busy / (1 << (14 - n)))
            .find(|limit| *limit >= timeout);
        let limit = limit.unwrap_or(self.max_busy);
        self.advance(end.min(self.now + limit));
        if self.card.busy_until().is_some() || !self.card.powered() {
            return Err(Errno::ETIMEDOUT);
        }
        Ok(())
    }

    /// A command of MMC_IOC_CMD.
    pub fn ioctl_command(&mut self, command: &mut Command) -> Result<(), Errno> {
        let at = command.argument as usize >> 16 & 0xff;
        if command.index == Command::SWITCH && at == index::SANITIZE_START {
            return self.sanitize(command.timeout);
        }
        // 0 ms in the ioctl means the default as well
        let asked = command.timeout.filter(|t| t.as_millis() > 0);
        let timeout = match self.kernel {
            Kernel::V4_14 | Kernel::V5_10 => DEFAULT_TIMEOUT,
            Kernel::V5_15 | Kernel::V6_12 => asked.unwrap_or(DEFAULT_TIMEOUT),
        };
        command.response = self.send(command.index, command.argument)?;
        if command.reply == Reply::R1 || self.kernel == Kernel::V4_14 {
            return Ok(());
        }
        // longer than the controller can time: sent as R1 and polled (mmc_prepare_busy_cmd)
        if self.kernel == Kernel::V6_12 && timeout <= self.max_busy {
            self.wait_dat0(timeout)?;
        }
        let (status, result) = self.poll(timeout);
        if self.kernel == Kernel::V6_12 {
            command.response = status;
        }
        result
    }

    /// MMC_IOC_MULTI_CMD: nothing comes in between; the first failure ends it.
    pub fn ioctl_multi(&mut self, commands: &mut [Command]) -> Result<(), Errno> {
        if commands.len() > MAX_COMMANDS {
            return Err(Errno::EINVAL);
        }
        commands.iter_mut().try_for_each(|c| self.ioctl_command(c))
    }

    /// The kernel's own sanitize, which replaces a CMD6 for it.
    fn sanitize(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        if !self.card.ext_csd().secure_feature(SEC_SANITIZE) {
            return Err(Errno::EOPNOTSUPP);
        }
        let timeout = timeout.unwrap_or(SANITIZE_TIMEOUT);
        self.switch(index::SANITIZE_START, 1, timeout)
    }

    /// The kernel's mmc_switch.
    fn switch(&mut self, index: usize, value: u8, timeout: Duration) -> Result<(), Errno> {
        self.send(6, switch_argument(index, value))?;
        let (status, result) = self.poll(timeout);
        result?;
        if status & bits::SWITCH_ERROR != 0 {
            return Err(Errno::EBADMSG);
        }
        Ok(())
    }

    /// CMD8 with its data.
    pub fn send_ext_csd(&mut self) -> Result<[u8; 512], Errno> {
        if let Err(e) = self.send(8, 0) {
            self.fix_state();
            return Err(e);
        }
        let mut data = [0; 512];
        match self.card.read_data(&mut data) {
            Ok(()) => Ok(data),
            Err(_) => Err(Errno::ETIMEDOUT),
        }
    }

    /// A flush request: FLUSH_CACHE where the queue says "write back" and the cache is on.
    /// True if it was sent.
    pub fn flush(&mut self) -> Result<bool, Errno> {
        if !self.write_back || !self.card.cache_on() {
            return Ok(false);
        }
        self.switch(index::FLUSH_CACHE, 1, SWITCH_TIMEOUT)
            .map_err(|_| Errno::EIO)?;
        Ok(true)
    }

    /// Reads absolute sectors in requests of 512 KiB.
    pub fn read(&mut self, sector: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut at = sector;
        for part in buffer.chunks_mut(MAX_REQUEST * SECTOR) {
            let count = (part.len() / SECTOR) as u32;
            let command = if count > 1 { 18 } else { 17 };
            self.data_command(command, at, count, false)?;
            let delay = self.card.read_delay();
            self.advance(self.now + delay);
            self.card.read_data(part).map_err(|_| Errno::EIO)?;
            at += u64::from(count);
        }
        Ok(())
    }

    /// Writes absolute sectors in requests of 512 KiB.
    pub fn write(&mut self, sector: u64, data: &[u8]) -> Result<(), Errno> {
        self.write_requests(sector, data, MAX_REQUEST, false)
    }

    /// Writes with FUA: reliable writes of one sector each, as mmc_apply_rel_rw splits them
    /// where the card has no enhanced reliable write, then a flush.
    pub fn write_fua(&mut self, sector: u64, data: &[u8]) -> Result<(), Errno> {
        self.write_requests(sector, data, 1, true)?;
        self.flush().map(drop)
    }

    fn write_requests(
        &mut self,
        sector: u64,
        data: &[u8],
        most: usize,
        reliable: bool,
    ) -> Result<(), Errno> {
        let mut at = sector;
        for part in data.chunks(most * SECTOR) {
            let count = (part.len() / SECTOR) as u32;
            let command = if count > 1 || reliable { 25 } else { 24 };
            self.data_command(command, at, count, reliable)?;
            let taken = self.card.write_data(self.now, part);
            taken.map_err(|_| Errno::EIO)?;
            let (status, result) = self.poll(DEFAULT_TIMEOUT);
            if result.is_err() || status & DATA_ERRORS != 0 {
                return Err(Errno::EIO);
            }
            at += u64::from(count);
        }
        Ok(())
    }

    /// CMD23 where more than one sector follows, then the data command. The real driver would
    /// retry and in the end reset the card; here the first error is EIO, and only what the next
    /// request needs is done: mmc_blk_fix_state ends a transfer that the card is still in.
    fn data_command(
        &mut self,
        command: u8,
        sector: u64,
        count: u32,
        reliable: bool,
    ) -> Result<(), Errno> {
        let result = self.try_data_command(command, sector, count, reliable);
        if result.is_err() {
            self.fix_state();
        }
        result
    }

    /// CMD12 where the card still wants to send or to receive data.
    fn fix_state(&mut self) {
        const DATA: u32 = 5;
        const RCV: u32 = 6;
        // Two tries: the first may not be answered.
        let status = self.status().or_else(|_| self.status());
        if status.is_ok_and(|word| matches!(word >> bits::STATE_SHIFT & 0xf, DATA | RCV)) {
            let _ = self.send(12, 0);
            let _ = self.poll(DEFAULT_TIMEOUT);
        }
    }

    fn try_data_command(
        &mut self,
        command: u8,
        sector: u64,
        count: u32,
        reliable: bool,
    ) -> Result<(), Errno> {
        let unit = if self.card.sector_addressed() {
            1
        } else {
            SECTOR as u64
        };
        let argument = u32::try_from(sector * unit).map_err(|_| Errno::EIO)?;
        let mut status = 0;
        if count > 1 || reliable {
            let argument = count | u32::from(reliable) << 31;
            status |= self.send(23, argument).map_err(|_| Errno::EIO)?;
        }
        status |= self.send(command, argument).map_err(|_| Errno::EIO)?;
        if status & DATA_ERRORS != 0 {
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// Finds the card as mmc_init_card does: high-capacity erase groups, high speed, cache.
    pub fn identify(&mut self) -> Result<(), Errno> {
        self.card.power_on();
        let _ = self.send(0, 0); // never answered
        self.send(1, 0x40ff_8080)?;
        self.send(2, 0)?;
        self.send(3, self.rca())?;
        self.send(9, self.rca())?;
        self.send(7, self.rca())?;
        let ext = self.send_ext_csd()?;
        if ext[index::REV] >= 3 {
            self.switch(index::ERASE_GROUP_DEF, 1, SWITCH_TIMEOUT)?;
        }
        self.switch(index::HS_TIMING, 1, SWITCH_TIMEOUT)?;
        if self.card.ext_csd().cache_bytes() > 0 {
            self.switch(index::CACHE_CTRL, 1, SWITCH_TIMEOUT)?;
        }
        Ok(())
    }
}
