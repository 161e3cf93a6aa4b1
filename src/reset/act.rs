//! Carrying out a plan, step by step, in the order that nothing may change: what was written before
//! must not come back, and what is outside must not be touched.

use crate::device::mmc::{status, Command};
use crate::device::{Access, Block, DirectBuffer, Mmc, Storage};
use crate::error::{Code, Failure, Result};
use crate::reset::board::{Board, Extent};
use crate::reset::canary;
use crate::reset::plan::{Chunk, Plan, TargetPlan};
use crate::reset::step::Step;
use crate::units::{Bytes, SectorRange, Sectors};
use nix::errno::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One direct write or read of an edge or of a full verification.
pub(super) const PIECE: Sectors = Sectors(1024);

/// The open devices of a run. The claims last as long as this lives.
pub(super) struct Claimed {
    pub mmc: Box<dyn Mmc>,
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
}

impl Run<'_> {
    /// Runs one step: shown on the board, timed, and up to the erase only begun where nobody has
    /// cancelled. What was erased is verified in any case.
    pub fn step<T>(
        &mut self,
        step: Step,
        extent: Extent,
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if step <= Step::Erase && self.cancel.load(Ordering::Relaxed) {
            return Err(Failure::new(
                Code::Cancelled,
                step.name(),
                format!("cancelled before the step {step}"),
            )
            .remedy(if self.steps.iter().any(|(s, _)| *s >= Step::Canaries) {
                "parts of the range are overwritten already; run the reset again"
            } else {
                "nothing was written"
            }));
        }
        self.board.step(step, extent);
        let start = self.storage.now();
        let result = act(self);
        self.steps.push((step, self.storage.now() - start));
        result
    }
}

