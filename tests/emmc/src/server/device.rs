//! The PCI function: configuration space, interrupt line, guest memory, controller.
use crate::dma::GuestMemory;
use crate::sdhci::{Sdhci, SIZE};
use crate::vfio::{Device, DmaMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const CONFIG: usize = 256;

/// Configuration space after reset. Vendor and device are QEMU's own SDHCI (1b36:0007), to
/// which sdhci-pci applies no quirks; without capabilities the driver uses INTx.
fn pci_config() -> [u8; CONFIG] {
    let mut c = [0; CONFIG];
    c[0x00..0x04].copy_from_slice(&[0x36, 0x1b, 0x07, 0x00]);
    c[0x08..0x0c].copy_from_slice(&[0x01, 0x01, 0x05, 0x08]); // revision 1, SDHCI with DMA
    c[0x2c..0x30].copy_from_slice(&[0xf4, 0x1a, 0x00, 0x11]); // subsystem of QEMU
    c[0x3d] = 1; // INTA
    c // slot information (0x40) = 0: one slot, its registers in BAR 0
}

/// Writable: command, cache line, latency, BAR 0 above its length, interrupt line.
fn config_writable(at: usize) -> bool {
    matches!(at, 0x04 | 0x05 | 0x0c | 0x0d | 0x11..=0x13 | 0x3c)
}

/// A level interrupt on an eventfd: it masks itself when it fires, and fires again at the
/// unmask if the level is still high.
#[derive(Default)]
struct Line {
    eventfd: Option<File>,
    level: bool,
    masked: bool,
}

impl Line {
    fn fire(&mut self) {
        if let Some(eventfd) = self.eventfd.as_mut() {
            self.masked = true;
            if let Err(e) = eventfd.write_all(&1u64.to_ne_bytes()) {
                log::error!("interrupt: {e}");
            }
        }
    }

    fn set(&mut self, level: bool) {
        let rises = level && !self.level;
        self.level = level;
        if rises && !self.masked {
            self.fire();
        }
    }

    fn mask(&mut self, masked: bool) {
        self.masked = masked;
        if !masked && self.level {
            self.fire();
        }
    }

    fn connect(&mut self, eventfd: Option<OwnedFd>) {
        self.eventfd = eventfd.map(File::from);
        self.mask(false);
    }
}

/// Everything that the threads share.
pub(super) struct PciCard {
    pub host: Sdhci,
    memory: GuestMemory,
    line: Line,
    config: [u8; CONFIG],
    start: Instant,
}

impl PciCard {
    pub fn new(host: Sdhci) -> Self {
        PciCard {
            host,
            memory: GuestMemory::default(),
            line: Line::default(),
            config: pci_config(),
            start: Instant::now(),
        }
    }

    /// The card's clock.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does what is due; when it has to be called next.
    pub fn tick(&mut self) -> Option<Duration> {
        let now = self.now();
        self.host.tick(now, &self.memory);
        self.line.set(self.host.irq());
        let deadline = self.host.deadline()?;
        Some(deadline.saturating_sub(now))
    }

    /// The machine around the device is gone: as after pulling the plug.
    pub fn client_gone(&mut self) {
        let now = self.now();
        self.host.reset(now);
        self.memory.clear();
        self.line = Line::default();
        self.config = pci_config();
    }
}

impl Device for PciCard {
    fn bar_len(&self) -> u64 {
        SIZE as u64
    }
    fn config_len(&self) -> u64 {
        CONFIG as u64
    }
    fn bar_read(&mut self, offset: u64, out: &mut [u8]) {
        self.tick();
        let now = self.now();
        self.host.read(now, offset as usize, out);
        self.line.set(self.host.irq());
    }
    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let now = self.now();
        self.host.write(now, offset as usize, data, &self.memory);
        self.line.set(self.host.irq());
    }
    fn config_read(&mut self, offset: u64, out: &mut [u8]) {
        let at = offset as usize;
        out.copy_from_slice(&self.config[at..at + out.len()]);
    }
    fn config_write(&mut self, offset: u64, data: &[u8]) {
        for (at, &byte) in (offset as usize..).zip(data) {
            if config_writable(at) {
                self.config[at] = byte;
            }
        }
    }
    fn map(&mut self, map: DmaMap, fd: Option<OwnedFd>) -> io::Result<()> {
        log::debug!("map {map:x?} fd {}", fd.is_some());
        match fd {
            Some(fd) => self
                .memory
                .map(map.address, map.len, &fd, map.offset, map.writable),
            None => Ok(()),
        }
    }
    fn unmap(&mut self, address: u64, len: u64) {
        self.memory.unmap(address, len);
    }
    fn unmap_all(&mut self) {
        self.memory.clear();
    }
    fn set_interrupt(&mut self, eventfd: Option<OwnedFd>) {
        self.line.connect(eventfd);
    }
    fn mask_interrupt(&mut self, masked: bool) {
        self.line.mask(masked);
    }
    fn reset(&mut self) {
        let now = self.now();
        self.host.reset(now);
        self.line.set(self.host.irq());
    }
}
