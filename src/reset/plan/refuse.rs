//! What a plan refuses, each with its reason and what to do.

use crate::device::ext_csd::ExtCsd;
use crate::error::{Code, Failure, Result};
use crate::fact::Fact;
use crate::reset::facts::{is_user_area, Disk, Facts, Target, ALLOW_LISTS};
use crate::reset::marker::Merge;
use crate::reset::plan::Choice;
use crate::reset::request::{Assurance, Marker, Request};
use crate::reset::step::Step;
use crate::units::{Bytes, Sectors, SECTOR_SIZE};
use nix::errno::Errno;

/// Names that no list may free: they hold what a device cannot get back.
const PROTECTED: [&str; 19] = [
    "frp",
    "persist",
    "persistent",
    "misc",
    "super",
    "modem",
    "modemst1",
    "modemst2",
    "fsg",
    "fsc",
    "efs",
    "nvram",
    "nvdata",
    "nvcfg",
    "protect1",
    "protect2",
    "proinfo",
    "keystore",
    "sec_efs",
];

pub(super) fn refuse(code: Code, message: impl Into<String>) -> Failure {
    Failure::new(code, Step::Plan.name(), message)
}

pub(super) fn check_request(request: &Request) -> Result<()> {
    let single = request.partitions.len() == 1;
    if !single && (request.offset != Bytes(0) || request.length.is_some()) {
        return Err(refuse(
            Code::InvalidRequest,
            "an offset or a length was given for more than one partition",
        )
        .remedy("erase the range of each partition by a call of its own"));
    }
    for (i, name) in request.partitions.iter().enumerate() {
        if request.partitions[..i].contains(name) {
            return Err(refuse(
                Code::InvalidRequest,
                format!("{name} was named twice"),
            ));
        }
    }
    match (request.marker, &request.marker_file) {
        (Marker::File, None) => Err(refuse(
            Code::InvalidRequest,
            "the restart marker is to lie in a file, and no file was passed",
        )
        .remedy("pass one that is opened for reading and writing")),
        (Marker::Misc | Marker::None, Some(_)) => Err(refuse(
            Code::InvalidRequest,
            format!(
                "a marker file was passed, and the marker is to lie in {}",
                request.marker
            ),
        )
        .remedy("say either")),
        _ => Ok(()),
    }
}

/// True for an eMMC, false for other storage.
///
/// # Errors
/// `NOT_EMMC` for SD cards and boot areas: MMC devices whose erase is none of ours.
pub(super) fn check_disk(request: &Request, disk: &Disk) -> Result<bool> {
    let kind = disk.kind.value().map(String::as_str);
    if kind == Some("MMC") && is_user_area(&disk.name) {
        return Ok(true);
    }
    if disk.name.starts_with("mmcblk") {
        let what = match kind {
            Some("MMC") => "not the user area of an eMMC".to_owned(),
            Some(kind) => format!("of type {kind}, not an eMMC"),
            None => "of unknown type".to_owned(),
        };
        return Err(refuse(Code::NotEmmc, format!("{} is {what}", disk.name))
            .remedy("blockd erases eMMC, and storage that is no MMC device at all"));
    }
    // The caller must have said which disk: a factory reset is not to find some other one.
    if request.disk.as_deref() != Some(disk.name.as_str()) {
        return Err(refuse(
            Code::NotEmmc,
            format!("{} has no MMC card type, it is not an eMMC", disk.name),
        )
        .remedy(format!(
            "if it is meant, name it (--disk {}): it is overwritten, or discarded on request",
            disk.name
        )));
    }
    Ok(false)
}

/// A system update that waits for its merge needs the data.
pub(super) fn check_update(request: &Request, facts: &Facts) -> Result<()> {
    const NEEDED: [&str; 3] = ["userdata", "metadata", "misc"];
    let Some(target) = facts
        .targets
        .iter()
        .find(|t| NEEDED.contains(&t.partition.name.as_str()))
    else {
        return Ok(());
    };
    let name = &target.partition.name;
    match &facts.misc.merge {
        Fact::Known {
            value: Merge::None, ..
        } => Ok(()),
        Fact::Known { value, source } => {
            let state = match value {
                Merge::Merging => "is being merged",
                _ => "waits for its merge",
            };
            Err(refuse(
                Code::UpdatePending,
                format!("a system update {state} ({source}), and {name} holds parts of it"),
            )
            .remedy("let the system boot and finish the merge, or cancel the update, then reset"))
        }
        Fact::Unknown { .. } if request.merges_done => Ok(()),
        Fact::Unknown {
            reason,
            errno: Some(errno @ (Errno::EPERM | Errno::EACCES)),
        } => Err(refuse(Code::Permission, reason.clone())
            .errno(*errno)
            .remedy(
                "run as root with CAP_SYS_RAWIO, in a domain that may read misc and use the card",
            )),
        Fact::Unknown { reason, errno } => {
            let mut failure = refuse(
                Code::UpdatePending,
                format!("it cannot be told whether a system update is pending: {reason}"),
            );
            failure.errno = *errno;
            Err(failure.remedy("say --merges-done if you know that none is"))
        }
    }
}

