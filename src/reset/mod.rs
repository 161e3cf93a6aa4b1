//! Factory reset: facts → plan → act → verify → report.
//!
//! [`Reset`] is the use case. One run at a time; everything that a run decides stands in its
//! [`plan::Plan`] before the first write.

mod act;
pub mod board;
pub mod canary;
pub mod edges;
pub mod facts;
pub mod marker;
pub mod plan;
pub mod report;
pub mod request;
pub mod step;
pub mod timeout;
mod verify;

use crate::device::Storage;
use crate::error::{Code, Failure, Result};
use act::Run;
use board::{Board, Extent, Status};
use plan::Plan;
use report::{Report, TargetReport};
use request::{Logical, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use step::Step;

/// The longest time between two looks at the progress of a run.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// Factory resets on one machine.
pub struct Reset {
    storage: Arc<dyn Storage>,
    /// Held by the run at work: destructive work is done one at a time.
    running: Mutex<()>,
    cancel: AtomicBool,
    board: Board,
    last: Mutex<Option<Report>>,
}

/// Told about progress, on a thread of its own.
pub type Observer = Box<dyn FnMut(&Status) + Send>;

impl Reset {
    /// Resets on `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Reset {
        Reset {
            storage,
            running: Mutex::new(()),
            cancel: AtomicBool::new(false),
            board: Board::new(),
            last: Mutex::new(None),
        }
    }

    /// The machine.
    pub fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    /// What [`Reset::run`] would do. Touches nothing.
    ///
    /// # Errors
    /// Those of [`facts::gather`] and [`plan::plan`].
    pub fn plan(&self, request: &Request) -> Result<Plan> {
        self.decide(request, 0)
    }

    fn decide(&self, request: &Request, seed: u64) -> Result<Plan> {
        let facts = facts::gather(
            self.storage.as_ref(),
            request.disk.as_deref(),
            &request.partitions,
        )?;
        plan::plan(request, &facts, seed)
    }

    /// Erases, verifies, reports. `observer` is called on another thread and may block there
    /// without delaying the erase; its thread ends with the observer's next return.
    ///
    /// # Errors
    /// Those of [`Reset::plan`], with nothing touched; `BUSY`; `PLAN_STALE`; `CANCELLED`;
    /// `DEVICE_ERROR` and `NOT_VERIFIED`, after which the range is neither kept nor erased.
    pub fn run(self: &Arc<Reset>, request: &Request, observer: Option<Observer>) -> Result<Report> {
        let _running = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Code::Busy,
                    Step::Claim.name(),
                    "another reset is running",
                )
                .remedy("`blockctl reset status` shows it; wait for its end"))
            }
        };
        self.cancel.store(false, Ordering::Relaxed);
        self.board.start();
        if let Some(mut observer) = observer {
            let this = Arc::clone(self);
            // Not joined: an observer that never returns must not keep the run from returning.
            let _ = std::thread::Builder::new()
                .name("progress".to_owned())
                .spawn(move || this.board.follow(PROGRESS_PERIOD, &mut observer));
        }
        let result = self.execute(request);
        let text = result.as_ref().err().map(Failure::to_string);
        self.board.end(text.as_deref());
        if let Ok(report) = &result {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        }
        result
    }

    fn execute(&self, request: &Request) -> Result<Report> {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start = self.storage.now();
        let token = self.token(started);
        let seed = canary::digest(token.as_bytes());
        let storage = self.storage.as_ref();

        self.board.step(Step::Plan, Extent::default());
        let plan = self.decide(request, seed)?;
        let mut run = Run {
            storage,
            plan: &plan,
            seed,
            board: &self.board,
            cancel: &self.cancel,
            steps: Vec::new(),
            warnings: Vec::new(),
        };
        let none = Extent::default();
        let claimed = run.step(Step::Claim, none, |run| act::claim(run.storage, run.plan))?;
        run.step(Step::Recheck, none, |run| {
            let again = self.decide(request, seed)?;
            if again == *run.plan {
                return Ok(());
            }
            Err(Failure::new(
                Code::PlanStale,
                Step::Recheck.name(),
                "the device changed while it was being claimed; nothing was touched",
            )
            .remedy("look at `blockctl reset plan` and try again"))
        })?;
        run.step(Step::Flush, none, |run| {
            act::flush(Step::Flush, run.plan, &claimed)
        })?;
        let before = plan
            .targets
            .iter()
            .map(|target| verify::neighbours(target, claimed.disk.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        run.step(Step::Canaries, none, |run| act::canaries(run, &claimed))?;
        run.step(Step::Edges, none, |run| act::edges(run, &claimed))?;

        let mut erased = Vec::new();
        for target in &plan.targets {
            let mut commands = Vec::new();
            let from = storage.now();
            for chunk in &target.chunks {
                let extent = Extent {
                    done: None,
                    total: Some(chunk.range.length.to_bytes().0),
                    limit: Some(chunk.limit),
                };
                commands
                    .extend(run.step(Step::Erase, extent, |run| act::erase(run, &claimed, chunk))?);
            }
            erased.push((commands, storage.now() - from));
        }
        run.step(Step::CardCache, none, |run| {
            act::flush_card(Step::CardCache, run.plan, &claimed)
        })?;
        run.step(Step::DropCaches, none, |run| {
            act::flush(Step::DropCaches, run.plan, &claimed)
        })?;
        let findings = run.step(Step::Verify, none, |run| {
            (0..run.plan.targets.len())
                .map(|i| verify::target(run, &claimed, i, &before[i]))
                .collect::<Result<Vec<_>>>()
        })?;
        let targets: Vec<TargetReport> = plan
            .targets
            .iter()
            .zip(erased)
            .zip(&findings)
            .map(|((target, (commands, erase_time)), found)| {
                let edges: u64 = target.parts.edges().map(|e| e.length.to_bytes().0).sum();
                TargetReport {
                    partition: target.partition.name.clone(),
                    start: target.range.start.to_bytes(),
                    erased: target.parts.middle.length.to_bytes(),
                    edges: crate::units::Bytes(edges),
                    commands,
                    erase_time,
                    canaries: target.sample_blocks(claimed.block).len() as u32,
                    canaries_found: found.canaries_found,
                    samples: found.samples,
                    samples_wrong: found.samples_wrong,
                    neighbours: found.neighbours,
                    neighbours_changed: found.neighbours_changed,
                    detection_probability: plan::detection_probability(found.samples as usize),
                }
            })
            .collect();
        judge(&targets, &findings)?;
        Ok(Report {
            software_version: crate::VERSION.to_owned(),
            token,
            started,
            elapsed: storage.now() - start,
            targets,
            logical: Logical::Verified,
            physical: plan.physical,
            assurance: plan.assurance,
            steps: std::mem::take(&mut run.steps),
            warnings: std::mem::take(&mut run.warnings),
            plan,
        })
    }

    /// A name for this run that nobody can foretell.
    fn token(&self, started: Duration) -> String {
        self.storage
            .sysfs()
            .read("/proc/sys/kernel/random/uuid")
            .unwrap_or_else(|_| format!("{:x}-{:x}", started.as_nanos(), std::process::id()))
    }

    /// Where the current or last run stands.
    pub fn status(&self) -> Status {
        self.board.status()
    }

    /// Asks the run at work to stop at the next border between commands.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// The report of the last run that succeeded.
    pub fn last_report(&self) -> Option<Report> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn judge(targets: &[TargetReport], findings: &[verify::Findings]) -> Result<()> {
    for (target, found) in targets.iter().zip(findings) {
        let wrong = found.canaries_found + found.samples_wrong + found.neighbours_changed;
        if wrong == 0 {
            continue;
        }
        return Err(Failure::new(
            Code::NotVerified,
            Step::Verify.name(),
            format!(
                "{} is not erased as it should be: {}; of {} samples {} still held their canary \
                 and {} were otherwise wrong, of {} neighbouring sectors {} changed",
                target.partition,
                found.first.as_deref().unwrap_or("?"),
                found.samples,
                found.canaries_found,
                found.samples_wrong,
                found.neighbours,
                found.neighbours_changed
            ),
        )
        .remedy(
            "do not pass this device on; run the reset again, and replace a card that repeats it",
        ));
    }
    Ok(())
}
