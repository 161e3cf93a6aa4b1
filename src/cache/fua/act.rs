//! Doing the I/O on a thread of its own, watched: a flush that hangs in the kernel cannot be called
//! back, but it can be told of.

use crate::cache::fua::plan::{Plan, Row};
use crate::cache::fua::report::{report, Collected, Report};
use crate::cache::fua::{Busy, Observer, Path, Progress};
use crate::device::{DirectBuffer, Medium};
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use nix::errno::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the watcher looks at the operation in flight, at most.
const LOOK: Duration = Duration::from_millis(200);
/// No operation is in flight.
const IDLE: u64 = u64::MAX;

/// What the I/O thread shows without waiting for anybody.
struct Pulse {
    /// When the operation in flight began, nanoseconds of the medium's clock.
    since: AtomicU64,
    done: AtomicU64,
    cancel: AtomicBool,
}

enum Event {
    Step(String),
    End(std::result::Result<Vec<Collected>, Stop>),
}

/// Why the I/O thread ended early.
enum Stop {
    Cancelled,
    Failed { what: String, errno: Errno },
}

pub(super) fn run(
    medium: Arc<dyn Medium>,
    plan: Arc<Plan>,
    busy: Busy,
    observer: Option<Observer>,
) -> Result<Report> {
    let pulse = Arc::new(Pulse {
        since: AtomicU64::new(IDLE),
        done: AtomicU64::new(0),
        cancel: AtomicBool::new(false),
    });
    let begin = medium.now();
    let (sender, events) = mpsc::channel();
    let worker = Worker {
        medium: Arc::clone(&medium),
        plan: Arc::clone(&plan),
        pulse: Arc::clone(&pulse),
        sender,
    };
    spawn("measure", move || {
        let result = worker.all();
        // Before the answer: the caller may measure again at once.
        drop(busy);
        // The watcher has given up where nobody receives.
        let _ = worker.sender.send(Event::End(result));
    })?;
    let told = observer
        .map(|observer| teller(observer, &pulse))
        .transpose()?;
    let mut step = String::new();
    let pause = LOOK.min(plan.limit / 4).max(Duration::from_millis(1));
    loop {
        match events.recv_timeout(pause) {
            Ok(Event::Step(name)) => step = name,
            Ok(Event::End(Ok(collected))) => {
                return Ok(report(&plan, &collected, medium.now() - begin));
            }
            Ok(Event::End(Err(stop))) => return Err(failure(stop, &step)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the measuring thread ended without a word";
                return Err(Failure::new(Code::DeviceFailed, &step, text));
            }
        }
        let since = pulse.since.load(Ordering::Relaxed);
        let now = medium.now();
        if since != IDLE {
            let stuck = now.saturating_sub(Duration::from_nanos(since));
            if stuck > plan.limit {
                pulse.cancel.store(true, Ordering::Relaxed);
                return Err(hangs(&step, stuck));
            }
        }
        if let Some(told) = &told {
            // A client that is slow misses events; it delays nothing.
            let _ = told.try_send(Progress {
                step: step.clone(),
                elapsed: now - begin,
                done: Bytes(pulse.done.load(Ordering::Relaxed)),
                total: plan.total(),
            });
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|e| {
            Failure::new(
                Code::DeviceFailed,
                "start",
                format!("no thread can be started: {e}"),
            )
        })
}

/// Passes progress on; ends the measurement when the observer wants no more.
fn teller(mut observer: Observer, pulse: &Arc<Pulse>) -> Result<SyncSender<Progress>> {
    let (sender, receiver) = mpsc::sync_channel::<Progress>(1);
    let pulse = Arc::clone(pulse);
    spawn("progress", move || {
        for progress in receiver {
            if !observer(&progress) {
                pulse.cancel.store(true, Ordering::Relaxed);
                return;
            }
        }
    })?;
    Ok(sender)
}

fn failure(stop: Stop, step: &str) -> Failure {
    let (what, errno) = match stop {
        Stop::Cancelled => {
            let text = "nobody waits for the measurement any more";
            return Failure::new(Code::Cancelled, step, text);
        }
        Stop::Failed { what, errno } => (what, errno),
    };
    let failure = |code, text| Failure::new(code, step, text).errno(errno);
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => {
            failure(Code::OutOfRange, format!("{what}: the file system is full"))
                .remedy("free space, or measure fewer bytes")
        }
        Errno::EROFS | Errno::EPERM => failure(Code::ReadOnly, format!("{what}: it is read-only"))
            .remedy("measure on a medium that can be written"),
        Errno::EINVAL => failure(
            Code::Unsupported,
            format!("{what}: direct I/O with this block size is refused"),
        )
        .remedy("use a block that is a multiple of 4096"),
        Errno::ENOSYS | Errno::EOPNOTSUPP => failure(
            Code::Unsupported,
            format!("{what}: this kernel or file system cannot do it"),
        )
        .remedy("writes with RWF_DSYNC need Linux 4.7"),
        _ => failure(Code::DeviceFailed, what)
            .remedy("look into dmesg for errors of the disk (mmc0: …, I/O error, dev …)"),
    }
}

