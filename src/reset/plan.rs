//! Deciding what a reset does. Pure: facts and a request in, a plan or a refusal out.

mod acts;
pub mod guard;
mod marker;
mod method;
pub mod model;
pub mod quirks;
mod refuse;
mod spots;
#[cfg(test)]
mod tests;
mod words;

pub use method::{Choice, Way};

use crate::device::ext_csd::{Addressing, ExtCsd};
use crate::device::mmc::Command;
use crate::error::{Code, Result};
use crate::reset::edges::Parts;
use crate::reset::facts::{Facts, Partition, Target};
use crate::reset::marker::Found;
use crate::reset::request::{Assurance, Marker, Method, Physical, Request, Verify};
use crate::reset::timeout;
use crate::units::{Bytes, SectorRange, Sectors};
use acts::{acts, split};
use quirks::Quirks;
use refuse::{
    capacity, check_disk, check_request, check_target, check_update, erase_group, ext_csd,
    identity, rca, refuse,
};
use std::time::Duration;

/// One MMC_IOC_MULTI_CMD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What it erases.
    pub range: SectorRange,
    /// The commands as they will be sent.
    pub commands: Vec<Command>,
    /// Longest time that the card may be busy with all of them.
    pub limit: Duration,
}

/// One thing that is done to a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// CMD35/36/38 in one ioctl.
    Commands(Chunk),
    /// BLKSECDISCARD or BLKDISCARD.
    Discard {
        /// What is discarded.
        range: SectorRange,
        /// Whether securely.
        secure: bool,
    },
    /// Direct writes: a seeded pattern, then the erased value.
    Overwrite(SectorRange),
}

impl Act {
    /// What it works on.
    pub fn range(&self) -> SectorRange {
        match self {
            Act::Commands(chunk) => chunk.range,
            Act::Discard { range, .. } | Act::Overwrite(range) => *range,
        }
    }
}

/// One range and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    /// The partition.
    pub partition: Partition,
    /// What of it is erased, absolute on the disk.
    pub range: SectorRange,
    /// The same, cut at group borders where the method works by groups.
    pub parts: Parts,
    /// What is done to the ragged ends.
    pub edges: Vec<Act>,
    /// What is done to the middle: one command sequence, unless there is a reason to split it.
    pub middle: Vec<Act>,
    /// Positions of canaries and samples, absolute, sorted; all inside the middle.
    pub samples: Vec<Sectors>,
    /// Sectors outside the range that share a group with it or touch it: they must not change.
    pub neighbours: Vec<SectorRange>,
    /// CMD38s of the middle and their time by the model; `None` where there are none.
    pub cost: Option<model::Cost>,
    /// The same for the kernel's BLKSECDISCARD of the middle, where its limit is known.
    pub kernel_cost: Option<model::Cost>,
}

/// SANITIZE over the whole card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sanitize {
    /// CMD6 as it will be sent.
    pub command: Command,
    /// Longest time that the card may be busy.
    pub limit: Duration,
}

/// The restart marker of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerPlan {
    /// Where it lies.
    pub place: Marker,
    /// Kernel name of misc, with [`Marker::Misc`].
    pub node: String,
    /// What is there now.
    pub found: Option<Found>,
    /// Which attempt this run is, counted from 1.
    pub attempt: u32,
    /// What the run erases, in the marker's words; empty without one.
    pub targets: Vec<String>,
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
    /// Relative card address, for CMD13; `None` where the disk is no eMMC.
    pub rca: Option<u16>,
    /// How.
    pub choice: Choice,
    /// What the card will claim.
    pub physical: Physical,
    /// What the reset will be worth.
    pub assurance: Assurance,
    /// Erase group; one sector where the disk is no eMMC.
    pub erase_group: Sectors,
    /// Value of an erased byte.
    pub erased_value: u8,
    /// True where the queue says "write through" although the card caches: then no fsync flushes
    /// the card, and CMD6 FLUSH_CACHE must.
    pub flush_by_switch: bool,
    /// How much is read back.
    pub verify: Verify,
    /// The restart marker.
    pub marker: MarkerPlan,
    /// Largest range of one CMD38; 0 = no limit.
    pub max_chunk: Bytes,
    /// The ranges, in the order in which they are erased.
    pub targets: Vec<TargetPlan>,
    /// What follows the last range, where the card has it.
    pub sanitize: Option<Sanitize>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// Decides. `seed` chooses the sample positions.
