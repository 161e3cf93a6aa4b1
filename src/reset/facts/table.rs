//! The partition table, names in it, and which of them may be erased.

use super::{is_user_area, Partition, ALLOW_LISTS, ALWAYS_ALLOWED};
use crate::device::block::errno;
use crate::device::Sysfs;
use crate::error::{Code, Failure, Result};
use crate::reset::step::Step;
use crate::units::{SectorRange, Sectors};

/// Every partition with the name of its disk.
pub(super) fn table(sysfs: &dyn Sysfs) -> Result<Vec<(String, Partition)>> {
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

pub(super) fn resolve(
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
pub(super) fn allowed(sysfs: &dyn Sysfs) -> Vec<String> {
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

/// Every partition `name`; where `disk` has one, only that.
pub(super) fn named(table: &[(String, Partition)], name: &str, disk: &str) -> Vec<Partition> {
    let of = |wanted: Option<&str>| -> Vec<Partition> {
        table
            .iter()
            .filter(|(d, p)| p.name == name && wanted.map_or(true, |w| w == d))
            .map(|(_, p)| p.clone())
            .collect()
    };
    let here = of(Some(disk));
    if here.is_empty() {
        of(None)
    } else {
        here
    }
}
