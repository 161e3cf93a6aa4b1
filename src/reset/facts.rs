//! What a reset must know, read once: the card, the partition table, who uses what.
//!
//! Everything comes from /sys, /proc and one CMD8; nothing is opened for writing.

use crate::device::block::errno;
use crate::device::ext_csd::ExtCsd;
use crate::device::{Storage, Sysfs};
use crate::error::{Code, Failure, Result};
use crate::fact::{Fact, NamedFact};
use crate::reset::step::Step;
use crate::units::{Bytes, SectorRange, Sectors};

/// Product list of partitions that may be erased besides the usual ones: one GPT name a line, `#`
/// begins a comment.
pub const ALLOW_LISTS: [&str; 2] = ["/system/etc/blockd/targets", "/etc/blockd/targets"];

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
    /// Relative card address.
    pub rca: Fact<u16>,
    /// Erase group as the kernel computes it.
    pub erase_size: Fact<Bytes>,
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
    /// GPT names that may be erased.
    pub allowed: Vec<String>,
}

/// Reads everything about `partitions`, on `disk` or wherever they are.
///
/// # Errors
/// `NO_SUCH_PARTITION`, `INVALID_REQUEST` for names that are ambiguous or on several disks,
/// `PROTECTED_TARGET` for the name of a disk or a boot area, `NO_SUCH_DEVICE`.
pub fn gather(storage: &dyn Storage, disk: Option<&str>, partitions: &[String]) -> Result<Facts> {
    let sysfs = storage.sysfs();
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
    let targets = found
        .into_iter()
        .map(|(_, partition)| Target {
            holders: holders(sysfs, &partition.node),
            read_only: flag(sysfs, &format!("/sys/class/block/{}/ro", partition.node)),
            partition,
        })
        .collect();
    let mut on_disk: Vec<Partition> = table
        .into_iter()
        .filter(|(d, _)| *d == disk)
        .map(|(_, p)| p)
        .collect();
    on_disk.sort_by_key(|p| p.range.start);
    Ok(Facts {
        disk: gather_disk(storage, &disk)?,
        partitions: on_disk,
        targets,
        allowed: allowed(sysfs),
    })
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
        rca: text(sysfs, &path("device/rca"))
            .parse(hex)
            .parse(|n| u16::try_from(n).map_err(|e| e.to_string())),
        erase_size: text(sysfs, &path("device/erase_size"))
            .parse(number)
            .parse(|n| Ok(Bytes(n))),
        write_cache: text(sysfs, &path("queue/write_cache")),
        fua: text(sysfs, &path("queue/fua")),
        read_only: flag(sysfs, &path("ro")),
        ext_csd,
        holders: holders(sysfs, name),
    })
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