///
/// # Errors
/// The refusals: each names what is in the way and what to do.
pub fn plan(request: &Request, facts: &Facts, seed: u64) -> Result<Plan> {
    let disk = &facts.disk;
    check_request(request)?;
    let is_emmc = check_disk(request, disk)?;
    for target in &facts.targets {
        check_target(target, facts)?;
    }
    check_update(request, facts)?;
    let marker = marker::check(request, facts)?;
    let card = is_emmc.then(|| card(request, facts)).transpose()?;
    let mut choice = match &card {
        Some(card) => method::choose(
            request.method,
            card.csd,
            card.quirks,
            request.ignore_quirks,
            &card.name,
        )?,
        None => method::choose_other(request.method, &disk.name)?,
    };
    let mut notes = std::mem::take(&mut choice.notes);
    let group = card.as_ref().map_or(Sectors(1), |card| card.group);
    let split = card
        .as_ref()
        .map(|card| split(request, facts, card, &choice, &mut notes))
        .transpose()?
        .flatten();

    let mut targets = Vec::new();
    for target in &facts.targets {
        targets.push(plan_target(
            request,
            facts,
            card.as_ref(),
            &choice,
            split,
            target,
            seed,
        )?);
    }
    // What this run itself writes is no neighbour that must not change.
    let written: Vec<SectorRange> = targets
        .iter()
        .map(|t| t.range)
        .chain(misc_of(&marker, facts))
        .collect();
    let busy: Vec<SectorRange> = facts.busy.iter().map(|(p, _)| p.range).collect();
    for target in &mut targets {
        target.neighbours =
            spots::without(&target.neighbours, &[written.as_slice(), &busy].concat());
    }
    for (partition, holder) in &facts.busy {
        notes.push(format!(
            "{} ({}) beside the range is {holder}: its sectors are not compared, they may change at \
             any time",
            partition.name, partition.node
        ));
    }
    // The keys first: without them the rest cannot be decrypted, whatever happens next.
    targets.sort_by_key(|t| t.partition.name != "metadata");

    let has_edges = targets.iter().any(|t| !t.edges.is_empty());
    // The weakest range decides: one without a whole group is all edge.
    let physical = targets
        .iter()
        .map(|t| choice.physical(!t.edges.is_empty(), !t.middle.is_empty()))
        .min()
        .unwrap_or(Physical::None);
    let assurance = method::assurance(physical);
    refuse::check_assurance(request, assurance, &choice, has_edges, group)?;
    words::add_notes(&mut notes, &choice, &marker, has_edges, card.is_some());
    Ok(Plan {
        disk: disk.name.clone(),
        card_name: disk.card_name.value().cloned().unwrap_or_default(),
        cid: disk.cid.value().cloned().unwrap_or_default(),
        rca: card.as_ref().map(|card| card.rca),
        physical,
        assurance,
        erase_group: group,
        erased_value: card.as_ref().map_or(0, |card| card.csd.erased_value()),
        flush_by_switch: card.as_ref().is_some_and(|card| {
            card.csd.cache_on() && disk.write_cache.value().map_or(true, |w| w != "write back")
        }),
        // A discard promises nothing: only reading all of it says what it did.
        verify: match choice.method {
            Method::Discard | Method::SecureDiscard => Verify::Full,
            _ => request.verify,
        },
        marker,
        max_chunk: request.max_chunk,
        targets,
        sanitize: choice.sanitize.then(sanitize),
        choice,
        notes,
    })
}

/// Where misc lies, if the marker is written there.
fn misc_of(marker: &MarkerPlan, facts: &Facts) -> Option<SectorRange> {
    let misc = facts.misc.partition.as_ref()?;
    (marker.place == Marker::Misc).then_some(misc.range)
}

