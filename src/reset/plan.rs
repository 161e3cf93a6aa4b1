//! Deciding what a reset does. Pure: facts and a request in, a plan or a refusal out.

mod refuse;
#[cfg(test)]
mod tests;
mod words;

use crate::device::ext_csd::ExtCsd;
use crate::device::mmc::{Command, Reply};
use crate::error::{Code, Result};
use crate::reset::canary::spread;
use crate::reset::edges::Parts;
use crate::reset::facts::{is_user_area, Facts, Partition, Target};
use crate::reset::request::{Assurance, Marker, Method, Physical, Request, Verify};
use crate::reset::timeout;
use crate::units::{Bytes, SectorRange, Sectors};
use refuse::{check_card, check_request, check_target, erase_group, ext_csd, refuse};
use std::time::Duration;

/// CMD38 argument of a secure erase, JESD84-B51 table 12.
const SECURE_ERASE: u32 = 0x8000_0000;
/// Seeded samples per target, besides the borders.
const SAMPLES: u64 = 256;
/// One CMD35/36/38 sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What it erases: whole groups.
    pub range: SectorRange,
    /// The commands as they will be sent.
    pub commands: [Command; 3],
    /// Longest time that the card may be busy.
    pub limit: Duration,
}

/// One range and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    /// The partition.
    pub partition: Partition,
    /// What of it is erased, absolute on the disk.
    pub range: SectorRange,
    /// The same, cut at group borders.
    pub parts: Parts,
    /// The sequences for the middle; one, unless the request limits their size.
    pub chunks: Vec<Chunk>,
    /// Positions of canaries and samples, absolute, sorted; all inside the middle.
    pub samples: Vec<Sectors>,
    /// Sectors outside the range that share a group with it or touch it: they must not change.
    pub neighbours: Vec<SectorRange>,
}

/// Everything that a reset will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Kernel name of the disk.
    pub disk: String,
    /// CID PNM.
    pub card_name: String,
    /// CID in hexadecimal, empty where unknown.
    pub cid: String,
    /// Relative card address, for CMD13.
    pub rca: u16,
    /// The method.
    pub method: Method,
    /// What the card will claim.
    pub physical: Physical,
    /// What the reset will be worth.
    pub assurance: Assurance,
    /// Erase group.
    pub erase_group: Sectors,
    /// Value of an erased byte.
    pub erased_value: u8,
    /// True where the queue says "write through" although the card caches: then no fsync flushes
    /// the card, and CMD6 FLUSH_CACHE must.
    pub flush_by_switch: bool,
    /// How much is read back.
    pub verify: Verify,
    /// Where the restart marker lies.
    pub marker: Marker,
    /// Largest range of one CMD38; 0 = no limit.
    pub max_chunk: Bytes,
    /// The ranges, in the order in which they are erased.
    pub targets: Vec<TargetPlan>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// Decides. `seed` chooses the sample positions.
