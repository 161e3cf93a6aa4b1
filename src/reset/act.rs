//! Carrying out a plan, step by step, in the order that nothing may change: what was written before
//! must not come back, and what is outside must not be touched.

mod sequence;

use crate::device::mmc::{status, Command};
use crate::device::{Access, Block, DirectBuffer, Mmc, Storage};
use crate::error::{Code, Failure, Result};
use crate::reset::board::{Board, Extent};
use crate::reset::canary;
use crate::reset::plan::{Act, Plan, Sanitize, TargetPlan};
use crate::reset::step::Step;
use crate::units::{Bytes, SectorRange, Sectors};
use nix::errno::Errno;
use sequence::{erase, wait_ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One direct write or read of an edge or of a full verification.
pub(super) const PIECE: Sectors = Sectors(1024);

/// The open devices of a run. The claims last as long as this lives.
pub(super) struct Claimed {
    /// The card; `None` where the disk is no eMMC.
    pub mmc: Option<Box<dyn Mmc>>,
    pub disk: Box<dyn Block>,
    pub targets: Vec<Box<dyn Block>>,
    /// The larger of the nodes' logical block sizes: the unit of canaries and samples.
    pub block: Sectors,
}

/// What carrying out needs besides the plan.
pub(super) struct Run<'a> {
    pub storage: &'a dyn Storage,
    pub plan: &'a Plan,
    pub seed: u64,
    pub board: &'a Board,
    pub cancel: &'a AtomicBool,
    pub steps: Vec<(Step, Duration)>,
    pub warnings: Vec<String>,
    /// True once something was written that is not ours to take back.
    pub destructive: bool,
    /// What was sent to each range, in the order of the plan.
    pub sent: Vec<Sent>,
    /// SANITIZE as sent.
    pub sanitized: Vec<Command>,
}

/// What was sent to one range.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Commands with their answers.
    pub commands: Vec<Command>,
    /// Time of its acts.
    pub time: Duration,
}

impl Run<'_> {
    /// True once somebody has asked for an end.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Ends the run where somebody has asked for it.
    pub fn check_cancel(&self, step: Step, when: &str) -> Result<()> {
        if !self.cancelled() {
            return Ok(());
        }
        Err(
            Failure::new(Code::Cancelled, step.name(), when).remedy(if self.destructive {
                "parts of the range are gone already, others are not: run the reset again"
            } else {
                "nothing was touched"
            }),
        )
    }

    /// Runs one step: shown on the board, timed, and up to the erase only begun where nobody has
    /// cancelled. What was erased is verified in any case.
    pub fn step<T>(
        &mut self,
        step: Step,
        extent: Extent,
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if step <= Step::Sanitize {
            self.check_cancel(step, &format!("cancelled before the step {step}"))?;
        }
        self.board.step(step, extent);
        let start = self.storage.now();
        let result = act(self);
        let time = self.storage.now() - start;
        match self.steps.last_mut() {
            // One step of many acts.
            Some((last, sum)) if *last == step => *sum += time,
            _ => self.steps.push((step, time)),
        }
        result
    }
}

fn device(step: Step, what: &str, errno: Errno) -> Failure {
    Failure::new(Code::DeviceFailed, step.name(), what)
        .errno(errno)
        .remedy("look into dmesg for errors of this device")
}

