//! The state behind the machine's lock: card, clock, nodes.
use super::journal::Journal;
use super::kernel::{Kernel, MAX_REQUEST};
use super::Event;
use crate::card::Card;
use crate::store::SECTOR;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// A page-cache entry of one sector.
struct Cached {
    data: [u8; SECTOR],
    dirty: bool,
}

/// A block device node.
pub(super) struct Node {
    /// First sector on the disk.
    pub start: u64,
    /// Sectors.
    pub sectors: u64,
    /// None for the disk itself.
    pub partition: Option<u32>,
    pub read_only: bool,
    /// Who holds it exclusively, in words.
    pub claim: Option<String>,
    /// Open descriptors and mounts.
    pub opens: u64,
    /// Each node has a page cache of its own, which is what makes them go stale.
    cache: BTreeMap<u64, Cached>,
}

impl Node {
    pub fn new(start: u64, sectors: u64, partition: Option<u32>) -> Self {
        Node {
            start,
            sectors,
            partition,
            read_only: false,
            claim: None,
            opens: 0,
            cache: BTreeMap::new(),
        }
    }
}

/// When the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At this moment, also in the middle of an operation.
    At(Duration),
    /// Before the card hears its n-th command from now on (1 = the next).
    BeforeCommand(u64),
}

pub(super) struct Bus {
    pub card: Card,
    pub now: Duration,
    pub kernel: Kernel,
    /// queue/write_cache says "write back".
    pub write_back: bool,
    /// The caller has CAP_SYS_RAWIO.
    pub raw_io: bool,
    /// How long the host controller can wait for DAT0.
    pub max_busy: Duration,
    pub cut: Option<Cut>,
    pub nodes: BTreeMap<String, Node>,
    pub journal: Journal,
}

impl Bus {
    /// Relative card address as in arguments.
    pub fn rca(&self) -> u32 {
        1 << 16
    }

    /// Lets time pass, up to a planned power cut.
    pub fn advance(&mut self, to: Duration) {
        let to = to.max(self.now);
        match self.cut {
            Some(Cut::At(at)) if at <= to => {
                self.now = at.max(self.now);
                self.cut = None;
                self.card.power_cut(self.now);
                self.now = to;
            }
            _ => self.now = to,
        }
        self.card.tick(self.now);
    }

    pub fn sleep(&mut self, time: Duration) {
        self.advance(self.now + time);
    }

    /// A command is about to be sent.
    pub fn count_down(&mut self) {
        if let Some(Cut::BeforeCommand(n)) = &mut self.cut {
            *n = n.saturating_sub(1);
            if *n == 0 {
                self.cut = None;
                self.card.power_cut(self.now);
            }
        }
    }

    pub fn node(&mut self, name: &str) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(name).ok_or(Errno::ENOENT)
    }

    /// O_EXCL: a claim on a partition bars the disk and the other way round.
    pub fn claim(&mut self, name: &str, holder: &str) -> Result<(), Errno> {
        let is_partition = self.node(name)?.partition.is_some();
        let barred = self.nodes.iter().any(|(other, node)| {
            let related = other == name || node.partition.is_some() != is_partition;
            related && node.claim.is_some()
        });
        if barred {
            return Err(Errno::EBUSY);
        }
        self.node(name)?.claim = Some(holder.to_owned());
        Ok(())
    }

    /// One user less; the last one writes back and drops the page cache.
    pub fn close(&mut self, name: &str) {
        let Ok(node) = self.node(name) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens == 0 {
            // close(2) of a block device reports no write-back error either
            let _ = self.flush_pages(name);
        }
    }

    /// The absolute range of an access to a node, checked as O_DIRECT is.
    pub fn direct_range(
        &mut self,
        name: &str,
        offset: u64,
        buffer: &[u8],
    ) -> Result<Range<u64>, Errno> {
        let size = SECTOR as u64;
        let aligned = offset.is_multiple_of(size)
            && buffer.len().is_multiple_of(SECTOR)
            && buffer.as_ptr().addr().is_multiple_of(SECTOR);
        if !aligned {
            return Err(Errno::EINVAL);
        }
        let node = self.node(name)?;
        let first = offset / size;
        let end = first + (buffer.len() / SECTOR) as u64;
        if end > node.sectors {
            return Err(Errno::EIO); // read_exact and write_all of a short transfer
        }
        Ok(node.start + first..node.start + end)
    }

    /// Writes the dirty pages of a node within absolute `range`; they stay, clean.
    pub fn write_pages(&mut self, name: &str, range: Range<u64>) -> Result<(), Errno> {
        let node = self.node(name)?;
        let dirty: Vec<u64> = node
            .cache
            .range_mut(range)
            .filter_map(|(sector, page)| std::mem::take(&mut page.dirty).then_some(*sector))
            .collect();
        let mut rest = &dirty[..];
        while let Some(&first) = rest.first() {
            let run = rest
                .iter()
                .zip(first..)
                .take(MAX_REQUEST)
                .take_while(|(a, b)| **a == *b)
                .count();
            rest = &rest[run..];
            let end = first + run as u64;
            let node = self.node(name)?;
            let data: Vec<u8> = node
                .cache
                .range(first..end)
                .flat_map(|(_, page)| page.data)
                .collect();
            self.write(first, &data)?;
            self.journal.add(Event::WriteBack {
                node: name.to_owned(),
                sector: first,
                sectors: run as u64,
            });
        }
        Ok(())
    }

    /// Drops the pages of a node within absolute `range`, which are clean by now.
    pub fn drop_pages(&mut self, name: &str, range: Range<u64>) {
        if let Ok(node) = self.node(name) {
            node.cache.retain(|sector, _| !range.contains(sector));
        }
    }

    /// BLKFLSBUF.
    pub fn flush_pages(&mut self, name: &str) -> Result<(), Errno> {
        let result = self.write_pages(name, 0..u64::MAX);
        self.drop_pages(name, 0..u64::MAX);
        result
    }

    /// A power failure or crash: nothing in RAM survives.
    pub fn forget_ram(&mut self) {
        for node in self.nodes.values_mut() {
            node.cache.clear();
            node.claim = None;
        }
    }

    /// A buffered write: only the page cache changes.
    pub fn write_buffered(&mut self, name: &str, sector: u64, data: &[u8]) -> Result<(), Errno> {
        let node = self.node(name)?;
        if sector + (data.len() / SECTOR) as u64 > node.sectors {
            return Err(Errno::ENOSPC);
        }
        for (at, part) in (node.start + sector..).zip(data.chunks_exact(SECTOR)) {
            let mut data = [0; SECTOR];
            data.copy_from_slice(part);
            node.cache.insert(at, Cached { data, dirty: true });
        }
        Ok(())
    }

    /// A buffered read of one sector: fills the page cache.
    pub fn read_buffered(&mut self, name: &str, sector: u64) -> Result<[u8; SECTOR], Errno> {
        let node = self.node(name)?;
        if sector >= node.sectors {
            return Err(Errno::EIO);
        }
        let at = node.start + sector;
        if let Some(page) = node.cache.get(&at) {
            return Ok(page.data);
        }
        let mut data = [0; SECTOR];
        self.read(at, &mut data)?;
        let page = Cached { data, dirty: false };
        self.node(name)?.cache.insert(at, page);
        Ok(data)
    }
}
