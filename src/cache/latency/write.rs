//! Writing until the power fails, or until it is enough.

use crate::cache::latency::acks::{Ack, Start};
use crate::cache::latency::record::{Half, Record, RunId};
use crate::cache::latency::{place, read, Place, HOT_BLOCK};
use crate::cache::raw::Raw;
use crate::device::{Access, Block, DirectBuffer, Storage};
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use nix::errno::Errno;
use std::time::Duration;

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of the hot zone.
    pub hot: Bytes,
    /// Writes into the hot zone between two records.
    pub hot_writes: u32,
    /// Flush each record (fdatasync) before it is acknowledged.
    pub flush: bool,
    /// End after so many records; `None` = never.
    pub records: Option<u64>,
    /// Wait so long between two records.
    pub pause: Duration,
}

impl Options {
    /// For ever, without flushes.
    pub fn new(hot: Bytes) -> Options {
        Options {
            hot,
            hot_writes: 16,
            flush: false,
            records: None,
            pause: Duration::ZERO,
        }
    }
}

/// What the writer tells, in this order: the beginning once, each record once the device has
/// acknowledged it.
pub trait Listener {
    /// The first record is flushed; from here on records follow.
    ///
    /// # Errors
    /// Where nobody hears it: the test is then worth nothing and ends.
    fn started(&mut self, start: &Start) -> Result<()>;
    /// A record was acknowledged.
    ///
    /// # Errors
    /// As [`Listener::started`].
    fn acknowledged(&mut self, ack: &Ack) -> Result<()>;
}

/// Claims the partition and writes. Everything on it is lost.
///
/// # Errors
/// Those of [`Raw::claim`] and [`place()`], with nothing touched; `DEVICE_FAILED` where a write fails (as
/// it does when a card is taken away), those of the listener.
pub fn write(
    storage: &dyn Storage,
    raw: &Raw,
    run: RunId,
    options: &Options,
    listener: &mut dyn Listener,
) -> Result<()> {
    let node = raw.claim(storage, |node| storage.open_block(node, Access::Claim))?;
    let block = node
        .logical_block_size()
        .map_err(|e| failed(raw, "no block size of the device", e))?;
    let place = place(raw.partition.range, Bytes(u64::from(block)), options.hot)?;
    // A dirty page that is written back later would overwrite a record.
    node.flush_buffers()
        .map_err(|e| failed(raw, "its page cache cannot be written back", e))?;
    let mut writer = Writer {
        storage,
        raw,
        node: node.as_ref(),
        place,
        run,
        options,
        hot_at: 0,
        hot: DirectBuffer::new(HOT_BLOCK.0 as usize),
        halves: DirectBuffer::new(2 * block as usize),
    };
    let start = writer.begin()?;
    listener.started(&start)?;
    let mut sequence = 0;
    while options.records.map_or(true, |records| sequence < records) {
        sequence += 1;
        let ack = writer.next(sequence)?;
        listener.acknowledged(&ack)?;
        if !options.pause.is_zero() {
            storage.sleep(options.pause);
        }
    }
    Ok(())
}

fn failed(raw: &Raw, what: &str, errno: Errno) -> Failure {
    Failure::new(
        Code::DeviceFailed,
        "write",
        format!("{} ({}): {what}", raw.partition.name, raw.partition.node),
    )
    .errno(errno)
    .remedy("look into dmesg for errors of this device")
}

struct Writer<'a> {
    storage: &'a dyn Storage,
    raw: &'a Raw,
    node: &'a dyn Block,
    place: Place,
    run: RunId,
    options: &'a Options,
    hot_at: u64,
    hot: DirectBuffer,
    halves: DirectBuffer,
}

impl Writer<'_> {
    /// Record 0, flushed and read back: after it, a medium without any record of this run has lost
    /// what it said it had flushed.
    fn begin(&mut self) -> Result<Start> {
        let error = |errno| failed(self.raw, "the record's place cannot be read", errno);
        let before = read(self.node, self.place.record, self.place.block).map_err(error)?;
        let previous = before.iter().find_map(|half| match half {
            Half::Whole(record) => Some(record.run),
            _ => None,
        });
        let first = self.record(0)?;
        self.sync(0)?;
        let error = |errno| failed(self.raw, "record 0 cannot be read back", errno);
        let found = read(self.node, self.place.record, self.place.block).map_err(error)?;
        if found.iter().any(|half| *half != Half::Whole(first.clone())) {
            return Err(Failure::new(
                Code::NotVerified,
                "write",
                format!(
                    "{}: record 0 reads back as something else",
                    self.raw.partition.name
                ),
            )
            .remedy("the device does not keep what is written; it is broken or write-protected"));
        }
        Ok(Start {
            run: self.run,
            previous,
            partition: self.raw.partition.name.clone(),
            offset: self.place.record,
            hot: self.place.hot,
            flush: self.options.flush,
            time: first.time,
        })
    }

    fn next(&mut self, sequence: u64) -> Result<Ack> {
        for _ in 0..self.options.hot_writes {
            self.heat(sequence)?;
        }
        let record = self.record(sequence)?;
        if self.options.flush {
            self.sync(sequence)?;
        }
        Ok(Ack {
            run: self.run,
            sequence,
            time: record.time,
        })
    }

    /// One write into the hot zone, which is gone through again and again.
    fn heat(&mut self, sequence: u64) -> Result<()> {
        self.hot[..8].copy_from_slice(&sequence.to_le_bytes());
        self.hot[8..16].copy_from_slice(&self.hot_at.to_le_bytes());
        self.node
            .write_at(Bytes(self.hot_at), &self.hot)
            .map_err(|e| self.ended("the hot zone", sequence, e))?;
        self.hot_at = (self.hot_at + HOT_BLOCK.0) % self.place.hot.0;
        Ok(())
    }

    /// Both halves in one write, with the time just before it.
    fn record(&mut self, sequence: u64) -> Result<Record> {
        let record = Record {
            run: self.run,
            sequence,
            time: self.storage.now(),
            offset: self.place.record,
            partition: self.raw.partition.name.clone(),
        };
        let block = self.place.block.0 as usize;
        for half in [0, 1] {
            let bytes = record.encode(half, block);
            self.halves[usize::from(half) * block..][..block].copy_from_slice(&bytes);
        }
        self.node
            .write_at(self.place.record, &self.halves)
            .map_err(|e| self.ended("record", sequence, e))?;
        Ok(record)
    }

    fn sync(&self, sequence: u64) -> Result<()> {
        self.node
            .sync()
            .map_err(|e| self.ended("the flush of record", sequence, e))
    }

    fn ended(&self, what: &str, sequence: u64, errno: Errno) -> Failure {
        let before = match sequence {
            0 => "no record was acknowledged".to_owned(),
            n => format!("the last acknowledged record is {}", n - 1),
        };
        let what = match what {
            "the hot zone" => "writing the hot zone failed".to_owned(),
            what => format!("{what} {sequence} failed"),
        };
        failed(self.raw, &format!("{what}; {before}"), errno)
            .remedy("if the card was cut on purpose: bring it back, then `cache latency check`")
    }
}