/// Opens every target exclusively.
pub(super) fn claim(storage: &dyn Storage, plan: &Plan) -> Result<Claimed> {
    let open =
        |name: &str, access: Access| {
            storage.open_block(name, access).map_err(|errno| {
                let (code, remedy) = match errno {
                Errno::EBUSY => (
                    Code::InUse,
                    "somebody holds it exclusively: a mount in another namespace, fsck, mkfs; end \
                     that and try again",
                ),
                Errno::EACCES | Errno::EPERM => (
                    Code::Permission,
                    "run as root, in a domain that may open this device",
                ),
                Errno::EROFS => (Code::ReadOnly, "`blockdev --setrw` if that is meant"),
                _ => (Code::DeviceFailed, "look into dmesg for errors of this device"),
            };
                Failure::new(code, Step::Claim.name(), format!("cannot open {name}"))
                    .errno(errno)
                    .remedy(remedy)
            })
        };
    let mut targets = Vec::new();
    for target in &plan.targets {
        let block = open(&target.partition.node, Access::Claim)?;
        let size = block
            .size()
            .map_err(|e| device(Step::Claim, &target.partition.node, e))?;
        if size != target.partition.range.length.to_bytes() {
            return Err(Failure::new(
                Code::PlanStale,
                Step::Claim.name(),
                format!(
                    "{} has {}, sysfs said {}",
                    target.partition.node,
                    size,
                    target.partition.range.length.to_bytes()
                ),
            )
            .remedy("the node belongs to another device; check /dev"));
        }
        targets.push(block);
    }
    let disk = open(&plan.disk, Access::Read)?;
    let mmc = plan.rca.map(|_| storage.open_mmc(&plan.disk)).transpose();
    let mmc = mmc.map_err(|errno| {
        Failure::new(
            Code::Permission,
            Step::Claim.name(),
            format!("cannot open the card {}", plan.disk),
        )
        .errno(errno)
        .remedy("run as root, in a domain that may open the whole disk")
    })?;
    let block = disk
        .logical_block_size()
        .map_err(|e| device(Step::Claim, &plan.disk, e))?;
    let block = Bytes(u64::from(block))
        .to_sectors()
        .filter(|b| !b.is_zero())
        .ok_or_else(|| device(Step::Claim, "a block size that is no sector", Errno::EINVAL))?;
    for target in &plan.targets {
        let range = target.range;
        if range.start.0 % block.0 != 0 || range.length.0 % block.0 != 0 {
            return Err(Failure::new(
                Code::OutOfRange,
                Step::Claim.name(),
                format!(
                    "{} does not start and end on blocks of {}",
                    target.partition.name,
                    block.to_bytes()
                ),
            )
            .remedy("choose offset and length as multiples of the disk's block size"));
        }
    }
    Ok(Claimed {
        mmc,
        disk,
        targets,
        block,
    })
}

/// Writes dirty pages out and drops the caches: pages written back later would overwrite the
/// erased range, and cached ones would hide it. Partition and disk have caches of their own.
pub(super) fn flush(step: Step, plan: &Plan, claimed: &Claimed) -> Result<()> {
    for (target, block) in plan.targets.iter().zip(&claimed.targets) {
        block
            .flush_buffers()
            .map_err(|e| device(step, &format!("BLKFLSBUF on {}", target.partition.node), e))?;
    }
    claimed
        .disk
        .flush_buffers()
        .map_err(|e| device(step, &format!("BLKFLSBUF on {}", plan.disk), e))
}

/// Makes the card put its volatile cache onto the medium.
pub(super) fn flush_card(step: Step, plan: &Plan, claimed: &Claimed) -> Result<()> {
    for (target, block) in plan.targets.iter().zip(&claimed.targets) {
        block
            .sync()
            .map_err(|e| device(step, &format!("fdatasync on {}", target.partition.node), e))?;
    }
    if plan.flush_by_switch {
        let mut flush = Command::switch(crate::device::ext_csd::field::FLUSH_CACHE, 1);
        send(step, claimed, &mut flush, "FLUSH_CACHE")?;
    }
    Ok(())
}

/// The position of `sector` inside the partition's node.
pub(super) fn inside(target: &TargetPlan, sector: Sectors) -> Bytes {
    (sector - target.partition.range.start).to_bytes()
}

/// Writes a canary at every sample position and puts them onto the medium.
pub(super) fn canaries(run: &mut Run<'_>, claimed: &Claimed) -> Result<()> {
    let mut buffer = DirectBuffer::new(claimed.block.to_bytes().0 as usize);
    let mut done = 0;
    for (target, block) in run.plan.targets.iter().zip(&claimed.targets) {
        for position in target.sample_blocks(claimed.block) {
            run.check_cancel(Step::Canaries, "cancelled while canaries were written")?;
            run.destructive = true;
            canary::fill(&mut buffer, run.seed, position);
            block
                .write_at(inside(target, position), &buffer)
                .map_err(|e| {
                    device(
                        Step::Canaries,
                        &format!("writing a canary at sector {}", position.0),
                        e,
                    )
                })?;
            done += buffer.len() as u64;
            run.board.done(done);
        }
    }
    flush_card(Step::Canaries, run.plan, claimed)
}

/// One command that must succeed.
fn send(step: Step, claimed: &Claimed, command: &mut Command, name: &str) -> Result<()> {
    let Some(mmc) = &claimed.mmc else {
        return Ok(());
    };
    let sent = mmc.cmd(command);
    if status::has_error(command.response) {
        let names = status::error_names(command.response);
        return Err(Failure::new(
            Code::DeviceFailed,
            step.name(),
            format!("{name} ({command}): {names}"),
        )
        .remedy("look into dmesg for mmc errors, and run the reset again"));
    }
    sent.map_err(|e| device(step, &format!("{name} ({command})"), e))
}