fn read_ext_csd(storage: &dyn Storage, disk: &str) -> Fact<ExtCsd> {
    let read = storage.open_mmc(disk).and_then(|mmc| mmc.ext_csd());
    match read {
        Ok(bytes) => Fact::known(ExtCsd(bytes), "CMD8 SEND_EXT_CSD"),
        Err(e) => Fact::unknown(format!("CMD8 on {disk}: {}", e.desc()), Some(e)),
    }
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

/// Every partition with the name of its disk.
fn table(sysfs: &dyn Sysfs) -> Result<Vec<(String, Partition)>> {
    let nodes = sysfs.list("/sys/class/block").map_err(|e| {
        Failure::new(
            Code::Unsupported,
            Step::Facts.name(),
            "cannot list /sys/class/block",
        )
        .errno(errno(e))
        .remedy("mount sysfs on /sys, and let this domain read it")
    })?;
    let mut table = Vec::new();
    for node in nodes {
        let path = format!("/sys/class/block/{node}");
        if !sysfs.exists(&format!("{path}/partition")) {
            continue;
        }
        let number = |file: &str| -> Option<u64> {
            sysfs
                .read(&format!("{path}/{file}"))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let (Some(start), Some(length)) = (number("start"), number("size")) else {
            continue;
        };
        let Ok(disk) = sysfs.resolved_name(&format!("{path}/..")) else {
            continue;
        };
        let uevent = sysfs.read(&format!("{path}/uevent")).unwrap_or_default();
        let name = uevent
            .lines()
            .find_map(|line| line.strip_prefix("PARTNAME="))
            .unwrap_or_default();
        table.push((
            disk,
            Partition {
                name: name.to_owned(),
                node,
                range: SectorRange {
                    start: Sectors(start),
                    length: Sectors(length),
                },
            },
        ));
    }
    Ok(table)
}

fn resolve(
    sysfs: &dyn Sysfs,
    table: &[(String, Partition)],
    disk: Option<&str>,
    name: &str,
) -> Result<(String, Partition)> {
    let step = Step::Facts.name();
    if name.is_empty() {
        return Err(
            Failure::new(Code::NoSuchPartition, step, "a partition name is empty")
                .remedy("name GPT partitions, e.g. userdata"),
        );
    }
    let on_disk: Vec<&(String, Partition)> = table
        .iter()
        .filter(|(d, _)| disk.map_or(true, |wanted| wanted == d))
        .collect();
    let mut matches = on_disk.iter().filter(|(_, p)| p.name == name);
    match (matches.next(), matches.next()) {
        (Some((disk, partition)), None) => Ok((disk.clone(), partition.clone())),
        (Some((a, _)), Some((b, _))) => Err(Failure::new(
            Code::InvalidRequest,
            step,
            format!("the name {name} is there twice, on {a} and on {b}"),
        )
        .remedy("name the disk (--disk), or make the GPT names unique")),
        (None, _) => {
            if !name.contains('/') && sysfs.exists(&format!("/sys/block/{name}")) {
                let what = if is_user_area(name) {
                    "a whole disk"
                } else {
                    "a disk of its own (a boot area, RPMB or another device)"
                };
                return Err(Failure::new(
                    Code::ProtectedTarget,
                    step,
                    format!("{name} is {what}; only partitions are erased"),
                )
                .remedy("name GPT partitions, e.g. userdata"));
            }
            let known: Vec<&str> = on_disk
                .iter()
                .filter(|(_, p)| !p.name.is_empty())
                .map(|(_, p)| p.name.as_str())
                .collect();
            let place = disk.map_or("any disk".to_owned(), str::to_owned);
            let there = if known.is_empty() {
                "no disk has named partitions".to_owned()
            } else {
                format!("there are: {}", known.join(", "))
            };
            Err(Failure::new(
                Code::NoSuchPartition,
                step,
                format!("no partition {name} on {place}"),
            )
            .remedy(format!("use a GPT partition name; {there}")))
        }
    }
}

/// The GPT names that may be erased.
fn allowed(sysfs: &dyn Sysfs) -> Vec<String> {
    let mut names: Vec<String> = ALWAYS_ALLOWED.iter().map(|n| (*n).to_owned()).collect();
    for path in ALLOW_LISTS {
        for line in sysfs.read(path).unwrap_or_default().lines() {
            let name = line.split('#').next().unwrap_or_default().trim();
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Who uses the node, in words. O_EXCL sees mounts, swap and device-mapper, but not loop devices
/// (facts of Linux ≥ 4.14), and names nobody; so we look ourselves.
fn holders(sysfs: &dyn Sysfs, node: &str) -> Vec<String> {
    let mut holders = Vec::new();
    let device = sysfs
        .read(&format!("/sys/class/block/{node}/dev"))
        .unwrap_or_default();
    for line in sysfs
        .read("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
    {
        // proc(5): ID parent major:minor root mount-point options … - type source
        let fields: Vec<&str> = line.split(' ').collect();
        let source = fields
            .iter()
            .position(|field| *field == "-")
            .and_then(|dash| fields.get(dash + 2));
        let same_device = fields.get(2).is_some_and(|d| *d == device) && !device.is_empty();
        // File systems with anonymous device numbers (btrfs) are seen by their source alone.
        let same_source = source.is_some_and(|path| is_node(path, node));
        if same_device || same_source {
            let place = fields.get(4).copied().unwrap_or("?");
            let text = format!("mounted at {place}");
            if !holders.contains(&text) {
                holders.push(text);
            }
        }
    }
    for line in sysfs.read("/proc/swaps").unwrap_or_default().lines() {
        if line
            .split_whitespace()
            .next()
            .is_some_and(|p| is_node(p, node))
        {
            holders.push("used as swap".to_owned());
        }
    }
    for dm in sysfs
        .list(&format!("/sys/class/block/{node}/holders"))
        .unwrap_or_default()
    {
        let name = sysfs
            .read(&format!("/sys/class/block/{dm}/dm/name"))
            .map_or(String::new(), |name| format!(" ({name})"));
        holders.push(format!("held by {dm}{name}"));
    }
    for other in sysfs.list("/sys/block").unwrap_or_default() {
        let backing = sysfs.read(&format!("/sys/block/{other}/loop/backing_file"));
        if backing.is_ok_and(|path| is_node(&path, node)) {
            holders.push(format!("the backing file of {other}"));
        }
    }
    holders
}

/// True where `path` is the device node of the kernel name `node`.
fn is_node(path: &str, node: &str) -> bool {
    path.strip_prefix("/dev/")
        .is_some_and(|rest| rest.rsplit('/').next() == Some(node))
}

impl Disk {
    /// The facts in the order in which they are worth reading.
    pub fn named(&self) -> Vec<NamedFact> {
        let csd =
            |name: &str, text: fn(&ExtCsd) -> String| NamedFact::new(name, &self.ext_csd, text);
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        vec![
            NamedFact::new("type", &self.kind, String::clone),
            NamedFact::new("card_name", &self.card_name, String::clone),
            NamedFact::new("manfid", &self.manfid, |id| format!("{id:#08x}")),
            NamedFact::new("cid", &self.cid, String::clone),
            NamedFact::new("rca", &self.rca, |rca| format!("{rca:#06x}")),
            NamedFact::new(
                "capacity_bytes",
                &Fact::known(self.capacity, format!("/sys/block/{}/size", self.name)),
                |sectors| sectors.to_bytes().0.to_string(),
            ),
            NamedFact::new("read_only", &self.read_only, |ro| yes_no(*ro)),
            NamedFact::new("erase_group_bytes", &self.erase_size, |b| b.0.to_string()),
            csd("ext_csd_rev", |e| e.rev().to_string()),
            csd("sec_count", |e| e.sec_count().0.to_string()),
            csd("addressing", |e| {
                format!("{:?}", e.addressing()).to_lowercase()
            }),
            csd("secure_erase", |e| {
                if e.has_secure_erase() { "yes" } else { "no" }.to_owned()
            }),
            csd("trim", |e| {
                if e.has_trim() { "yes" } else { "no" }.to_owned()
            }),
            csd("sanitize", |e| {
                if e.has_sanitize() { "yes" } else { "no" }.to_owned()
            }),
            csd("erased_value", |e| e.erased_value().to_string()),
            csd("erase_timeout_mult", |e| e.erase_timeout_mult().to_string()),
            csd("sec_erase_mult", |e| e.sec_erase_mult().to_string()),
            csd("cache_kilobits", |e| e.cache_kilobits().to_string()),
            csd("cache_on", |e| {
                if e.cache_on() { "yes" } else { "no" }.to_owned()
            }),
            NamedFact::new("write_cache", &self.write_cache, String::clone),
            NamedFact::new("fua", &self.fua, String::clone),
        ]
    }
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

    #[test]
    fn nodes_are_known_by_their_last_name() {
        assert!(is_node("/dev/mmcblk0p2", "mmcblk0p2"));
        assert!(is_node("/dev/block/mmcblk0p2", "mmcblk0p2"));
        assert!(!is_node("/dev/mmcblk0p21", "mmcblk0p2"));
        assert!(!is_node("/data/mmcblk0p2", "mmcblk0p2"));
    }
}
