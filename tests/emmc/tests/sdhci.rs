//! The controller in virtual time: PIO, automatic commands, power, resets.
mod common;
use common::{us, SEED};
use emmc::card::{Card, Config, Fields, Timing};
use emmc::sdhci::{Dma, Sdhci};
use emmc::store::{MemStore, Pattern, SECTOR};
use std::cell::RefCell;
use std::time::Duration;

/// 64 KiB of memory at 0.
struct Ram(RefCell<Vec<u8>>);

impl Dma for Ram {
    fn read(&self, address: u64, buf: &mut [u8]) -> bool {
        let ram = self.0.borrow();
        let part = ram.get(address as usize..address as usize + buf.len());
        part.map(|p| buf.copy_from_slice(p)).is_some()
    }
    fn write(&self, address: u64, data: &[u8]) -> bool {
        let mut ram = self.0.borrow_mut();
        let part = ram.get_mut(address as usize..address as usize + data.len());
        part.map(|p| p.copy_from_slice(data)).is_some()
    }
}

struct Bench {
    host: Sdhci,
    ram: Ram,
    now: Duration,
}

impl Bench {
    fn new(timing: Timing) -> Bench {
        let fields = Fields::default();
        let pattern = Pattern { seed: SEED };
        let store = MemStore::with_pattern(fields.sectors.into(), pattern);
        let config = Config {
            timing,
            ..fields.into()
        };
        let card = Card::new(config, Box::new(store)).expect("card");
        let mut bench = Bench {
            host: Sdhci::new(card),
            ram: Ram(RefCell::new(vec![0; 65536])),
            now: us(0),
        };
        bench.init();
        bench
    }

    fn init(&mut self) {
        self.write(0x34, &u32::MAX.to_le_bytes());
        self.write(0x38, &u32::MAX.to_le_bytes());
        self.write(0x29, &[0x0f]);
        self.write(0x2e, &[0x0e]);
        self.write(0x28, &[0x10]);
        for (index, argument, kind) in [
            (0, 0, 0),
            (1, 0x40ff_8080, 2),
            (2, 0, 1),
            (3, 1 << 16, 2),
            (7, 1 << 16, 2),
            (6, 0x0321_0101, 2), // cache on
        ] {
            assert_eq!(self.command(index, argument, kind, 0), 1, "CMD{index}");
        }
        self.host.card.log.reset();
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.host.write(self.now, at, data, &self.ram);
    }

    fn read32(&mut self, at: usize) -> u32 {
        let mut b = [0; 4];
        self.host.read(self.now, at, &mut b);
        u32::from_le_bytes(b)
    }

    /// Sends a command; the interrupt status it leaves, which is cleared.
    fn command(&mut self, index: u32, argument: u32, kind: u32, mode: u32) -> u32 {
        self.write(0x08, &argument.to_le_bytes());
        self.write(0x0c, &(mode | (index << 8 | kind) << 16).to_le_bytes());
        self.status()
    }

    fn status(&mut self) -> u32 {
        let status = self.read32(0x30);
        self.write(0x30, &u32::MAX.to_le_bytes());
        status
    }

    fn block(&mut self, count: u32) {
        self.write(0x04, &(SECTOR as u32 | count << 16).to_le_bytes());
    }

    fn sent(&self) -> Vec<(u8, u32)> {
        let entries = self.host.card.log.entries.iter();
        entries.map(|e| (e.command, e.argument)).collect()
    }
}

const DATA: u32 = 0x22; // R1 with data
const RESPONSE: u32 = 1;
const DONE: u32 = 2;
const SPACE: u32 = 1 << 4;
const AVAILABLE: u32 = 1 << 5;

#[test]
fn firmware_reads_and_writes_by_pio() {
    let mut b = Bench::new(Timing::zero());
    b.block(2);
    // CMD18 with Auto CMD12, two blocks, no DMA
    let mode = 1 << 5 | 1 << 4 | 1 << 2 | 2;
    assert_eq!(b.command(18, 40, DATA, mode), RESPONSE | AVAILABLE);
    assert_ne!(b.read32(0x24) & 1 << 11, 0, "buffer read enable");
    let mut data = Vec::new();
    for i in 0..256 {
        data.extend(b.read32(0x20).to_le_bytes());
        let want = match i {
            127 => AVAILABLE,
            255 => DONE,
            _ => 0,
        };
        assert_eq!(b.status(), want, "word {i}");
    }
    let pattern = Pattern { seed: SEED };
    assert_eq!(data, [pattern.sector(40), pattern.sector(41)].concat());
    assert_eq!(b.sent(), [(18, 40), (12, 0)]);
    // CMD24
    b.block(1);
    assert_eq!(b.command(24, 50, DATA, 0), RESPONSE | SPACE);
    for _ in 0..128 {
        b.write(0x20, &[5; 4]);
    }
    assert_eq!(b.status(), DONE);
    assert_eq!(b.host.card.dirty_sectors(50..51), 1);
    // the port without a transfer reads as zero and takes nothing
    assert_eq!(b.read32(0x20), 0);
    b.write(0x20, &[5; 4]);
    assert_eq!(b.status(), 0);
}

