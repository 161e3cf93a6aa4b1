//! What a plan refuses, each with its reason and what to do.

use crate::device::ext_csd::ExtCsd;
use crate::error::{Code, Failure, Result};
use crate::fact::Fact;
use crate::reset::facts::{Facts, Target, ALLOW_LISTS};
use crate::reset::request::{Marker, Method, Request};
use crate::reset::step::Step;
use crate::units::{Bytes, Sectors};
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

/// Cards whose firmware loses data or dies by secure erase and secure trim: the kernel's
/// MMC_QUIRK_SEC_ERASE_TRIM_BROKEN (drivers/mmc/core/quirks.h), which guards BLKSECDISCARD but not
/// the raw ioctl. Manufacturer (CID MID) and product name (CID PNM).
const SECURE_ERASE_BROKEN: [(u32, &str); 8] = [
    (0x15, "M8G2FA"),
    (0x15, "MAG4FA"),
    (0x15, "MBG8FA"),
    (0x15, "MCGAFA"),
    (0x15, "VAL00M"),
    (0x15, "VYL00M"),
    (0x15, "KYL00M"),
    (0x15, "VZL00M"),
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
    if !matches!(request.method, Method::Auto | Method::SecureErase) {
        return Err(refuse(
            Code::Unsupported,
            format!("the method {} is not in this version", request.method),
        )
        .remedy("use auto or secure-erase"));
    }
    if request.max_chunk != Bytes(0) {
        return Err(refuse(
            Code::Unsupported,
            "a limit on the size of one command is not in this version",
        )
        .remedy("leave the chunk size at 0: one command for the whole range"));
    }
    if request.marker != Marker::None {
        return Err(refuse(
            Code::Unsupported,
            format!(
                "a restart marker in {} is not in this version",
                request.marker
            ),
        )
        .remedy(
            "ask for no marker (--marker none); then keep the power on, a reset that is cut is \
             not resumed",
        ));
    }
    Ok(())
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

pub(super) fn check_card(facts: &Facts) -> Result<()> {
    let (Some(manfid), Some(name)) = (facts.disk.manfid.value(), facts.disk.card_name.value())
    else {
        return Err(refuse(
            Code::DeviceError,
            format!(
                "maker and product of {} are unknown, and some cards die by secure erase",
                facts.disk.name
            ),
        )
        .remedy(format!(
            "let this domain read /sys/block/{0}/device/manfid and /sys/block/{0}/device/name",
            facts.disk.name
        )));
    };
    if SECURE_ERASE_BROKEN.contains(&(*manfid, name.as_str())) {
        return Err(refuse(
            Code::Unsupported,
            format!("the card {name} (manufacturer {manfid:#04x}) has a firmware that secure erase can kill"),
        )
        .remedy("the kernel refuses secure erase on it too; overwrite the partition instead"));
    }
    Ok(())
}

pub(super) fn ext_csd<'a>(fact: &'a Fact<ExtCsd>, disk: &str) -> Result<&'a ExtCsd> {
    match fact {
        Fact::Known { value, .. } => match value.implausible() {
            None => Ok(value),
            Some(why) => Err(refuse(
                Code::DeviceError,
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
                    Code::DeviceError
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
            Code::DeviceError,
            format!("the erase group of {name} is unknown"),
        )
        .remedy(format!(
            "let this domain read /sys/block/{name}/device/erase_size"
        )));
    };
    match csd.hc_erase_group() {
        Some(card) if card != kernel => Err(refuse(
            Code::DeviceError,
            format!(
                "the erase group of {name} is {} by EXT_CSD, {} by the kernel",
                card.to_bytes(),
                kernel.to_bytes()
            ),
        )
        .remedy("somebody changed ERASE_GROUP_DEF behind the kernel; restart the device")),
        _ => Ok(kernel),
    }
}