///
/// # Errors
/// The refusals of design: each names what is in the way and what to do.
pub fn plan(request: &Request, facts: &Facts, seed: u64) -> Result<Plan> {
    let disk = &facts.disk;
    check_request(request)?;
    let kind = disk.kind.value().map(String::as_str);
    if kind != Some("MMC") || !is_user_area(&disk.name) {
        let what = kind.map_or("has no MMC card type".to_owned(), |k| {
            format!("is of type {k}")
        });
        return Err(
            refuse(Code::NotEmmc, format!("{} {what}, not an eMMC", disk.name)).remedy(
                "this version erases eMMC only; for other storage use the kernel's blkdiscard",
            ),
        );
    }
    for target in &facts.targets {
        check_target(target, facts)?;
    }
    check_card(facts)?;
    let csd = ext_csd(&disk.ext_csd, &disk.name)?;
    if csd.sec_count() < disk.capacity {
        return Err(refuse(
            Code::DeviceError,
            format!(
                "EXT_CSD of {} says {}, the kernel says {}",
                disk.name,
                csd.sec_count(),
                disk.capacity
            ),
        )
        .remedy("the register cannot be trusted; do not erase this card by commands"));
    }
    if !csd.has_secure_erase() {
        return Err(refuse(
            Code::Unsupported,
            format!(
                "the card {} does not offer secure erase (SEC_FEATURE_SUPPORT bit 0)",
                disk.card_name.value().map_or("?", |n| n)
            ),
        )
        .remedy("this version has no weaker method and never downgrades silently"));
    }
    let group = erase_group(facts, csd)?;
    let rca = *disk.rca.value().ok_or_else(|| {
        refuse(
            Code::DeviceError,
            format!("the relative address of {} is unknown", disk.name),
        )
        .remedy(format!(
            "let this domain read /sys/block/{}/device/rca",
            disk.name
        ))
    })?;

    let mut targets = Vec::new();
    for target in &facts.targets {
        targets.push(plan_target(request, facts, csd, group, target, seed)?);
    }
    // The keys first: without them the rest cannot be decrypted, whatever happens next.
    targets.sort_by_key(|t| t.partition.name != "metadata");

    let ragged = targets.iter().any(|t| t.parts.edges().next().is_some());
    let no_middle = targets.iter().any(|t| t.chunks.is_empty());
    let assurance = if ragged {
        Assurance::Clear
    } else {
        Assurance::Purge
    };
    if assurance < request.min_assurance {
        return Err(refuse(
            Code::AssuranceUnreachable,
            format!(
                "{} can be reached, {} was asked for: the range does not start and end on erase \
                 groups of {}, and its edges can only be overwritten",
                assurance,
                request.min_assurance,
                group.to_bytes()
            ),
        )
        .remedy("accept clear, or move the partition's borders onto erase groups"));
    }
    Ok(Plan {
        disk: disk.name.clone(),
        card_name: disk.card_name.value().cloned().unwrap_or_default(),
        cid: disk.cid.value().cloned().unwrap_or_default(),
        rca,
        method: Method::SecureErase,
        physical: if no_middle {
            Physical::None
        } else {
            Physical::SecureErase
        },
        assurance,
        erase_group: group,
        erased_value: csd.erased_value(),
        flush_by_switch: csd.cache_on()
            && disk.write_cache.value().map_or(true, |w| w != "write back"),
        verify: request.verify,
        marker: request.marker,
        max_chunk: request.max_chunk,
        targets,
        notes: notes(csd, ragged),
    })
}

fn plan_target(
    request: &Request,
    facts: &Facts,
    csd: &ExtCsd,
    group: Sectors,
    target: &Target,
    seed: u64,
) -> Result<TargetPlan> {
    let partition = &target.partition;
    let range = range(request, partition)?;
    let parts = Parts::cut(range, group);
    let mut chunks = Vec::new();
    if !parts.middle.is_empty() {
        chunks.push(chunk(parts.middle, group, csd)?);
    }
    Ok(TargetPlan {
        partition: partition.clone(),
        range,
        samples: samples(parts.middle, group, seed),
        neighbours: neighbours(range, group, facts.disk.capacity),
        parts,
        chunks,
    })
}

fn range(request: &Request, partition: &Partition) -> Result<SectorRange> {
    let whole = partition.range;
    let wrong = |what: String| {
        refuse(Code::OutOfRange, what).remedy(format!(
            "{} has {} bytes; offset and length are multiples of 512 inside it",
            partition.name,
            whole.length.to_bytes().0
        ))
    };
    let Some(offset) = request.offset.to_sectors() else {
        return Err(wrong(format!(
            "the offset {} is no multiple of 512",
            request.offset.0
        )));
    };
    if offset >= whole.length {
        return Err(wrong(format!(
            "the offset {} lies behind the end",
            request.offset.0
        )));
    }
    let length = match request.length {
        None => whole.length - offset,
        Some(bytes) => match bytes.to_sectors() {
            None => {
                return Err(wrong(format!(
                    "the length {} is no multiple of 512",
                    bytes.0
                )))
            }
            Some(Sectors(0)) => return Err(wrong("the length is 0".to_owned())),
            Some(length) => length,
        },
    };
    match offset.checked_add(length) {
        Some(end) if end <= whole.length => Ok(SectorRange {
            start: whole.start + offset,
            length,
        }),
        _ => Err(wrong(format!(
            "offset {} and length {} reach behind the end",
            request.offset.0,
            length.to_bytes().0
        ))),
    }
}