/// What the planner needs of an eMMC.
struct Card<'a> {
    name: String,
    csd: &'a ExtCsd,
    quirks: Quirks,
    group: Sectors,
    rca: u16,
    /// `None` where it cannot be told: then no range can be named to the card.
    addressing: Option<Addressing>,
}

fn card<'a>(request: &Request, facts: &'a Facts) -> Result<Card<'a>> {
    let (manfid, name) = identity(request, &facts.disk)?;
    let csd = ext_csd(&facts.disk.ext_csd, &facts.disk.name)?;
    capacity(csd, &facts.disk)?;
    Ok(Card {
        csd,
        quirks: Quirks::of(manfid, &name),
        name,
        group: erase_group(facts, csd)?,
        rca: rca(&facts.disk)?,
        addressing: facts.disk.addressing(),
    })
}

fn sanitize() -> Sanitize {
    let mut command = Command::switch(crate::device::ext_csd::field::SANITIZE_START, 1);
    // No register says how long; the kernel would give up after 240 s and interrupt it.
    command.timeout = Some(timeout::CAP);
    Sanitize {
        command,
        limit: timeout::CAP,
    }
}

fn plan_target(
    request: &Request,
    facts: &Facts,
    card: Option<&Card<'_>>,
    choice: &Choice,
    split: Option<u64>,
    target: &Target,
    seed: u64,
) -> Result<TargetPlan> {
    let partition = &target.partition;
    let range = range(request, partition)?;
    let group = card.map_or(Sectors(1), |card| card.group);
    let parts = if choice.grouped {
        Parts::cut(range, group)
    } else {
        Parts::whole(range)
    };
    let mut edges = Vec::new();
    for edge in parts.edges() {
        edges.extend(acts(edge, choice.edges, card, None)?);
    }
    let middle = if parts.middle.is_empty() {
        Vec::new()
    } else {
        acts(parts.middle, choice.middle, card, split)?
    };
    let mut samples = spots::samples(parts.middle, group, seed);
    for act in &middle {
        samples.extend(spots::borders(act.range()));
    }
    samples.sort();
    samples.dedup();
    let groups = parts.middle.length.0 / group.0;
    let commands = middle
        .iter()
        .filter_map(|act| match act {
            Act::Commands(chunk) => Some(&chunk.commands),
            _ => None,
        })
        .flatten()
        .filter(|command| command.index == Command::ERASE)
        .count() as u64;
    Ok(TargetPlan {
        cost: (commands != 0).then(|| model::Cost::new(commands, groups)),
        kernel_cost: card.and_then(|_| model::kernel(&facts.disk, parts.middle, group)),
        partition: partition.clone(),
        range,
        samples,
        neighbours: spots::neighbours(range, group, facts.disk.capacity),
        parts,
        edges,
        middle,
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

/// Probability that `samples` evenly spread positions hit a skipped group where the card skips
/// one group in a hundred.
pub fn detection_probability(samples: usize) -> f64 {
    1.0 - 0.99f64.powf(samples as f64)
}

impl TargetPlan {
    /// The first sectors of the blocks (of `block` sectors) that the samples lie in, each once, and
    /// only those that lie inside the middle.
    pub fn sample_blocks(&self, block: Sectors) -> Vec<Sectors> {
        let middle = self.parts.middle;
        let mut blocks: Vec<Sectors> = self.samples.iter().map(|s| s.round_down(block)).collect();
        blocks.retain(|start| *start >= middle.start && *start + block <= middle.end());
        blocks.dedup();
        blocks
    }

    /// Every act, in its order.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.edges.iter().chain(&self.middle)
    }

    /// The command sequences, in their order.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.acts().filter_map(|act| match act {
            Act::Commands(chunk) => Some(chunk),
            _ => None,
        })
    }

    /// Bytes that are overwritten.
    pub fn overwritten(&self) -> Bytes {
        self.acts()
            .filter_map(|act| match act {
                Act::Overwrite(range) => Some(range.length.to_bytes()),
                _ => None,
            })
            .fold(Bytes(0), |sum, bytes| sum + bytes)
    }
}
