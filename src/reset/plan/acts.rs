//! A range and a way to erase it, made into acts: how large each is, which commands, how long.

use super::quirks::{inand_kind, INAND_CMD38_ARG};
use super::refuse::refuse;
use super::{Act, Card, Choice, Chunk, Way};
use crate::device::mmc::{Command, Reply};
use crate::error::{Code, Result};
use crate::reset::facts::Facts;
use crate::reset::request::Request;
use crate::reset::timeout;
use crate::units::{Bytes, SectorRange, Sectors};
use std::time::Duration;

/// Most command sequences of one range: a plan is held in memory, and every sequence costs a command
/// of the card's.
const MOST_SEQUENCES: u64 = 65_536;

/// The largest number of groups in one command sequence, where there is a reason for one.
pub(super) fn split(
    request: &Request,
    facts: &Facts,
    card: &Card<'_>,
    choice: &Choice,
    notes: &mut Vec<String>,
) -> Result<Option<u64>> {
    if request.max_chunk != Bytes(0) {
        let groups = request.max_chunk.0 / card.group.to_bytes().0;
        if groups == 0 {
            return Err(refuse(
                Code::InvalidRequest,
                format!(
                    "a chunk of {} is smaller than an erase group",
                    request.max_chunk
                ),
            )
            .remedy(format!(
                "use at least {}, or 0 for one command",
                card.group.to_bytes()
            )));
        }
        return Ok(Some(groups));
    }
    let (Some(patience), Way::Commands(arguments)) = (facts.hung_task, choice.middle) else {
        return Ok(None);
    };
    // A process that waits for the disk longer than this makes the kernel panic in mid-erase.
    let per_group: Duration = arguments
        .iter()
        .map(|argument| timeout::specified(card.csd, *argument, 1))
        .sum();
    let groups = (patience / 2).as_millis() / per_group.as_millis().max(1);
    let groups = u64::try_from(groups).unwrap_or(u64::MAX).max(1);
    notes.push(format!(
        "kernel.hung_task_panic is on with {} s: each command is kept to {groups} groups, half of \
         that by the card's own time-outs",
        patience.as_secs()
    ));
    Ok(Some(groups))
}

/// What is done to `range`, in pieces of at most `split` groups.
pub(super) fn acts(
    range: SectorRange,
    way: Way,
    card: Option<&Card<'_>>,
    split: Option<u64>,
) -> Result<Vec<Act>> {
    match (way, card) {
        (Way::Commands(arguments), Some(card)) => {
            let most = split.map_or(range.length, |groups| {
                Sectors(groups.saturating_mul(card.group.0))
            });
            check_count(range, most)?;
            // One ioctl for each pass of a secure trim: where the kernel stops waiting for the first,
            // it would not send the second, and nothing would show that.
            pieces(range, most)
                .flat_map(|piece| arguments.iter().map(move |argument| (piece, *argument)))
                .map(|(piece, argument)| chunk(piece, argument, card).map(Act::Commands))
                .collect()
        }
        (Way::Discard(secure), _) => Ok(vec![Act::Discard { range, secure }]),
        _ => Ok(vec![Act::Overwrite(range)]),
    }
}

fn check_count(range: SectorRange, most: Sectors) -> Result<()> {
    let count = range.length.0.div_ceil(most.0.max(1));
    if count <= MOST_SEQUENCES {
        return Ok(());
    }
    let least = Sectors(range.length.0.div_ceil(MOST_SEQUENCES));
    Err(refuse(
        Code::InvalidRequest,
        format!("{range} in chunks of {} are {count} command sequences", most.to_bytes()),
    )
    .remedy(format!(
        "at most {MOST_SEQUENCES} are sent: use --max-chunk {} or more, or 0 for one command; where \
         kernel.hung_task_panic asks for the chunks, raise kernel.hung_task_timeout_secs",
        least.to_bytes().0
    )))
}

/// `range` in pieces of at most `most`.
fn pieces(range: SectorRange, most: Sectors) -> impl Iterator<Item = SectorRange> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = Sectors(at.0.saturating_add(most.0)).min(range.end());
        let piece = SectorRange::between(at, end);
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}

fn chunk(range: SectorRange, argument: u32, card: &Card<'_>) -> Result<Chunk> {
    // Guessed wrongly, the command would erase another part of the card.
    let addressing = card.addressing.ok_or_else(|| {
        refuse(
            Code::Unsupported,
            format!(
                "it cannot be told whether {} counts in bytes or in sectors: it has at most 2 GiB, \
                 and C_SIZE of its CSD is that of larger cards or unknown",
                card.name
            ),
        )
        .remedy("use --method overwrite: it names no address to the card")
    })?;
    let last = range.end() - Sectors(1);
    let (Some(first), Some(last)) = (addressing.argument(range.start), addressing.argument(last))
    else {
        return Err(refuse(
            Code::OutOfRange,
            format!("the range {range} cannot be named to the card in 32 bits"),
        ));
    };
    // Every group that the range touches, whole or not.
    let groups = last_group(range, card.group) - range.start.0 / card.group.0 + 1;
    let limit = timeout::limit(card.csd, argument, groups);
    let mut commands = Vec::new();
    if card.quirks.inand {
        commands.push(Command::switch(INAND_CMD38_ARG, inand_kind(argument)));
    }
    commands.push(Command::new(Command::ERASE_GROUP_START, first, Reply::R1));
    commands.push(Command::new(Command::ERASE_GROUP_END, last, Reply::R1));
    let mut erase = Command::new(Command::ERASE, argument, Reply::R1b);
    erase.timeout = Some(limit);
    commands.push(erase);
    Ok(Chunk {
        range,
        commands,
        limit,
    })
}

fn last_group(range: SectorRange, group: Sectors) -> u64 {
    (range.end().0 - 1) / group.0
}
