//! What a running reset shows to the outside: where it is, how far, since when. The erasing thread
//! writes here and never waits for a reader.

use crate::reset::step::Step;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

crate::named_enum! {
    /// Where a reset stands.
    State {
        /// None has run.
        Idle = 0 "idle",
        /// One is running.
        Running = 1 "running",
        /// The last one succeeded.
        Done = 2 "done",
        /// The last one failed.
        Failed = 3 "failed",
    }
}

/// How far a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes done; `None` = the card tells nothing.
    pub done: Option<u64>,
    /// Bytes in all.
    pub total: Option<u64>,
    /// Longest time of the step.
    pub limit: Option<Duration>,
}

/// One look at the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State.
    pub state: State,
    /// Step at work, or where the last run ended.
    pub step: Option<Step>,
    /// How far it is.
    pub extent: Extent,
    /// Since the run began; the whole of it once it ended.
    pub elapsed: Duration,
    /// The error of a failed run.
    pub message: String,
    /// Partitions of the current or last run.
    pub what: String,
}

struct Inner {
    status: Status,
    started: Option<Instant>,
    /// Counts changes, so that a reader sees whether there was one.
    changes: u64,
    /// Counts runs, so that a reader of one does not follow the next.
    runs: u64,
}

/// The board.
pub struct Board {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Board {
    /// An empty board.
    pub fn new() -> Board {
        Board {
            inner: Mutex::new(Inner {
                status: Status {
                    state: State::Idle,
                    step: None,
                    extent: Extent::default(),
                    elapsed: Duration::ZERO,
                    message: String::new(),
                    what: String::new(),
                },
                started: None,
                changes: 0,
                runs: 0,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain values: a panic elsewhere leaves nothing half-written.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, edit: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        edit(&mut inner);
        inner.changes += 1;
        self.changed.notify_all();
    }

    /// A run of the partitions `what` begins. Returns its number, for [`Board::follow`].
    pub fn start(&self, what: &str) -> u64 {
        self.change(|inner| {
            inner.runs += 1;
            inner.started = Some(Instant::now());
            inner.status.state = State::Running;
            inner.status.step = None;
            inner.status.message.clear();
            inner.status.what = what.to_owned();
        });
        self.lock().runs
    }

    /// A step begins.
    pub fn step(&self, step: Step, extent: Extent) {
        self.change(|inner| {
            inner.status.step = Some(step);
            inner.status.extent = extent;
        });
    }

    /// The step has done so much. Wakes nobody: readers look often enough by themselves.
    pub fn done(&self, bytes: u64) {
        self.lock().status.extent.done = Some(bytes);
    }

    /// The run ends; `failure` is its error text.
    pub fn end(&self, failure: Option<&str>) {
        self.change(|inner| {
            inner.status.elapsed = inner.started.take().map_or(Duration::ZERO, |s| s.elapsed());
            inner.status.state = if failure.is_some() {
                State::Failed
            } else {
                State::Done
            };
            inner.status.message = failure.unwrap_or_default().to_owned();
        });
    }

    /// A look.
    pub fn status(&self) -> Status {
        Board::look(&self.lock())
    }

    fn look(inner: &Inner) -> Status {
        let mut status = inner.status.clone();
        if let Some(started) = inner.started {
            status.elapsed = started.elapsed();
        }
        status
    }

    /// Calls `tell` at each change and at least every `period` until `run` has ended. The calls
    /// are made without a lock: a reader that blocks delays nobody but itself.
    pub fn follow(&self, run: u64, period: Duration, tell: &mut dyn FnMut(&Status)) {
        let mut seen = None;
        loop {
            let (status, current) = {
                let inner = self.lock();
                let (inner, _) = self
                    .changed
                    .wait_timeout_while(inner, period, |inner| seen == Some(inner.changes))
                    .unwrap_or_else(PoisonError::into_inner);
                seen = Some(inner.changes);
                (Board::look(&inner), inner.runs)
            };
            if status.state != State::Running || current != run {
                return;
            }
            if status.step.is_some() {
                tell(&status);
            }
        }
    }
}

impl Default for Board {
    fn default() -> Board {
        Board::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_one_run_does_not_follow_the_next() {
        let board = Board::new();
        let first = board.start("cache");
        board.end(None);
        let second = board.start("userdata");
        board.step(Step::Erase, Extent::default());
        // Returns though a run is at work, and tells nothing of it.
        board.follow(first, Duration::from_secs(60), &mut |status| {
            panic!("told of the next run: {status:?}")
        });
        let mut told = 0;
        board.follow(second, Duration::from_millis(1), &mut |status| {
            assert_eq!(status.step, Some(Step::Erase));
            told += 1;
            board.end(Some("enough"));
        });
        assert_eq!(told, 1);
        assert_eq!(board.status().state, State::Failed);
    }
}