#[test]
fn reads_and_writes_take_their_time() {
    let timing = Timing {
        read_us: 100,
        cached_us: 50,
        ..Timing::zero()
    };
    let mut b = Bench::new(timing);
    b.ram.0.borrow_mut()[..8].copy_from_slice(&[0x23, 0, 0, 2, 0, 0x10, 0, 0]);
    b.block(1);
    assert_eq!(b.command(17, 40, DATA, 1 << 4 | 1), RESPONSE);
    assert_eq!(b.host.deadline(), Some(us(100)));
    b.now = us(99);
    b.host.tick(b.now, &b.ram);
    assert!(!b.host.irq());
    b.now = us(100);
    b.host.tick(b.now, &b.ram);
    assert!(b.host.irq());
    assert_eq!(b.status(), DONE);
    assert_eq!(
        b.ram.0.borrow()[0x1000..0x1200],
        Pattern { seed: SEED }.sector(40)
    );
    assert_eq!(b.command(24, 60, DATA, 1), RESPONSE);
    assert_eq!(b.host.deadline(), Some(us(150)));
    assert_eq!(b.read32(0x24) & 1 << 20, 0, "DAT0 low");
    b.now = us(150);
    assert_ne!(b.read32(0x24) & 1 << 20, 0, "DAT0 high");
    b.host.tick(b.now, &b.ram);
    assert_eq!(b.status(), DONE);
}

#[test]
fn adma_errors_stop_a_transfer() {
    // (descriptor, ADMA error state)
    let table = [
        ([0x22, 0, 0, 2, 0, 0x10, 0, 0], 1),       // not valid
        ([0x23, 0, 0, 1, 0, 0x10, 0, 0], 3),       // ends too early
        ([0x23, 0, 0, 2, 0, 0xff, 0xff, 0xff], 3), // no memory there
        ([0x31, 0, 0, 0, 0, 0, 0, 0], 3),          // a link to itself
    ];
    for (descriptor, state) in table {
        let mut b = Bench::new(Timing::zero());
        b.ram.0.borrow_mut()[..8].copy_from_slice(&descriptor);
        b.block(1);
        let status = b.command(17, 0, DATA, 1 << 4 | 1);
        assert_eq!(status >> 16, 1 << 9, "{descriptor:x?}");
        assert_eq!(b.read32(0x54) & 0xff, state, "{descriptor:x?}");
    }
}

#[test]
fn power_and_reset_reach_the_card() {
    let table: [(usize, u8); 2] = [(0x29, 0), (0x2f, 1)];
    for (register, value) in table {
        let mut b = Bench::new(Timing::zero());
        b.block(1);
        b.command(24, 50, DATA, 0);
        for _ in 0..128 {
            b.write(0x20, &[5; 4]);
        }
        assert_eq!(b.host.card.dirty_lines(), 1);
        assert_eq!(b.status(), DONE);
        b.write(register, &[value]);
        assert!(!b.host.card.powered(), "{register:#x}");
        assert_eq!(b.host.card.log.counters.lost_lines, 1);
        b.init();
        assert!(b.host.card.powered());
    }
    // the card does not answer: command time-out, also of Auto CMD23
    let mut b = Bench::new(Timing::zero());
    b.host.card.power_cut(b.now);
    assert_eq!(b.command(13, 1 << 16, 2, 0) >> 16, 1);
    b.block(2);
    let mode = 1 << 5 | 1 << 4 | 2 << 2 | 2;
    assert_eq!(b.command(18, 0, DATA, mode) >> 16, 1 << 8);
    // read-only registers stay
    let before = b.read32(0x40);
    b.write(0x40, &[0; 4]);
    assert_eq!(b.read32(0x40), before);
}
