//! What a reset must know, read once: the card, the partition table, who uses what.
//!
//! Everything comes from /sys, /proc and one CMD8; nothing is opened for writing.

mod holders;
pub mod misc;
mod table;
mod words;

use crate::device::block::errno;
use crate::device::csd;
use crate::device::ext_csd::{Addressing, ExtCsd};
use crate::device::{Storage, Sysfs};
use crate::error::{Code, Failure, Result};
use crate::fact::Fact;
use crate::reset::marker::Found;
use crate::reset::request::Request;
use crate::reset::step::Step;
use crate::units::{Bytes, SectorRange, Sectors};
use holders::{holders, mappings};
use misc::Misc;
use nix::errno::Errno;
use std::time::Duration;
use table::{allowed, resolve, table};

/// Product list of partitions that may be erased besides the usual ones: one GPT name a line, `#`
/// begins a comment.
pub const ALLOW_LISTS: [&str; 2] = ["/system/etc/blockd/targets", "/etc/blockd/targets"];

/// How far from a range its neighbouring sectors are looked at: 1 MiB.
pub const NEAR: Sectors = Sectors(2048);

/// What every Android product may erase.
const ALWAYS_ALLOWED: [&str; 3] = ["userdata", "metadata", "cache"];

/// The disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Kernel name.
    pub name: String,
    /// Size.
    pub capacity: Sectors,
    /// `MMC` for an eMMC, `SD` for a card.
    pub kind: Fact<String>,
    /// CID PNM: product name.
    pub card_name: Fact<String>,
    /// CID MID: manufacturer.
    pub manfid: Fact<u32>,
    /// The CID register in hexadecimal.
    pub cid: Fact<String>,
    /// C_SIZE of the CSD: whether a small card counts in bytes.
    pub c_size: Fact<u16>,
    /// Erase group of the card's CSD, which counts while ERASE_GROUP_DEF is 0.
    pub csd_group: Fact<Sectors>,
    /// Relative card address.
    pub rca: Fact<u16>,
    /// Erase group as the kernel computes it.
    pub erase_size: Fact<Bytes>,
    /// queue/discard_max_bytes: what the kernel sends in one discard at most.
    pub discard_max: Fact<Bytes>,
    /// queue/write_cache.
    pub write_cache: Fact<String>,
    /// queue/fua.
    pub fua: Fact<String>,
    /// Whether the kernel refuses writes to the disk.
    pub read_only: Fact<bool>,
    /// The EXT_CSD register.
    pub ext_csd: Fact<ExtCsd>,
    /// Who uses the disk as a whole.
    pub holders: Vec<String>,
}

impl Disk {
    /// How the card counts in CMD35 and CMD36; `None` where that cannot be told.
    pub fn addressing(&self) -> Option<Addressing> {
        let c_size = self.c_size.value().copied();
        self.ext_csd.value()?.addressing(c_size)
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// GPT name.
    pub name: String,
    /// Kernel name.
    pub node: String,
    /// Where it lies on the disk.
    pub range: SectorRange,
}

/// A partition that is to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub partition: Partition,
    /// Who uses it, in words.
    pub holders: Vec<String>,
    /// Whether the kernel refuses writes to it.
    pub read_only: Fact<bool>,
}

/// Everything that the plan of a reset rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The disk.
    pub disk: Disk,
    /// Every partition of the disk.
    pub partitions: Vec<Partition>,
    /// The ones to erase, in the order of the request.
    pub targets: Vec<Target>,
    /// Partitions that begin or end close to a target and are in use, and by whom: what they hold may
    /// change at any time.
    pub busy: Vec<(Partition, String)>,
    /// GPT names that may be erased.
    pub allowed: Vec<String>,
    /// The restart marker's usual place, and a pending update.
    pub misc: Misc,
    /// What the marker's place says now; in misc or in the caller's file.
    pub marker: Fact<Found>,
    /// The longest time that a process may wait for a disk before the kernel panics; `None` where
    /// it does not panic.
    pub hung_task: Option<Duration>,
}