fn hangs(step: &str, since: Duration) -> Failure {
    let what = if step.ends_with(Path::Flush.name()) {
        "flush"
    } else {
        "operation"
    };
    Failure::new(
        Code::DeviceFailed,
        step,
        format!("{what} stuck, {} s without an answer of the disk", since.as_secs()),
    )
    .errno(Errno::ETIMEDOUT)
    .remedy(
        "look into dmesg (`mmc0: cache flush error -110`, `Card stuck being busy`, `blocked for more \
         than 120 seconds`); it cannot be called back: the thread ends when the kernel gives up, and \
         further measurements are refused until then",
    )
}

struct Worker {
    medium: Arc<dyn Medium>,
    plan: Arc<Plan>,
    pulse: Arc<Pulse>,
    sender: mpsc::Sender<Event>,
}

type Done<T> = std::result::Result<T, Stop>;

impl Worker {
    /// Everything: the medium is filled, so that nothing is allocated later and reads find data; then
    /// every row once, and again, each time beginning with another one, so that whatever changes with
    /// time hits all of them.
    fn all(&self) -> Done<Vec<Collected>> {
        let rows = &self.plan.rows;
        let largest = rows.iter().map(|row| row.block.0).max().unwrap_or(0);
        let mut buffer = DirectBuffer::new(largest.max(self.plan.fill_block.0) as usize);
        fill(&mut buffer, 1);
        self.step("prepare");
        self.prepare(&buffer)?;
        let mut collected = vec![Collected::default(); rows.len()];
        for run in 0..self.plan.runs {
            for n in 0..rows.len() {
                let index = (n + run as usize) % rows.len();
                let row = &rows[index];
                self.step(&row.name());
                // The same blocks for every path.
                let dice = Dice(u64::from(run) << 8 | row.pattern as u64);
                self.one(row, dice, &mut buffer, &mut collected[index])?;
            }
        }
        Ok(collected)
    }

    fn step(&self, name: &str) {
        let _ = self.sender.send(Event::Step(name.to_owned()));
    }

    fn prepare(&self, buffer: &[u8]) -> Done<()> {
        let length = self.plan.length.0;
        let block = self.plan.fill_block.0;
        let mut at = 0;
        while at < length {
            let bytes = block.min(length - at) as usize;
            self.timed("fill", || self.medium.write_at(Bytes(at), &buffer[..bytes]))?;
            self.count(bytes as u64);
            at += bytes as u64;
        }
        self.settle()
    }

    /// What a run left in caches is not to be paid by the next.
    fn settle(&self) -> Done<()> {
        self.timed("fdatasync", || self.medium.sync()).map(drop)
    }

    fn one(&self, row: &Row, mut dice: Dice, buffer: &mut [u8], into: &mut Collected) -> Done<()> {
        let buffer = &mut buffer[..row.block.0 as usize];
        let blocks = self.plan.length.0 / row.block.0;
        let begin = self.medium.now();
        for n in 0..row.operations {
            let number = match row.pattern.is_sequential() {
                true => n % blocks,
                false => dice.below(blocks),
            };
            let at = Bytes(number * row.block.0);
            let latency = self.timed("I/O", || self.operation(row, at, buffer))?;
            into.latencies.add(latency);
            self.count(row.block.0);
        }
        let seconds = (self.medium.now() - begin).as_secs_f64();
        into.bytes_per_second
            .push(row.bytes().0 as f64 / seconds.max(1e-9));
        self.settle()
    }

    fn operation(&self, row: &Row, at: Bytes, buffer: &mut [u8]) -> std::result::Result<(), Errno> {
        if !row.pattern.writes() {
            return self.medium.read_at(at, buffer);
        }
        match row.path {
            Path::Direct => self.medium.write_at(at, buffer),
            Path::Fua => self.medium.write_durable(at, buffer),
            Path::Flush => {
                self.medium.write_at(at, buffer)?;
                self.medium.sync()
            }
        }
    }

    /// One operation, with the pulse that the watcher looks at.
    fn timed(
        &self,
        what: &str,
        operation: impl FnOnce() -> std::result::Result<(), Errno>,
    ) -> Done<Duration> {
        if self.pulse.cancel.load(Ordering::Relaxed) {
            return Err(Stop::Cancelled);
        }
        let begin = self.medium.now();
        self.pulse
            .since
            .store(begin.as_nanos() as u64, Ordering::Relaxed);
        let result = operation();
        self.pulse.since.store(IDLE, Ordering::Relaxed);
        match result {
            Ok(()) => Ok(self.medium.now() - begin),
            Err(errno) => Err(Stop::Failed {
                what: what.to_owned(),
                errno,
            }),
        }
    }

    fn count(&self, bytes: u64) {
        self.pulse.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Numbers that a seed decides (splitmix64): the same blocks for every path.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Data that no controller makes smaller.
fn fill(buffer: &mut [u8], seed: u64) {
    let mut dice = Dice(seed);
    for part in buffer.chunks_mut(8) {
        part.copy_from_slice(&dice.next().to_le_bytes()[..part.len()]);
    }
}

#[cfg(test)]
mod tests;
