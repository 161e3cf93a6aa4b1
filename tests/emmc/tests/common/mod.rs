//! A host in virtual time for the card's tests.
#![allow(dead_code)] // every test binary uses another part
#[cfg(feature = "machine")]
pub mod machine;

use emmc::card::{bits, Card, Config, Response, State};
use emmc::store::{MemStore, Pattern, Store, SECTOR};
use std::time::Duration;

pub const RCA: u32 = 1 << 16;
pub const SEED: u64 = 42;

pub fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// CMD6, access mode "write byte".
pub fn switch_arg(index: usize, value: u8) -> u32 {
    3 << 24 | (index as u32) << 16 | u32::from(value) << 8 | 1
}

/// A card with its clock.
pub struct Host {
    pub card: Card,
    pub now: Duration,
}

impl Host {
    /// A card over a blank medium, in transfer state, with ERASE_GROUP_DEF and the cache on.
    pub fn new(config: impl Into<Config>) -> Host {
        let mut host = Host::bare(config);
        host.identify();
        host.switch(175, 1);
        host.switch(33, 1);
        host.card.log.reset();
        host
    }

    /// The same over a medium full of the pattern.
    pub fn with_pattern(config: impl Into<Config>) -> Host {
        let config = config.into();
        let sectors = config.ext_csd.sectors();
        Host::on(
            config,
            Box::new(MemStore::with_pattern(sectors, Pattern { seed: SEED })),
        )
    }

    pub fn on(config: Config, store: Box<dyn Store>) -> Host {
        let card = Card::new(config, store).expect("configuration");
        let mut host = Host { card, now: us(0) };
        host.identify();
        host.switch(175, 1);
        host.switch(33, 1);
        host.card.log.reset();
        host
    }

    /// A card in idle state.
    pub fn bare(config: impl Into<Config>) -> Host {
        let config = config.into();
        let store = MemStore::new(config.ext_csd.sectors());
        let card = Card::new(config, Box::new(store)).expect("configuration");
        Host { card, now: us(0) }
    }

    pub fn identify(&mut self) {
        self.cmd(0, 0);
        let Response::R3(ocr) = self.cmd(1, 0x40ff_8080) else {
            panic!("no OCR")
        };
        assert_ne!(ocr >> 31, 0);
        assert!(matches!(self.cmd(2, 0), Response::R2(_)));
        self.r1(3, RCA);
        self.r1(7, RCA);
        assert_eq!(self.card.state(), State::Tran);
    }

    pub fn cmd(&mut self, command: u8, argument: u32) -> Response {
        self.card.command(self.now, command, argument)
    }

    /// A command that must be answered by R1.
    pub fn r1(&mut self, command: u8, argument: u32) -> u32 {
        let response = self.cmd(command, argument);
        response
            .r1()
            .unwrap_or_else(|| panic!("CMD{command} {argument:#x}: {response:?}"))
    }

    /// A command that must be answered by R1 without errors.
    pub fn ok(&mut self, command: u8, argument: u32) {
        let status = self.r1(command, argument);
        assert_eq!(status & bits::ERRORS, 0, "CMD{command} {argument:#x}");
    }

    /// Error bits of CMD13.
    pub fn errors(&mut self) -> u32 {
        self.r1(13, RCA) & bits::ERRORS
    }

    /// Lets time pass until the card is ready.
    pub fn wait(&mut self) {
        if let Some(end) = self.card.busy_until() {
            self.now = self.now.max(end);
        }
        self.card.tick(self.now);
    }

    /// CMD6, waits; the error bits that follow.
    pub fn switch(&mut self, index: usize, value: u8) -> u32 {
        self.ok(6, switch_arg(index, value));
        self.wait();
        self.errors()
    }

    /// The argument that addresses a sector.
    pub fn at(&self, sector: u64) -> u32 {
        let unit = if self.card.sector_addressed() {
            1
        } else {
            SECTOR as u64
        };
        (sector * unit).try_into().expect("address")
    }

    /// CMD35, 36, 38 and the wait; (CMD38's errors, the errors after it).
    pub fn erase(&mut self, first: u64, last: u64, argument: u32) -> (u32, u32) {
        let (first, last) = (self.at(first), self.at(last));
        self.ok(35, first);
        self.ok(36, last);
        let status = self.r1(38, argument) & bits::ERRORS;
        self.wait();
        (status, self.errors())
    }

    /// CMD23 + CMD25 with sectors of one byte, without waiting.
    pub fn write_only(&mut self, sector: u64, count: u32, byte: u8, reliable: bool) {
        self.ok(23, count | u32::from(reliable) << 31);
        let at = self.at(sector);
        self.ok(25, at);
        self.card
            .write_data(self.now, &vec![byte; count as usize * SECTOR])
            .expect("write");
    }

    pub fn write(&mut self, sector: u64, count: u32, byte: u8, reliable: bool) {
        self.write_only(sector, count, byte, reliable);
        self.wait();
    }

    pub fn read(&mut self, sector: u64) -> [u8; SECTOR] {
        let at = self.at(sector);
        self.ok(17, at);
        let mut data = [0; SECTOR];
        self.card.read_data(&mut data).expect("read");
        data
    }

    /// What a sector holds: its pattern, or one byte all over.
    pub fn what(&mut self, sector: u64) -> What {
        let data = self.read(sector);
        if (Pattern { seed: SEED }).matches(sector, &data) {
            What::Pattern
        } else if data.iter().all(|b| *b == data[0]) {
            What::Byte(data[0])
        } else {
            What::Mixed
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Pattern,
    Byte(u8),
    Mixed,
}

/// Sectors around group borders 0|1|2|3 and what they hold.
pub fn borders(host: &mut Host) -> Vec<What> {
    [0, 1023, 1024, 2047, 2048, 3071, 3072]
        .map(|s| host.what(s))
        .to_vec()
}