/// Below what was asked for nothing is touched.
pub(super) fn check_assurance(
    request: &Request,
    assurance: Assurance,
    choice: &Choice,
    has_edges: bool,
    group: Sectors,
) -> Result<()> {
    if assurance >= request.min_assurance {
        return Ok(());
    }
    let why = if has_edges && choice.grouped {
        format!(
            "the range does not start and end on erase groups of {}, and this card's edges can \
             only be overwritten",
            group.to_bytes()
        )
    } else {
        format!(
            "{} on this disk claims nothing about physical blocks",
            choice.method
        )
    };
    Err(refuse(
        Code::AssuranceUnreachable,
        format!(
            "{assurance} can be reached, {} was asked for: {why}",
            request.min_assurance
        ),
    )
    .remedy("accept clear; or move the partition's borders onto erase groups, or use another card"))
}

pub(super) fn check_target(target: &Target, facts: &Facts) -> Result<()> {
    let partition = &target.partition;
    let name = partition.name.as_str();
    let base = name
        .strip_suffix("_a")
        .or(name.strip_suffix("_b"))
        .unwrap_or(name);
    if PROTECTED.contains(&base) {
        return Err(refuse(
            Code::ProtectedTarget,
            format!("{name} is protected: it holds what this device cannot get back"),
        )
        .remedy("a factory reset does not erase it; nothing overrides this"));
    }
    if !facts.allowed.iter().any(|allowed| allowed == name) {
        return Err(refuse(
            Code::ProtectedTarget,
            format!("{name} is not on the list of partitions that may be erased"),
        )
        .remedy(format!(
            "the list is: {}; a product adds names in {}",
            facts.allowed.join(", "),
            ALLOW_LISTS[0]
        )));
    }
    let holders: Vec<&str> = target
        .holders
        .iter()
        .chain(&facts.disk.holders)
        .map(String::as_str)
        .collect();
    if !holders.is_empty() {
        return Err(refuse(
            Code::InUse,
            format!("{name} ({}) is {}", partition.node, holders.join(", ")),
        )
        .errno(Errno::EBUSY)
        .remedy("unmount it, take it out of use, then try again"));
    }
    for (what, read_only) in [
        (partition.node.as_str(), &target.read_only),
        (facts.disk.name.as_str(), &facts.disk.read_only),
    ] {
        if read_only.value() != Some(&false) {
            let why = match read_only {
                Fact::Unknown { reason, .. } => {
                    format!("it is unknown whether {what} may be written ({reason})")
                }
                Fact::Known { .. } => format!(
                    "{what} is read-only (the kernel would let the erase through, blockd does not)"
                ),
            };
            return Err(refuse(Code::ReadOnly, why).remedy(format!(
                "`blockdev --setrw /dev/block/{what}` if that is meant"
            )));
        }
    }
    if partition.range.end() > facts.disk.capacity {
        return Err(refuse(
            Code::OutOfRange,
            format!(
                "{name} ends at sector {}, the disk has {}",
                partition.range.end().0,
                facts.disk.capacity
            ),
        )
        .remedy("the partition table is damaged; repair it first"));
    }
    if let Some(other) = facts
        .partitions
        .iter()
        .find(|p| p.node != partition.node && p.range.overlaps(partition.range))
    {
        return Err(refuse(
            Code::ProtectedTarget,
            format!("{name} overlaps {} ({})", other.name, other.node),
        )
        .remedy("the partition table is damaged; repair it first"));
    }
    Ok(())
}

/// Maker and product of the card: without them it cannot be told whether it is on a list.
pub(super) fn identity(request: &Request, disk: &Disk) -> Result<(u32, String)> {
    match (disk.manfid.value(), disk.card_name.value()) {
        (Some(manfid), Some(name)) => Ok((*manfid, name.clone())),
        _ if request.ignore_quirks => Ok((0, String::new())),
        _ => Err(refuse(
            Code::DeviceFailed,
            format!(
                "maker and product of {} are unknown, and some cards die by secure erase",
                disk.name
            ),
        )
        .remedy(format!(
            "let this domain read /sys/block/{0}/device/manfid and /sys/block/{0}/device/name, or \
             say --ignore-quirks",
            disk.name
        ))),
    }
}