/// Reads everything about the partitions of a request.
///
/// # Errors
/// `NO_SUCH_PARTITION`, `INVALID_REQUEST` for names that are ambiguous or on several disks,
/// `PROTECTED_TARGET` for the name of a disk or a boot area, `NO_SUCH_DEVICE`.
pub fn gather(storage: &dyn Storage, request: &Request) -> Result<Facts> {
    let sysfs = storage.sysfs();
    let (disk, partitions) = (request.disk.as_deref(), &request.partitions);
    let table = table(sysfs)?;
    let mut found = Vec::new();
    for name in partitions {
        found.push(resolve(sysfs, &table, disk, name)?);
    }
    let Some((disk, _)) = found.first().cloned() else {
        return Err(Failure::new(
            Code::InvalidRequest,
            Step::Facts.name(),
            "no partition was named",
        ));
    };
    if let Some((other, partition)) = found.iter().find(|(d, _)| *d != disk) {
        return Err(Failure::new(
            Code::InvalidRequest,
            Step::Facts.name(),
            format!(
                "{} is on {other}, {} on {disk}",
                partition.name, partitions[0]
            ),
        )
        .remedy("reset the partitions of one disk at a time"));
    }
    let targets: Vec<Target> = found
        .into_iter()
        .map(|(_, partition)| Target {
            holders: holders(sysfs, &partition.node),
            read_only: flag(sysfs, &format!("/sys/class/block/{}/ro", partition.node)),
            partition,
        })
        .collect();
    let misc = misc::gather(storage, &table, &disk);
    let marker = match &request.marker_file {
        Some(file) => misc::gather_file(file),
        None => misc.marker.clone(),
    };
    let mut on_disk: Vec<Partition> = table
        .into_iter()
        .filter(|(d, _)| *d == disk)
        .map(|(_, p)| p)
        .collect();
    on_disk.sort_by_key(|p| p.range.start);
    let busy = busy(sysfs, &on_disk, &targets);
    let mut disk = gather_disk(storage, &disk)?;
    disk.holders.extend(mappings(sysfs, &disk.name));
    Ok(Facts {
        busy,
        disk,
        partitions: on_disk,
        targets,
        allowed: allowed(sysfs),
        misc,
        marker,
        hung_task: hung_task(sysfs),
    })
}

/// Who uses the partitions that lie close to a target.
fn busy(
    sysfs: &dyn Sysfs,
    partitions: &[Partition],
    targets: &[Target],
) -> Vec<(Partition, String)> {
    let near = |partition: &&Partition| {
        !targets.iter().any(|t| t.partition == **partition)
            && targets.iter().any(|t| {
                let (a, b) = (t.partition.range, partition.range);
                a.start.0 < b.end().0.saturating_add(NEAR.0)
                    && b.start.0 < a.end().0.saturating_add(NEAR.0)
            })
    };
    partitions
        .iter()
        .filter(near)
        .filter_map(|partition| {
            let holder = holders(sysfs, &partition.node).into_iter().next()?;
            Some((partition.clone(), holder))
        })
        .collect()
}

/// Reads what misc says.
///
/// # Errors
/// `UNSUPPORTED` where sysfs cannot be read.
pub fn misc(storage: &dyn Storage) -> Result<Misc> {
    Ok(misc::gather(storage, &table(storage.sysfs())?, ""))
}

/// Reads everything about one disk.
///
/// # Errors
/// `NO_SUCH_DEVICE`.
pub fn gather_disk(storage: &dyn Storage, name: &str) -> Result<Disk> {
    let sysfs = storage.sysfs();
    let path = |rest: &str| format!("/sys/block/{name}/{rest}");
    if name.contains('/') || !sysfs.exists(&path("size")) {
        return Err(Failure::new(
            Code::NoSuchDevice,
            Step::Facts.name(),
            format!("there is no disk {name} (no /sys/block/{name})"),
        )
        .remedy("`ls /sys/block` shows the disks"));
    }
    let number = |text: String| text.trim().parse::<u64>().map_err(|e| e.to_string());
    let hex = |text: String| {
        let digits = text.trim().trim_start_matches("0x");
        u32::from_str_radix(digits, 16).map_err(|e| e.to_string())
    };
    let kind = text(sysfs, &path("device/type"));
    let is_mmc = kind.value().map(String::as_str) == Some("MMC");
    let ext_csd = if is_mmc {
        read_ext_csd(storage, name)
    } else {
        Fact::unknown("not an eMMC, no CMD8 was sent", None)
    };
    Ok(Disk {
        name: name.to_owned(),
        capacity: Sectors(
            text(sysfs, &path("size"))
                .parse(number)
                .value()
                .copied()
                .unwrap_or(0),
        ),
        kind,
        card_name: text(sysfs, &path("device/name")),
        manfid: text(sysfs, &path("device/manfid")).parse(hex),
        cid: text(sysfs, &path("device/cid")),
        c_size: text(sysfs, &path("device/csd")).parse(|text| csd::c_size(&text)),
        csd_group: text(sysfs, &path("device/csd")).parse(|text| csd::erase_group(&text)),
        rca: text(sysfs, &path("device/rca"))
            .parse(hex)
            .parse(|n| u16::try_from(n).map_err(|e| e.to_string())),
        erase_size: text(sysfs, &path("device/erase_size"))
            .parse(number)
            .parse(|n| Ok(Bytes(n))),
        discard_max: text(sysfs, &path("queue/discard_max_bytes"))
            .parse(number)
            .parse(|n| Ok(Bytes(n))),
        write_cache: text(sysfs, &path("queue/write_cache")),
        fua: text(sysfs, &path("queue/fua")),
        read_only: flag(sysfs, &path("ro")),
        ext_csd,
        holders: holders(sysfs, name),
    })
}

