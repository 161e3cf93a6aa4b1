//! What the machine hands out: the product's `Mmc` and `Block`, and a buffered user.
use super::bus::Bus;
use super::{Event, Shared};
use crate::store::SECTOR;
use blockd::device::{Block, Command, Mmc};
use blockd::units::Bytes;
use nix::errno::Errno;
use std::sync::{Arc, MutexGuard};

fn lock(shared: &Shared) -> MutexGuard<'_, Bus> {
    shared.bus()
}

fn number(result: Result<(), Errno>) -> i32 {
    result.err().map_or(0, |e| e as i32)
}

/// The raw command path of a node.
pub(super) struct RawCard {
    pub shared: Arc<Shared>,
    pub node: String,
}

impl RawCard {
    /// CAP_SYS_RAWIO and a whole disk, nothing else.
    fn may(&self, bus: &mut Bus) -> Result<(), Errno> {
        let whole = bus.node(&self.node)?.partition.is_none();
        if whole && bus.raw_io {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn run(
        &self,
        multi: bool,
        commands: &mut [Command],
        run: impl FnOnce(&mut Bus, &mut [Command]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut bus = lock(&self.shared);
        let given = commands.iter().map(|c| (c.index, c.argument)).collect();
        let allowed = self.may(&mut bus);
        let result = allowed.and_then(|()| run(&mut bus, commands));
        bus.journal.add(Event::Ioctl {
            multi,
            commands: given,
            errno: number(result),
        });
        result
    }
}

impl Mmc for RawCard {
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno> {
        self.run(true, commands, |bus, c| bus.ioctl_multi(c))
    }

    fn cmd(&self, command: &mut Command) -> Result<(), Errno> {
        self.run(false, std::slice::from_mut(command), |bus, c| {
            bus.ioctl_multi(c)
        })
    }

    fn ext_csd(&self) -> Result<[u8; 512], Errno> {
        let mut bus = lock(&self.shared);
        let allowed = self.may(&mut bus);
        let result = allowed.and_then(|()| bus.send_ext_csd());
        bus.journal.add(Event::Ioctl {
            multi: false,
            commands: vec![(Command::SEND_EXT_CSD, 0)],
            errno: number(result.map(drop)),
        });
        result
    }
}

/// An O_DIRECT descriptor.
pub(super) struct Descriptor {
    pub shared: Arc<Shared>,
    pub node: String,
    pub claim: bool,
    /// O_DSYNC.
    pub fua: bool,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let mut bus = lock(&self.shared);
        if self.claim {
            if let Ok(node) = bus.node(&self.node) {
                node.claim = None;
            }
        }
        bus.close(&self.node);
        bus.journal.add(Event::Close {
            node: self.node.clone(),
        });
    }
}

impl Block for Descriptor {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut bus = lock(&self.shared);
        let range = bus.direct_range(&self.node, offset.0, buffer)?;
        bus.journal.add(Event::Read {
            node: self.node.clone(),
            sector: range.start,
            sectors: range.end - range.start,
        });
        // the kernel writes this node's dirty pages of the range first
        bus.write_pages(&self.node, range.clone())?;
        bus.read(range.start, buffer)
    }

    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        let mut bus = lock(&self.shared);
        let range = bus.direct_range(&self.node, offset.0, data)?;
        if !self.claim {
            return Err(Errno::EBADF); // opened O_RDONLY
        }
        if bus.node(&self.node)?.read_only {
            return Err(Errno::EPERM);
        }
        bus.journal.add(Event::Write {
            node: self.node.clone(),
            sector: range.start,
            sectors: range.end - range.start,
        });
        bus.write_pages(&self.node, range.clone())?;
        bus.drop_pages(&self.node, range.clone());
        if self.fua {
            bus.write_fua(range.start, data)
        } else {
            bus.write(range.start, data)
        }
    }

    /// The kernel's own erase is another path than the product's, and is seen in the guest.
    fn discard(&self, _: Bytes, _: Bytes, _: bool) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn sync(&self) -> Result<(), Errno> {
        let mut bus = lock(&self.shared);
        bus.write_pages(&self.node, 0..u64::MAX)?;
        let flushed = bus.flush();
        bus.journal.add(Event::Sync {
            node: self.node.clone(),
            flushed: flushed == Ok(true),
        });
        flushed.map(drop)
    }

    fn flush_buffers(&self) -> Result<(), Errno> {
        let mut bus = lock(&self.shared);
        bus.journal.add(Event::FlushBuffers {
            node: self.node.clone(),
        });
        bus.flush_pages(&self.node)
    }

    fn read_only(&self) -> Result<bool, Errno> {
        Ok(lock(&self.shared).node(&self.node)?.read_only)
    }

    fn size(&self) -> Result<Bytes, Errno> {
        let sectors = lock(&self.shared).node(&self.node)?.sectors;
        Ok(Bytes(sectors * SECTOR as u64))
    }

    fn logical_block_size(&self) -> Result<u32, Errno> {
        Ok(SECTOR as u32)
    }
}

/// Somebody who uses a node through its page cache. While one is open the cache lives; the
/// last close of the node writes it back and drops it.
pub struct Buffered {
    pub(super) shared: Arc<Shared>,
    pub(super) node: String,
}

impl Drop for Buffered {
    fn drop(&mut self) {
        lock(&self.shared).close(&self.node);
    }
}

impl Buffered {
    /// Dirties whole sectors, counted within the node.
    ///
    /// # Errors
    /// ENOSPC beyond the end.
    pub fn write(&self, sector: u64, data: &[u8]) -> Result<(), Errno> {
        lock(&self.shared).write_buffered(&self.node, sector, data)
    }

    /// Reads a sector, from the page cache if it is there.
    ///
    /// # Errors
    /// EIO.
    pub fn read(&self, sector: u64) -> Result<[u8; SECTOR], Errno> {
        lock(&self.shared).read_buffered(&self.node, sector)
    }

    /// What the kernel's write-back does sooner or later, whatever happened to the card since.
    ///
    /// # Errors
    /// EIO.
    pub fn write_back(&self) -> Result<(), Errno> {
        lock(&self.shared).write_pages(&self.node, 0..u64::MAX)
    }
}
