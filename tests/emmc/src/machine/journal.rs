//! What the product did to the machine, in order.
use serde::{Deserialize, Serialize};

/// Events kept; later ones are only counted.
const CAPACITY: usize = 1_000_000;

/// One call. Sectors are absolute on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A node was opened.
    Open {
        /// Kernel name.
        node: String,
        /// O_EXCL.
        claim: bool,
        /// Errno, 0 = success.
        errno: i32,
    },
    /// A node was closed.
    Close {
        /// Kernel name.
        node: String,
    },
    /// An O_DIRECT read.
    Read {
        /// Kernel name.
        node: String,
        /// First sector.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// An O_DIRECT write.
    Write {
        /// Kernel name.
        node: String,
        /// First sector.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// Dirty pages reached the card, whoever caused it.
    WriteBack {
        /// Kernel name.
        node: String,
        /// First sector.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// fdatasync.
    Sync {
        /// Kernel name.
        node: String,
        /// A FLUSH_CACHE was sent.
        flushed: bool,
    },
    /// BLKFLSBUF.
    FlushBuffers {
        /// Kernel name.
        node: String,
    },
    /// MMC_IOC_CMD or MMC_IOC_MULTI_CMD.
    Ioctl {
        /// MMC_IOC_MULTI_CMD.
        multi: bool,
        /// Index and argument of each command given.
        commands: Vec<(u8, u32)>,
        /// Errno, 0 = success.
        errno: i32,
    },
}

/// Calls by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// MMC_IOC_MULTI_CMD.
    pub multi_cmd_ioctls: u64,
    /// MMC_IOC_CMD.
    pub cmd_ioctls: u64,
    /// O_DIRECT reads.
    pub direct_reads: u64,
    /// O_DIRECT writes.
    pub direct_writes: u64,
    /// fdatasync.
    pub syncs: u64,
    /// BLKFLSBUF.
    pub flush_buffers: u64,
}

/// Events and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The first events since the last reset.
    pub events: Vec<Event>,
    /// Events that had no room.
    pub dropped: u64,
    /// Counters.
    pub calls: Calls,
}

impl Journal {
    pub(super) fn add(&mut self, event: Event) {
        let calls = &mut self.calls;
        match &event {
            Event::Ioctl { multi: true, .. } => calls.multi_cmd_ioctls += 1,
            Event::Ioctl { multi: false, .. } => calls.cmd_ioctls += 1,
            Event::Read { .. } => calls.direct_reads += 1,
            Event::Write { .. } => calls.direct_writes += 1,
            Event::Sync { .. } => calls.syncs += 1,
            Event::FlushBuffers { .. } => calls.flush_buffers += 1,
            Event::Open { .. } | Event::Close { .. } | Event::WriteBack { .. } => {}
        }
        if self.events.len() < CAPACITY {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }
}