/// `disk`, or the only eMMC where none is named.
///
/// # Errors
/// `NOT_EMMC` where there is none, `INVALID_REQUEST` where there are several.
pub fn choose(sysfs: &dyn Sysfs, disk: Option<&str>) -> Result<String> {
    if let Some(disk) = disk {
        return Ok(disk.to_owned());
    }
    let disks = emmc_disks(sysfs);
    let (code, message, remedy) = match disks.as_slice() {
        [only] => return Ok(only.clone()),
        [] => (
            Code::NotEmmc,
            "this machine has no eMMC".to_owned(),
            "name a disk to see what is known of it: `ls /sys/block`",
        ),
        several => (
            Code::InvalidRequest,
            format!("there are several eMMCs: {}", several.join(", ")),
            "name one",
        ),
    };
    Err(Failure::new(code, Step::Facts.name(), message).remedy(remedy))
}

/// The names of the eMMC disks of this machine.
pub fn emmc_disks(sysfs: &dyn Sysfs) -> Vec<String> {
    let mut names = sysfs.list("/sys/block").unwrap_or_default();
    names.retain(|name| {
        sysfs
            .read(&format!("/sys/block/{name}/device/type"))
            .is_ok_and(|kind| kind == "MMC")
            && is_user_area(name)
    });
    names
}

/// True for `mmcblkN` exactly: `mmcblk0boot0`, `mmcblk0rpmb` and partitions are no user area.
pub fn is_user_area(disk: &str) -> bool {
    disk.strip_prefix("mmcblk")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Some cards do not answer CMD8 for a while after an erase or a retuning: it is tried again.
fn read_ext_csd(storage: &dyn Storage, disk: &str) -> Fact<ExtCsd> {
    const PAUSE: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(3);
    let start = storage.now();
    loop {
        let read = storage.open_mmc(disk).and_then(|mmc| mmc.ext_csd());
        let waited = storage.now() - start;
        match read {
            Ok(bytes) if waited < PAUSE => return Fact::known(ExtCsd(bytes), "CMD8 SEND_EXT_CSD"),
            Ok(bytes) => {
                let source = format!("CMD8 SEND_EXT_CSD, after {:.1} s", waited.as_secs_f64());
                return Fact::known(ExtCsd(bytes), source);
            }
            Err(Errno::ETIMEDOUT | Errno::EILSEQ) if waited < PATIENCE => storage.sleep(PAUSE),
            Err(e) => {
                let text = format!(
                    "CMD8 on {disk}: {}, for {:.1} s",
                    e.desc(),
                    waited.as_secs_f64()
                );
                return Fact::unknown(text, Some(e));
            }
        }
    }
}

/// kernel.hung_task_timeout_secs, where kernel.hung_task_panic is on.
fn hung_task(sysfs: &dyn Sysfs) -> Option<Duration> {
    let number = |name: &str| -> Option<u64> {
        let path = format!("/proc/sys/kernel/hung_task_{name}");
        sysfs.read(&path).ok()?.trim().parse().ok()
    };
    let timeout = number("timeout_secs").filter(|seconds| *seconds != 0)?;
    (number("panic")? != 0).then_some(Duration::from_secs(timeout))
}

fn text(sysfs: &dyn Sysfs, path: &str) -> Fact<String> {
    match sysfs.read(path) {
        Ok(text) => Fact::known(text.trim_end().to_owned(), path),
        Err(e) => {
            let errno = errno(e);
            Fact::unknown(format!("{path}: {}", errno.desc()), Some(errno))
        }
    }
}

fn flag(sysfs: &dyn Sysfs, path: &str) -> Fact<bool> {
    text(sysfs, path).parse(|text| match text.as_str() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(format!("`{other}` is neither 0 nor 1")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_user_areas_count_as_disks() {
        for (name, want) in [
            ("mmcblk0", true),
            ("mmcblk12", true),
            ("mmcblk0boot0", false),
            ("mmcblk0rpmb", false),
            ("mmcblk0p1", false),
            ("mmcblk", false),
            ("sda", false),
        ] {
            assert_eq!(is_user_area(name), want, "{name}");
        }
    }
}
