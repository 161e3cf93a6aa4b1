//! What FUA costs: the same reads and writes as plain direct I/O, with O_DSYNC semantics on each
//! write (FUA), and with an fdatasync after each write (flush). facts → plan → act → report.
//!
//! Nothing in the kernel or the card is changed: mainline has no switch for FUA (queue/fua is
//! read-only), and switching the whole cache off would lose data of others. Each path asks for its
//! durability with its own calls.

mod act;
pub mod facts;
pub mod plan;
pub mod report;
pub mod stats;

use crate::device::medium::OpenFile;
use crate::device::{Medium, Sysfs};
use crate::error::{Code, Failure, Result};
use crate::named_enum;
use crate::units::Bytes;
use facts::Queue;
use plan::Plan;
use report::Report;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

named_enum! {
    /// How the medium is gone through.
    Pattern {
        /// Blocks one after the other, written.
        SequentialWrite = 0 "seq-write",
        /// Blocks anywhere, written.
        RandomWrite = 1 "rand-write",
        /// Blocks one after the other, read.
        SequentialRead = 2 "seq-read",
        /// Blocks anywhere, read.
        RandomRead = 3 "rand-read",
    }
}

impl Pattern {
    /// True for writes.
    pub fn writes(self) -> bool {
        matches!(self, Pattern::SequentialWrite | Pattern::RandomWrite)
    }

    /// True where the blocks follow each other.
    pub fn is_sequential(self) -> bool {
        matches!(self, Pattern::SequentialWrite | Pattern::SequentialRead)
    }
}

named_enum! {
    /// What is asked for with each write.
    Path {
        /// O_DIRECT, and nothing else.
        Direct = 0 "direct",
        /// O_DIRECT, each write with O_DSYNC semantics.
        Fua = 1 "fua",
        /// O_DIRECT, an fdatasync after each write.
        Flush = 2 "flush",
    }
}

/// A measurement that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes that may be overwritten, from the start of the medium.
    pub length: Bytes,
    /// Runs of each pattern and path.
    pub runs: u32,
    /// Block of the random patterns.
    pub block: Bytes,
    /// Block of the sequential patterns.
    pub sequential_block: Bytes,
    /// Operations of a random run; 0 = [`plan::OPERATIONS`], or the blocks that there are.
    pub operations: u32,
    /// The longest time that one operation may take.
    pub limit: Duration,
}

impl Request {
    /// `length` bytes in the usual way.
    pub fn new(length: Bytes) -> Request {
        Request {
            length,
            runs: 5,
            block: Bytes(4096),
            sequential_block: Bytes(512 << 10),
            operations: 0,
            limit: Duration::from_secs(30),
        }
    }
}

/// How far a measurement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `prepare`, or pattern and path: `rand-write fua`.
    pub step: String,
    /// Since the measurement began.
    pub elapsed: Duration,
    /// Bytes that have been read and written.
    pub done: Bytes,
    /// Bytes that will be.
    pub total: Bytes,
}

/// Told about progress, on a thread of its own; false ends the measurement at the next run.
pub type Observer = Box<dyn FnMut(&Progress) -> bool + Send>;

/// Measurements of one process: one at a time, since two would measure each other.
#[derive(Debug, Default)]
pub struct Measurements {
    busy: Arc<AtomicBool>,
}

/// Held by the thread that does the I/O, so that one that hangs in the kernel keeps it.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Step name of everything before the first operation.
pub(crate) const PLAN: &str = "plan";

impl Measurements {
    /// None is at work.
    pub fn new() -> Measurements {
        Measurements::default()
    }

    /// Measures on an open file or device, whose first `length` bytes are overwritten.
    ///
    /// # Errors
    /// Those of [`plan::plan`], with nothing touched; `BUSY`; `CANCELLED`; `DEVICE_FAILED` with the
    /// errno of an operation, or where one took longer than the limit.
    pub fn measure(
        &self,
        sysfs: &dyn Sysfs,
        file: OpenFile,
        request: &Request,
        observer: Option<Observer>,
    ) -> Result<Report> {
        let described = file.describe().map_err(|e| {
            Failure::new(Code::InvalidRequest, PLAN, "the descriptor says nothing").errno(e)
        })?;
        let queue = Queue::gather(sysfs, &described.device);
        let plan = plan::plan(request, &described, &queue)?;
        self.carry_out(Arc::new(file), plan, observer)
    }

    /// Measures as planned on any medium.
    ///
    /// # Errors
    /// As [`Measurements::measure`].
    pub fn carry_out(
        &self,
        medium: Arc<dyn Medium>,
        plan: Plan,
        observer: Option<Observer>,
    ) -> Result<Report> {
        if self.busy.swap(true, Ordering::SeqCst) {
            return Err(Failure::new(
                Code::Busy,
                PLAN,
                "another measurement is running, or hangs in the kernel",
            )
            .remedy("wait for its end; look into dmesg for mmc errors if there is none"));
        }
        let busy = Busy(Arc::clone(&self.busy));
        act::run(medium, Arc::new(plan), busy, observer)
    }
}