fn device(step: Step, what: &str, errno: Errno) -> Failure {
    Failure::new(Code::DeviceError, step.name(), what)
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
                _ => (Code::DeviceError, "look into dmesg for errors of this device"),
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
    let mmc = storage.open_mmc(&plan.disk).map_err(|errno| {
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
        .filter(|b| !b.is_zero() && plan.erase_group.0 % b.0 == 0)
        .ok_or_else(|| device(Step::Claim, "a block size that is no sector", Errno::EINVAL))?;
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
        claimed
            .mmc
            .cmd(&mut flush)
            .map_err(|e| device(step, "CMD6 FLUSH_CACHE", e))?;
        if status::has_error(flush.response) {
            return Err(Failure::new(
                Code::DeviceError,
                step.name(),
                format!("CMD6 FLUSH_CACHE: {}", status::error_names(flush.response)),
            ));
        }
    }
    Ok(())
}

/// The position of `sector` inside the partition's node.
pub(super) fn inside(target: &TargetPlan, sector: Sectors) -> Bytes {
    (sector - target.partition.range.start).to_bytes()
}

/// Writes a canary at every sample position and puts them onto the medium.
pub(super) fn canaries(run: &Run<'_>, claimed: &Claimed) -> Result<()> {
    let mut buffer = DirectBuffer::new(claimed.block.to_bytes().0 as usize);
    let mut done = 0;
    for (target, block) in run.plan.targets.iter().zip(&claimed.targets) {
        for position in target.sample_blocks(claimed.block) {
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

/// Overwrites the ragged edges: a seeded pattern, then the erased value, each put onto the medium,
/// so that they read like the middle. Real writes: BLKZEROOUT may be sent as TRIM.
pub(super) fn edges(run: &Run<'_>, claimed: &Claimed) -> Result<()> {
    for pass in [Pass::Pattern, Pass::Erased] {
        for (target, block) in run.plan.targets.iter().zip(&claimed.targets) {
            for edge in target.parts.edges() {
                overwrite(run, target, block.as_ref(), edge, pass)?;
            }
        }
        flush_card(Step::Edges, run.plan, claimed)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Pass {
    Pattern,
    Erased,
}

fn overwrite(
    run: &Run<'_>,
    target: &TargetPlan,
    block: &dyn Block,
    edge: SectorRange,
    pass: Pass,
) -> Result<()> {
    let mut buffer = DirectBuffer::new(PIECE.to_bytes().0 as usize);
    for piece in pieces(edge) {
        let length = piece.length.to_bytes().0 as usize;
        match pass {
            Pass::Pattern => canary::pattern(&mut buffer[..length], run.seed, piece.start),
            Pass::Erased => buffer[..length].fill(run.plan.erased_value),
        }
        block
            .write_at(inside(target, piece.start), &buffer[..length])
            .map_err(|e| device(Step::Edges, &format!("overwriting {piece}"), e))?;
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

/// Sends one CMD35/36/38 sequence and judges every answer.
pub(super) fn erase(run: &mut Run<'_>, claimed: &Claimed, chunk: &Chunk) -> Result<Vec<Command>> {
    let start = run.storage.now();
    let mut commands = chunk.commands;
    let result = claimed.mmc.multi_cmd(&mut commands);
    let mut sent = commands.to_vec();
    if let Some(bad) = commands.iter().find(|c| status::has_error(c.response)) {
        return Err(erase_failed(
            chunk,
            format!(
                "CMD{} {:#010x} was answered with {:#010x}: {}",
                bad.index,
                bad.argument,
                bad.response,
                status::error_names(bad.response)
            ),
            result.err(),
        ));
    }
    match result {
        Ok(()) => {}
        // The host gave up waiting; the card may still be at it (SDHCI's own timer, kernels that
        // ignore cmd_timeout_ms). CMD13 tells, and reading back decides.
        Err(Errno::ETIMEDOUT) => run.warnings.push(format!(
            "the kernel stopped waiting for the erase of {} after {:.1} s; blockd waited on",
            chunk.range,
            (run.storage.now() - start).as_secs_f64()
        )),
        Err(Errno::EPERM) => {
            return Err(Failure::new(
                Code::Permission,
                Step::Erase.name(),
                "the kernel refused MMC_IOC_MULTI_CMD",
            )
            .errno(Errno::EPERM)
            .remedy(
                "CAP_SYS_RAWIO is needed, and in SELinux the ioctl 0xb301 on the disk; nothing \
                     was sent to the card",
            ))
        }
        Err(errno) => {
            return Err(erase_failed(
                chunk,
                "MMC_IOC_MULTI_CMD failed".into(),
                Some(errno),
            ))
        }
    }
    sent.push(wait_ready(run, claimed, chunk, start + chunk.limit)?);
    Ok(sent)
}

/// Polls CMD13 until the card is back in the transfer state. Kernels before 5.15.46 and 5.19 wait
/// 10 s whatever they were told, 4.14 does not wait at all.
fn wait_ready(run: &Run<'_>, claimed: &Claimed, chunk: &Chunk, limit: Duration) -> Result<Command> {
    let mut pause = Duration::from_millis(1);
    loop {
        let mut poll = Command::send_status(run.plan.rca);
        let result = claimed.mmc.cmd(&mut poll);
        let word = poll.response;
        if result.is_ok() && status::has_error(word) {
            return Err(erase_failed(
                chunk,
                format!(
                    "CMD13 after the erase says {word:#010x}: {}",
                    status::error_names(word)
                ),
                None,
            ));
        }
        if result.is_ok() && status::is_ready(word) {
            return Ok(poll);
        }
        if run.storage.now() >= limit {
            return Err(erase_failed(
                chunk,
                format!(
                    "the card is still busy after {} s (last status {word:#010x})",
                    chunk.limit.as_secs()
                ),
                result.err(),
            ));
        }
        run.storage.sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

fn erase_failed(chunk: &Chunk, what: String, errno: Option<Errno>) -> Failure {
    let mut failure = Failure::new(
        Code::DeviceError,
        Step::Erase.name(),
        format!("erasing {}: {what}", chunk.range),
    );
    failure.errno = errno;
    failure.remedy("the range must be taken for neither kept nor erased: run the reset again")
}