/// The register must know as many sectors as the kernel. Above 2 GiB the kernel has them from there
/// (drivers/mmc/core/block.c, mmc_blk_alloc), so that more is as wrong as less, and would name sectors to
/// a card that counts in bytes. Smaller cards may have them from the CSD.
pub(super) fn capacity(csd: &ExtCsd, disk: &Disk) -> Result<()> {
    const TWO_GIB: Sectors = Sectors((2 << 30) / SECTOR_SIZE);
    let (card, kernel) = (csd.sec_count(), disk.capacity);
    if card == kernel || (card > kernel && card <= TWO_GIB) {
        return Ok(());
    }
    Err(refuse(
        Code::DeviceFailed,
        format!(
            "EXT_CSD of {} says {}, the kernel says {}",
            disk.name,
            csd.sec_count(),
            disk.capacity
        ),
    )
    .remedy("the register cannot be trusted; do not erase this card by commands"))
}

/// The relative card address, for CMD13.
pub(super) fn rca(disk: &Disk) -> Result<u16> {
    disk.rca.value().copied().ok_or_else(|| {
        refuse(
            Code::DeviceFailed,
            format!("the relative address of {} is unknown", disk.name),
        )
        .remedy(format!(
            "let this domain read /sys/block/{}/device/rca",
            disk.name
        ))
    })
}

pub(super) fn ext_csd<'a>(fact: &'a Fact<ExtCsd>, disk: &str) -> Result<&'a ExtCsd> {
    match fact {
        Fact::Known { value, .. } => match value.implausible() {
            None => Ok(value),
            Some(why) => Err(refuse(
                Code::DeviceFailed,
                format!("the EXT_CSD of {disk} makes no sense: {why}"),
            )
            .remedy("the card or its host controller is faulty; do not erase it by commands")),
        },
        Fact::Unknown { reason, errno } => {
            let denied = matches!(errno, Some(Errno::EPERM | Errno::EACCES));
            let mut failure = refuse(
                if denied {
                    Code::Permission
                } else {
                    Code::DeviceFailed
                },
                reason.clone(),
            );
            failure.errno = *errno;
            Err(failure.remedy(if denied {
                "run as root with CAP_SYS_RAWIO, in a domain that may use MMC_IOC_CMD on the disk"
            } else {
                "look into dmesg for mmc errors"
            }))
        }
    }
}

pub(super) fn erase_group(facts: &Facts, csd: &ExtCsd) -> Result<Sectors> {
    let name = &facts.disk.name;
    let kernel = facts
        .disk
        .erase_size
        .value()
        .and_then(|bytes| bytes.to_sectors())
        .filter(|sectors| !sectors.is_zero());
    let Some(kernel) = kernel else {
        return Err(refuse(
            Code::DeviceFailed,
            format!("the erase group of {name} is unknown"),
        )
        .remedy(format!(
            "let this domain read /sys/block/{name}/device/erase_size"
        )));
    };
    let (card, register) = match csd.erase_group_def() {
        true => (csd.hc_erase_group(), "EXT_CSD"),
        false => (facts.disk.csd_group.value().copied(), "the CSD"),
    };
    // The card rounds to its own group: with another one than planned it would erase neighbours.
    match card {
        Some(card) if card == kernel => Ok(kernel),
        Some(card) => Err(refuse(
            Code::DeviceFailed,
            format!(
                "the erase group of {name} is {} by {register}, {} by the kernel",
                card.to_bytes(),
                kernel.to_bytes()
            ),
        )
        .remedy("somebody changed ERASE_GROUP_DEF behind the kernel; restart the device")),
        None if csd.erase_group_def() => Err(refuse(
            Code::DeviceFailed,
            format!(
                "the EXT_CSD of {name} makes no sense: ERASE_GROUP_DEF is set, HC_ERASE_GRP_SIZE is 0"
            ),
        )
        .remedy("the card or its host controller is faulty; do not erase it by commands")),
        None => Err(refuse(
            Code::DeviceFailed,
            format!("ERASE_GROUP_DEF of {name} is 0, and the erase group of its CSD is unknown"),
        )
        .remedy(format!(
            "let this domain read /sys/block/{name}/device/csd"
        ))),
    }
}
