//! Reading back. The only ground for saying "erased": an ioctl that returned 0 is none (kernels
//! since 5.15.138 overwrite CMD38's answer, and a card may skip groups quietly).

use crate::device::{Block, DirectBuffer};
use crate::error::{Code, Failure, Result};
use crate::reset::act::{inside, pieces, Claimed, Run, PIECE};
use crate::reset::canary;
use crate::reset::plan::TargetPlan;
use crate::reset::request::Verify;
use crate::reset::step::Step;
use crate::units::{SectorRange, Sectors, SECTOR_SIZE};
use nix::errno::Errno;

/// What reading one target back found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub samples: u32,
    pub canaries_found: u32,
    pub samples_wrong: u32,
    pub neighbours: u32,
    pub neighbours_changed: u32,
    /// The first position that is wrong, and how.
    pub first: Option<String>,
}

impl Findings {
    fn wrong(&mut self, position: Sectors, what: &str) {
        if self.first.is_none() {
            self.first = Some(format!("sector {} {what}", position.0));
        }
    }
}

fn read(
    block: &dyn Block,
    offset: crate::units::Bytes,
    buffer: &mut [u8],
    at: Sectors,
) -> Result<()> {
    block.read_at(offset, buffer).map_err(|errno: Errno| {
        Failure::new(
            Code::NotVerified,
            Step::Verify.name(),
            format!("cannot read sector {} back", at.0),
        )
        .errno(errno)
        .remedy("nothing can be said about this range; run the reset again")
    })
}

/// The digest of every sector around the target, to compare later.
pub(super) fn neighbours(target: &TargetPlan, disk: &dyn Block) -> Result<Vec<u64>> {
    let mut digests = Vec::new();
    let mut buffer = DirectBuffer::new(PIECE.to_bytes().0 as usize);
    for range in &target.neighbours {
        for piece in pieces(*range) {
            let length = piece.length.to_bytes().0 as usize;
            read(
                disk,
                piece.start.to_bytes(),
                &mut buffer[..length],
                piece.start,
            )?;
            digests.extend(
                buffer[..length]
                    .chunks(SECTOR_SIZE as usize)
                    .map(canary::digest),
            );
        }
    }
    Ok(digests)
}

/// Reads a target back by direct I/O: samples or everything, every edge, every neighbour.
pub(super) fn target(
    run: &Run<'_>,
    claimed: &Claimed,
    index: usize,
    before: &[u64],
) -> Result<Findings> {
    let target = &run.plan.targets[index];
    let block = claimed.targets[index].as_ref();
    let mut findings = Findings::default();
    samples(run, claimed, target, block, &mut findings)?;
    for edge in target.parts.edges() {
        whole(run, target, block, edge, "of an edge", &mut findings)?;
    }
    if run.plan.verify == Verify::Full {
        whole(run, target, block, target.parts.middle, "", &mut findings)?;
    }
    let after = neighbours(target, claimed.disk.as_ref())?;
    findings.neighbours = after.len() as u32;
    let changed = before.iter().zip(&after).position(|(b, a)| b != a);
    findings.neighbours_changed = before.iter().zip(&after).filter(|(b, a)| b != a).count() as u32;
    if let Some(at) = changed {
        let position = nth(&target.neighbours, at as u64);
        findings.wrong(position, "outside the range has changed");
    }
    Ok(findings)
}

/// The `n`-th sector of adjacent lists of ranges.
fn nth(ranges: &[SectorRange], mut n: u64) -> Sectors {
    for range in ranges {
        if n < range.length.0 {
            return Sectors(range.start.0 + n);
        }
        n -= range.length.0;
    }
    Sectors(u64::MAX)
}

fn samples(
    run: &Run<'_>,
    claimed: &Claimed,
    target: &TargetPlan,
    block: &dyn Block,
    findings: &mut Findings,
) -> Result<()> {
    let mut buffer = DirectBuffer::new(claimed.block.to_bytes().0 as usize);
    for position in target.sample_blocks(claimed.block) {
        read(block, inside(target, position), &mut buffer, position)?;
        findings.samples += 1;
        if buffer.iter().all(|byte| *byte == run.plan.erased_value) {
            continue;
        }
        if canary::is_canary(&buffer, run.seed, position) {
            findings.canaries_found += 1;
            findings.wrong(position, "still holds what was written before the erase");
        } else {
            findings.samples_wrong += 1;
            findings.wrong(position, &not_erased(&buffer, run.plan.erased_value));
        }
    }
    Ok(())
}

fn whole(
    run: &Run<'_>,
    target: &TargetPlan,
    block: &dyn Block,
    range: SectorRange,
    part: &str,
    findings: &mut Findings,
) -> Result<()> {
    let mut buffer = DirectBuffer::new(PIECE.to_bytes().0 as usize);
    for piece in pieces(range) {
        run.check_cancel(Step::Verify, "cancelled while the range was read back")?;
        let length = piece.length.to_bytes().0 as usize;
        read(
            block,
            inside(target, piece.start),
            &mut buffer[..length],
            piece.start,
        )?;
        let wrong = buffer[..length]
            .iter()
            .position(|byte| *byte != run.plan.erased_value);
        if let Some(at) = wrong {
            findings.samples_wrong += 1;
            let sector = at as u64 / SECTOR_SIZE;
            let from = (sector * SECTOR_SIZE) as usize;
            let what = not_erased(
                &buffer[from..from + SECTOR_SIZE as usize],
                run.plan.erased_value,
            );
            findings.wrong(piece.start + Sectors(sector), &format!("{part} {what}"));
        }
    }
    Ok(())
}

fn not_erased(block: &[u8], erased: u8) -> String {
    if block.iter().all(|byte| *byte == block[0]) {
        format!(
            "reads {:#04x} throughout, EXT_CSD says that erased bytes read {erased:#04x}",
            block[0]
        )
    } else {
        "holds data that is neither erased nor ours".to_owned()
    }
}