/// Carries the acts of one kind out, range by range. Overwriting is done in two passes, each put
/// onto the medium, so that it reads like the rest: a seeded pattern, then the erased value. They
/// are real writes, since BLKZEROOUT may be sent as TRIM.
pub(super) fn acts(run: &mut Run<'_>, claimed: &Claimed, step: Step, index: usize) -> Result<()> {
    let target = &run.plan.targets[index];
    let acts = if step == Step::Edges {
        &target.edges
    } else {
        &target.middle
    };
    let total: u64 = acts.iter().map(|act| act.range().length.to_bytes().0).sum();
    let mut done = 0;
    for act in acts {
        let start = run.storage.now();
        let bytes = act.range().length.to_bytes().0;
        let limit = match act {
            Act::Commands(chunk) => Some(chunk.limit),
            _ => None,
        };
        // One opaque command tells nothing about how far it is.
        let extent = Extent {
            done: (acts.len() > 1).then_some(done),
            total: Some(total),
            limit,
        };
        let result = run.step(step, extent, |run| {
            run.destructive = true;
            match act {
                Act::Commands(chunk) => {
                    let commands = erase(run, claimed, chunk)?;
                    run.sent[index].commands.extend(commands);
                    Ok(())
                }
                Act::Discard { range, secure } => discard(claimed, target, index, *range, *secure),
                Act::Overwrite(range) => overwrite(run, claimed, index, *range, step),
            }
        });
        run.sent[index].time += run.storage.now() - start;
        result?;
        done += bytes;
    }
    Ok(())
}

fn discard(
    claimed: &Claimed,
    target: &TargetPlan,
    index: usize,
    range: SectorRange,
    secure: bool,
) -> Result<()> {
    let name = if secure {
        "BLKSECDISCARD"
    } else {
        "BLKDISCARD"
    };
    let block = claimed.targets[index].as_ref();
    block
        .discard(inside(target, range.start), range.length.to_bytes(), secure)
        .map_err(|errno| match errno {
            Errno::EOPNOTSUPP => Failure::new(
                Code::Unsupported,
                Step::Erase.name(),
                format!("{} has no {name}", target.partition.node),
            )
            .errno(errno)
            .remedy("use overwrite"),
            _ => device(
                Step::Erase,
                &format!("{name} on {}", target.partition.node),
                errno,
            ),
        })
}

/// SANITIZE: the card purges every page that is not mapped, of the whole user area.
pub(super) fn sanitize(run: &mut Run<'_>, claimed: &Claimed, plan: &Sanitize) -> Result<()> {
    let start = run.storage.now();
    let mut command = plan.command;
    let sent = send(Step::Sanitize, claimed, &mut command, "SANITIZE_START");
    let end = start + plan.limit;
    let poll = wait_ready(run, claimed, Step::Sanitize, "SANITIZE_START", end);
    // One that timed out was not heard, or the kernel has interrupted it. Reading back cannot tell,
    // so it counts for nothing; it was waited for all the same, not to leave a busy card.
    sent?;
    let poll = poll?;
    run.sanitized = std::iter::once(command).chain(poll).collect();
    Ok(())
}

#[derive(Clone, Copy)]
enum Pass {
    Pattern,
    Erased,
}

fn overwrite(
    run: &Run<'_>,
    claimed: &Claimed,
    index: usize,
    range: SectorRange,
    step: Step,
) -> Result<()> {
    let target = &run.plan.targets[index];
    let block = claimed.targets[index].as_ref();
    let mut buffer = DirectBuffer::new(PIECE.to_bytes().0 as usize);
    for pass in [Pass::Pattern, Pass::Erased] {
        for piece in pieces(range) {
            run.check_cancel(step, &format!("cancelled while {range} was overwritten"))?;
            let length = piece.length.to_bytes().0 as usize;
            match pass {
                Pass::Pattern => canary::pattern(&mut buffer[..length], run.seed, piece.start),
                Pass::Erased => buffer[..length].fill(run.plan.erased_value),
            }
            block
                .write_at(inside(target, piece.start), &buffer[..length])
                .map_err(|e| device(step, &format!("overwriting {piece}"), e))?;
        }
        flush_card(step, run.plan, claimed)?;
    }
    Ok(())
}

/// `range` in pieces of at most [`PIECE`].
pub(super) fn pieces(range: SectorRange) -> impl Iterator<Item = SectorRange> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let rest = SectorRange::between(at, range.end());
        (!rest.is_empty()).then(|| {
            let piece = SectorRange {
                start: at,
                length: rest.length.min(PIECE),
            };
            at = piece.end();
            piece
        })
    })
}
