//! Factory reset: facts → plan → act → verify → report.
//!
//! [`Reset`] is the use case. One run at a time; everything that a run decides stands in its
//! [`plan::Plan`] before the first write.

mod act;
pub mod board;
pub mod canary;
pub mod edges;
pub mod ends;
pub mod facts;
pub mod marker;
mod place;
pub mod plan;
pub mod report;
pub mod request;
pub mod step;
pub mod timeout;
mod verify;

use crate::device::Storage;
use crate::error::{Code, Failure, Result};
use crate::units::Sectors;
use act::{Claimed, Run, Sent};
use board::{Board, Extent, State, Status};
use marker::Found;
use plan::{MarkerPlan, Plan, TargetPlan};
use report::{Ended, Report, TargetReport};
use request::{Assurance, Logical, Marker, MarkerFile, Physical, Request};
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
    /// Whether misc holds a marker of ours, as the run at work knows it; `None` until it has looked.
    marked: Mutex<Option<bool>>,
    board: Board,
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
            marked: Mutex::new(None),
            board: Board::new(),
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
        let facts = facts::gather(self.storage.as_ref(), request)?;
        plan::plan(request, &facts, seed)
    }

    /// The plan of the run at work, which remembers what misc says.
    fn decide_and_know(&self, request: &Request, seed: u64) -> Result<Plan> {
        let facts = facts::gather(self.storage.as_ref(), request)?;
        let marker = facts.misc.marker.value();
        self.know_marked(marker.map(|found| matches!(found, Found::Ours { .. })));
        plan::plan(request, &facts, seed)
    }

    /// Erases, verifies, reports. `observer` is called on another thread and may block there
    /// without delaying the erase; its thread ends with the observer's next return.
    ///
    /// # Errors
    /// Those of [`Reset::plan`], with nothing touched; `BUSY`; `PLAN_STALE`; `CANCELLED`;
    /// `DEVICE_FAILED` and `NOT_VERIFIED`, after which the range is neither kept nor erased.
    pub fn run(self: &Arc<Reset>, request: &Request, observer: Option<Observer>) -> Result<Report> {
        self.run_then(request, observer, |ended| ended.result)
    }

    /// [`Reset::run`], with something that is done with its end before [`Reset::status`] says that
    /// it has ended: who sees that finds the report kept.
    pub fn run_then<T>(
        self: &Arc<Reset>,
        request: &Request,
        observer: Option<Observer>,
        then: impl FnOnce(Ended) -> T,
    ) -> T {
        let _running = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return then(self.busy().into()),
        };
        // Before the board says that a run is at work: who sees that and cancels is heard.
        self.cancel.store(false, Ordering::SeqCst);
        self.know_marked(None);
        let number = self.board.start(&request.partitions.join(" "));
        if let Some(mut observer) = observer {
            let this = Arc::clone(self);
            // Not joined: an observer that never returns must not keep the run from returning.
            let _ = std::thread::Builder::new()
                .name("progress".to_owned())
                .spawn(move || this.board.follow(number, PROGRESS_PERIOD, &mut observer));
        }
        let ended = self.execute(request);
        let text = ended.result.as_ref().err().map(Failure::to_string);
        let then = then(ended);
        self.board.end(text.as_deref());
        then
    }

    fn execute(&self, request: &Request) -> Ended {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let begin = self.storage.now();
        let seed = canary::digest(self.uuid(started).as_bytes());
        self.board.step(Step::Plan, Extent::default());
        let plan = match self.decide_and_know(request, seed) {
            Ok(plan) => plan,
            Err(failure) => return failure.into(),
        };
        // A reset that goes on keeps the token of its first run.
        let token = match &plan.marker.found {
            Some(Found::Ours { token, .. }) => token.clone(),
            _ => self.uuid(started),
        };
        let mut run = Run {
            storage: self.storage.as_ref(),
            plan: &plan,
            seed,
            board: &self.board,
            cancel: &self.cancel,
            steps: Vec::new(),
            warnings: Vec::new(),
            destructive: false,
            sent: vec![Sent::default(); plan.targets.len()],
            sanitized: Vec::new(),
        };
        let carried_out = self.carry_out(&mut run, request, &token);
        let (targets, failure) = match carried_out {
            Ok(targets) => (targets, None),
            Err(failure) if run.destructive => (sent_only(&run), Some(failure)),
            Err(failure) => return failure.into(),
        };
        let (logical, physical, assurance) = match &failure {
            None => (Logical::Verified, plan.physical, plan.assurance),
            Some(Failure {
                code: Code::NotVerified,
                ..
            }) => (Logical::Failed, Physical::None, Assurance::None),
            Some(_) => (Logical::NotChecked, Physical::None, Assurance::None),
        };
        let report = Report {
            software_version: crate::VERSION.to_owned(),
            token,
            started,
            elapsed: self.storage.now() - begin,
            targets,
            sanitize_commands: std::mem::take(&mut run.sanitized),
            logical,
            physical,
            assurance,
            steps: std::mem::take(&mut run.steps),
            warnings: std::mem::take(&mut run.warnings),
            failure: failure.clone(),
            plan,
        };
        match failure {
            None => Ended {
                result: Ok(report),
                incomplete: None,
            },
            Some(failure) => Ended {
                result: Err(failure),
                incomplete: Some(report),
            },
        }
    }

    /// Everything after the plan, in the order that nothing may change.
    fn carry_out(
        &self,
        run: &mut Run<'_>,
        request: &Request,
        token: &str,
    ) -> Result<Vec<TargetReport>> {
        let none = Extent::default();
        let claimed = run.step(Step::Claim, none, |run| act::claim(run.storage, run.plan))?;
        run.step(Step::Recheck, none, |run| {
            if self.decide(request, run.seed)? == *run.plan {
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
        let before = run
            .plan
            .targets
            .iter()
            .map(|target| verify::neighbours(target, claimed.disk.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        let file = request.marker_file.as_ref();
        let place = place::open(run.storage, &run.plan.marker, file)?;
        let mut marked = None;
        let erased = (|| {
            if let Some(place) = &place {
                marked = run.step(Step::Marker, none, |run| mark(run.plan, place, token))?;
                let ours = !matches!(run.plan.marker.found, Some(Found::ForeignWipe { .. }));
                if run.plan.marker.place == Marker::Misc {
                    self.know_marked(Some(ours));
                }
            }
            erase(run, &claimed)
        })();
        if let (Err(failure), false, Some(marked), Some(place)) =
            (&erased, run.destructive, &marked, &place)
        {
            // Nothing was destroyed: nothing is to be finished by the next boot.
            return Err(marked.withdraw(place, token, failure.clone()));
        }
        erased?;
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
        let targets: Vec<TargetReport> = run
            .plan
            .targets
            .iter()
            .zip(&run.sent)
            .zip(&findings)
            .map(|((target, sent), found)| target_report(target, sent, found, claimed.block))
            .collect();
        judge(&targets, &findings)?;
        Ok(targets)
    }

    /// Removes the restart marker after the caller has formatted. Without one it does nothing.
    ///
    /// # Errors
    /// `FOREIGN_MARKER` for somebody else's, `INVALID_REQUEST` for another run's token, `BUSY`
    /// while a reset is running.
    pub fn finish(&self, token: &str, file: Option<&MarkerFile>) -> Result<()> {
        let _running = self.running.try_lock().map_err(|_| self.busy())?;
        let place = match file {
            Some(file) => place::Place::File(file.clone()),
            None => {
                let misc = facts::misc(self.storage.as_ref())?;
                let Some(partition) = misc.partition else {
                    return Err(Failure::new(
                        Code::InvalidRequest,
                        Step::Finish.name(),
                        "this device has no partition misc",
                    )
                    .remedy("pass the marker file of the reset"));
                };
                place::open_misc(self.storage.as_ref(), &partition.node)?
            }
        };
        let sector = place.read()?;
        match marker::parse(&sector) {
            Found::Empty => Ok(()),
            Found::Ours { token: ours, .. } if ours == token => {
                place.write(&marker::cleared(&sector))
            }
            Found::Ours { token: ours, .. } => Err(Failure::new(
                Code::InvalidRequest,
                Step::Finish.name(),
                format!("the restart marker is of the run {ours}, not of {token}"),
            )
            .remedy("use the token of the last report; after formatting, not before")),
            Found::ForeignWipe { .. } | Found::Foreign { .. } => Err(Failure::new(
                Code::ForeignMarker,
                Step::Finish.name(),
                "the bootloader message is not blockd's, and is not cleared by it",
            )
            .remedy("recovery clears its own message when it is done")),
        }
    }

    /// True where misc holds a marker of ours; `None` where that cannot be told. While a run is at
    /// work its own knowledge is the answer: a read would wait for the card until the erase ends.
    pub fn marker_present(&self) -> Option<bool> {
        let known = *self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.status().state == State::Running && known.is_some() {
            return known;
        }
        let misc = facts::misc(self.storage.as_ref()).ok()?;
        let found = misc.marker.value()?;
        Some(matches!(found, Found::Ours { .. }))
    }

    fn know_marked(&self, marked: Option<bool>) {
        *self.marked.lock().unwrap_or_else(PoisonError::into_inner) = marked;
    }

    /// A name for this run that nobody can foretell.
    fn uuid(&self, started: Duration) -> String {
        self.storage
            .sysfs()
            .read("/proc/sys/kernel/random/uuid")
            .unwrap_or_else(|_| format!("{:x}-{:x}", started.as_nanos(), std::process::id()))
    }

    /// Where the current or last run stands.
    pub fn status(&self) -> Status {
        self.board.status()
    }

    /// Asks the run at work to stop at the next border between commands. One that comes before
    /// [`Reset::status`] says `running` does nothing: it stops no run that begins later.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::SeqCst);
    }

    fn busy(&self) -> Failure {
        let status = self.status();
        let text = format!(
            "another reset is running: {}, at the step {}, since {} s",
            status.what,
            status.step.map_or("-", |step| step.name()),
            status.elapsed.as_secs()
        );
        Failure::new(Code::Busy, Step::Claim.name(), text)
            .remedy("`blockctl reset status` shows it; wait for its end")
    }
}

/// A marker that this run has written over an empty message.
struct Marked {
    before: [u8; marker::SECTOR],
    ours: [u8; marker::SECTOR],
}

impl Marked {
    /// Takes the marker back after `failure`, which destroyed nothing. What somebody else has
    /// written there since is left alone. Returns the failure, with what became of the marker where
    /// the caller must know.
    fn withdraw(&self, place: &place::Place, token: &str, mut failure: Failure) -> Failure {
        let withdrawn = place.read().and_then(|now| {
            if now == self.ours {
                place.write(&self.before)
            } else {
                Ok(())
            }
        });
        if let Err(why) = withdrawn {
            failure.message.push_str(&format!(
                "; nothing was erased, but the restart marker could not be withdrawn: {why}"
            ));
            failure.remedy = format!(
                "the next boot will begin this reset again: `blockctl reset finish {token}` once the \
                 marker can be written. {}",
                failure.remedy
            );
        }
        failure
    }
}

/// Writes our marker, unless recovery's own does for one. What it returns takes it back as long as
/// nothing was destroyed; a marker of an earlier, cut run is never withdrawn.
fn mark(plan: &Plan, place: &place::Place, token: &str) -> Result<Option<Marked>> {
    let sector = place.read()?;
    if Some(marker::parse(&sector)) != plan.marker.found {
        return Err(Failure::new(
            Code::PlanStale,
            Step::Marker.name(),
            "the bootloader message changed since the plan was made; nothing was touched",
        )
        .remedy("look at `blockctl reset plan` and try again"));
    }
    if matches!(plan.marker.found, Some(Found::ForeignWipe { .. })) {
        return Ok(None);
    }
    let MarkerPlan {
        attempt, targets, ..
    } = &plan.marker;
    let Some(ours) = marker::with_ours(&sector, token, *attempt, targets) else {
        return Err(Failure::new(
            Code::InvalidRequest,
            Step::Marker.name(),
            "the restart marker has no room for this run; nothing was touched",
        )
        .remedy("reset fewer partitions at a time, or say --marker none"));
    };
    let marked = Marked {
        before: sector,
        ours,
    };
    let fresh = matches!(plan.marker.found, Some(Found::Empty));
    match place.write(&ours) {
        Ok(()) => Ok(fresh.then_some(marked)),
        // It may have been written and not read back.
        Err(failure) if fresh => Err(marked.withdraw(place, token, failure)),
        Err(failure) => Err(failure),
    }
}

/// Canaries, edges, middle of every range, sanitize.
fn erase(run: &mut Run<'_>, claimed: &Claimed) -> Result<()> {
    let none = Extent::default();
    run.step(Step::Canaries, none, |run| act::canaries(run, claimed))?;
    for step in [Step::Edges, Step::Erase] {
        for index in 0..run.plan.targets.len() {
            act::acts(run, claimed, step, index)?;
        }
    }
    if let Some(sanitize) = &run.plan.sanitize {
        let extent = Extent {
            limit: Some(sanitize.limit),
            ..none
        };
        run.step(Step::Sanitize, extent, |run| {
            act::sanitize(run, claimed, sanitize)
        })?;
    }
    Ok(())
}

/// What was sent by a run that did not come to its end; nothing of it counts as read back.
fn sent_only(run: &Run<'_>) -> Vec<TargetReport> {
    let nothing = verify::Findings::default();
    run.plan
        .targets
        .iter()
        .zip(&run.sent)
        .map(|(target, sent)| target_report(target, sent, &nothing, Sectors(1)))
        .collect()
}

fn target_report(
    target: &TargetPlan,
    sent: &Sent,
    found: &verify::Findings,
    block: Sectors,
) -> TargetReport {
    let overwritten = target.overwritten();
    TargetReport {
        partition: target.partition.name.clone(),
        start: target.range.start.to_bytes(),
        erased: target.range.length.to_bytes() - overwritten,
        overwritten,
        commands: sent.commands.clone(),
        erase_time: sent.time,
        canaries: target.sample_blocks(block).len() as u32,
        canaries_found: found.canaries_found,
        samples: found.samples,
        samples_wrong: found.samples_wrong,
        neighbours: found.neighbours,
        neighbours_changed: found.neighbours_changed,
        detection_probability: plan::detection_probability(found.samples as usize),
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
