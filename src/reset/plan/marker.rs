//! Where the restart marker goes, what it says, and which attempt this is.

use super::refuse::refuse;
use super::MarkerPlan;
use crate::error::{Code, Result};
use crate::fact::Fact;
use crate::reset::facts::{Facts, Target};
use crate::reset::marker::{self, covers, wipe_option, with_ours, Found, MAX_ATTEMPTS, SECTOR};
use crate::reset::request::{Marker, Request};
use crate::units::{Bytes, Sectors};
use nix::errno::Errno;

/// Letters of a token: those of a UUID.
const TOKEN: usize = 36;

/// Where the restart marker goes, and which attempt this is.
pub(super) fn check(request: &Request, facts: &Facts) -> Result<MarkerPlan> {
    let node = match (request.marker, &facts.misc.partition) {
        (Marker::Misc, Some(partition)) => partition.node.clone(),
        (Marker::Misc, None) => return Err(refuse(
            Code::InvalidRequest,
            match &facts.misc.marker {
                Fact::Unknown { reason, .. } => {
                    format!("no place for the restart marker: {reason}")
                }
                Fact::Known { .. } => "no place for the restart marker".to_owned(),
            },
        )
        .remedy(
            "say --marker FILE, or --marker none and keep the power on: a reset that is cut is \
                 then not resumed",
        )),
        _ => String::new(),
    };
    if let (Marker::Misc, Some(partition)) = (request.marker, &facts.misc.partition) {
        if partition.range.length < Sectors(4) {
            return Err(refuse(
                Code::InvalidRequest,
                format!(
                    "misc has {}, a bootloader message needs 4",
                    partition.range.length
                ),
            )
            .remedy("say --marker FILE or --marker none"));
        }
    }
    let found = match (request.marker, &facts.marker) {
        (Marker::None, _) => None,
        (_, Fact::Known { value, .. }) => Some(value.clone()),
        (_, Fact::Unknown { reason, errno }) => {
            let denied = matches!(errno, Some(Errno::EPERM | Errno::EACCES));
            let code = if denied {
                Code::Permission
            } else {
                Code::DeviceFailed
            };
            let mut failure = refuse(code, format!("the restart marker cannot be read: {reason}"));
            failure.errno = *errno;
            return Err(failure.remedy("run as root, in a domain that may open misc"));
        }
    };
    let targets = targets(request, facts)?;
    let attempt = match &found {
        Some(Found::Ours {
            token,
            attempts,
            targets: pending,
        }) => next_attempt(token, *attempts, pending, &targets)?,
        Some(Found::Foreign { command, .. }) => {
            return Err(refuse(
                Code::ForeignMarker,
                format!("the bootloader message holds another command, `{command}`"),
            )
            .remedy("it is neither overwritten nor cleared: let what it is for be done first"))
        }
        Some(Found::Empty | Found::ForeignWipe { .. }) | None => 1,
    };
    Ok(MarkerPlan {
        place: request.marker,
        node,
        found,
        attempt,
        targets,
    })
}

/// One more attempt at a reset that was cut, if this one does all that is left of it.
fn next_attempt(token: &str, attempts: u32, pending: &[String], targets: &[String]) -> Result<u32> {
    let left = pending.join(" ");
    if !covers(targets, pending) {
        return Err(refuse(
            Code::InvalidRequest,
            format!(
                "a reset of {left} was begun and is not finished (run {token}, attempt {attempts}); \
                 this one would forget it"
            ),
        )
        .remedy(format!(
            "run `blockctl reset run` with {left} among the names; `blockctl reset finish {token}` \
             after formatting, or to give it up"
        )));
    }
    if attempts >= MAX_ATTEMPTS {
        return Err(refuse(
            Code::NotVerified,
            format!("the reset of {left} is incomplete after {attempts} attempts"),
        )
        .remedy(format!(
            "do not pass this device on: its card cannot be erased. `blockctl reset finish {token}` \
             gives up"
        )));
    }
    Ok(attempts + 1)
}

/// What is erased, in the marker's words.
fn targets(request: &Request, facts: &Facts) -> Result<Vec<String>> {
    if request.marker == Marker::None {
        return Ok(Vec::new());
    }
    let is_part = request.offset != Bytes(0) || request.length.is_some();
    let mut targets = Vec::new();
    for Target { partition, .. } in &facts.targets {
        let name = &partition.name;
        let rest = partition
            .range
            .length
            .to_bytes()
            .0
            .saturating_sub(request.offset.0);
        let length = request.length.unwrap_or(Bytes(rest));
        let part = is_part.then_some((request.offset, length));
        let target = marker::target(name, part).ok_or_else(|| {
            refuse(
                Code::InvalidRequest,
                format!("the restart marker has no way to write the name `{name}`"),
            )
            .remedy("say --marker none")
        })?;
        targets.push(target);
    }
    // The same reset is the same list, in whatever order it was asked for.
    targets.sort();
    if request.marker == Marker::Misc && wipe_option(&targets).is_none() {
        return Err(refuse(
            Code::InvalidRequest,
            format!(
                "recovery has no option that erases {} and nothing else: a marker in misc would make \
                 it wipe other data after a power loss",
                targets.join(" ")
            ),
        )
        .remedy("say --marker FILE or --marker none; or reset userdata as well, as a whole"));
    }
    // The longest token and count that there can be.
    let room = with_ours(&[0; SECTOR], &"0".repeat(TOKEN), MAX_ATTEMPTS, &targets);
    if room.is_none() {
        return Err(refuse(
            Code::InvalidRequest,
            format!(
                "the restart marker has no room for the names of {} partitions",
                targets.len()
            ),
        )
        .remedy("reset fewer partitions at a time, or say --marker none"));
    }
    Ok(targets)
}