fn chunk(range: SectorRange, group: Sectors, csd: &ExtCsd) -> Result<Chunk> {
    let addressing = csd.addressing();
    let last = range.end() - Sectors(1);
    let (Some(first), Some(last)) = (addressing.argument(range.start), addressing.argument(last))
    else {
        return Err(refuse(
            Code::OutOfRange,
            format!("the range {range} cannot be named to the card in 32 bits"),
        ));
    };
    let limit = timeout::secure_erase(
        csd.erase_timeout_mult(),
        csd.sec_erase_mult(),
        range.length.0 / group.0,
    );
    let mut erase = Command::new(Command::ERASE, SECURE_ERASE, Reply::R1b);
    erase.timeout = Some(limit);
    Ok(Chunk {
        range,
        commands: [
            Command::new(Command::ERASE_GROUP_START, first, Reply::R1),
            Command::new(Command::ERASE_GROUP_END, last, Reply::R1),
            erase,
        ],
        limit,
    })
}

/// Up to [`SAMPLES`] seeded positions, and the first and last sector of the first and last group.
fn samples(middle: SectorRange, group: Sectors, seed: u64) -> Vec<Sectors> {
    if middle.is_empty() {
        return Vec::new();
    }
    let last = middle.end() - Sectors(1);
    let mut positions = vec![
        middle.start,
        middle.start + group - Sectors(1),
        last.round_down(group),
        last,
    ];
    // One draw in each of equal parts: evenly spread, and still unknown to the card.
    let parts = SAMPLES.min(middle.length.0);
    let mut state = seed ^ middle.start.0;
    for part in 0..parts {
        let from = middle.length.0 * part / parts;
        let to = middle.length.0 * (part + 1) / parts;
        state = spread(state);
        positions.push(middle.start + Sectors(from + state % (to - from)));
    }
    positions.sort();
    positions.dedup();
    positions
}

/// On each side: the rest of the group that the range shares, at least one sector, at most 1 MiB.
fn neighbours(range: SectorRange, group: Sectors, capacity: Sectors) -> Vec<SectorRange> {
    const MOST: u64 = 2048;
    let before = range
        .start
        .round_down(group)
        .0
        .min(range.start.0.saturating_sub(1));
    let before = before.max(range.start.0.saturating_sub(MOST));
    let after = range.end().round_up(group).map_or(u64::MAX, |s| s.0);
    let after = after.max(range.end().0.saturating_add(1));
    let after = after
        .min(range.end().0.saturating_add(MOST))
        .min(capacity.0);
    [
        SectorRange::between(Sectors(before), range.start),
        SectorRange::between(range.end(), Sectors(after)),
    ]
    .into_iter()
    .filter(|n| !n.is_empty())
    .collect()
}

fn notes(csd: &ExtCsd, ragged: bool) -> Vec<String> {
    let mut notes = vec![
        "no restart marker: a reset that is cut by a power loss is not resumed".to_owned(),
        "purge and clear are the words of NIST SP 800-88 for what the card claims; its inside \
         cannot be seen"
            .to_owned(),
    ];
    if ragged {
        notes.push(
            "the ragged edges are overwritten twice; older copies inside the card are not reached"
                .to_owned(),
        );
    }
    notes.push(if csd.has_sanitize() {
        "the card offers sanitize, which this version does not send: pages unmapped by earlier \
         discards are not reached"
            .to_owned()
    } else {
        "the card has no sanitize: pages unmapped by earlier discards are not reached".to_owned()
    });
    notes
}

/// Probability that `samples` evenly spread positions hit a skipped group where the card skips
/// one group in a hundred.
pub fn detection_probability(samples: usize) -> f64 {
    1.0 - 0.99f64.powf(samples as f64)
}

impl TargetPlan {
    /// The first sectors of the blocks (of `block` sectors) that the samples lie in, each once.
    /// The middle is made of erase groups, so every such block lies inside it.
    pub fn sample_blocks(&self, block: Sectors) -> Vec<Sectors> {
        let mut blocks: Vec<Sectors> = self.samples.iter().map(|s| s.round_down(block)).collect();
        blocks.dedup();
        blocks
    }
}
