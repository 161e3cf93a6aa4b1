//! The files that the kernel shows for the card and its partitions.
use super::{FakeSysfs, DISK};
use crate::card::ext_csd::{index, EN_REL_WR};
use crate::card::Card;
use crate::store::SECTOR;

/// Major number of MMC disks.
const MAJOR: u32 = 179;

/// A partition of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// GPT name.
    pub name: String,
    /// First sector, absolute.
    pub start: u64,
    /// Number of sectors.
    pub sectors: u64,
}

impl Partition {
    /// `sectors` from `start` on.
    pub fn new(name: &str, start: u64, sectors: u64) -> Self {
        Partition {
            name: name.to_owned(),
            start,
            sectors,
        }
    }
}

/// queue/write_cache.
pub(super) fn write_cache(write_back: bool) -> &'static str {
    if write_back {
        "write back"
    } else {
        "write through"
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes everything; true if the queue says "write back".
pub(super) fn populate(sysfs: &FakeSysfs, card: &Card, partitions: &[Partition]) -> bool {
    let disk = format!("/sys/block/{DISK}");
    sysfs.link(DISK, &disk);
    node(sysfs, &disk, DISK, 0, card.sectors());
    device(sysfs, &disk, card);
    let write_back = queue(sysfs, &disk, card);
    for (number, p) in (1u32..).zip(partitions) {
        let name = format!("{DISK}p{number}");
        let folder = format!("{disk}/{name}");
        sysfs.link(&name, &folder);
        node(sysfs, &folder, &name, number, p.sectors);
        sysfs.set(&format!("{folder}/start"), p.start);
        sysfs.set(&format!("{folder}/partition"), number);
        let uevent = format!("{folder}/uevent");
        sysfs.append(&uevent, &format!("PARTN={number}"));
        if !p.name.is_empty() {
            sysfs.append(&uevent, &format!("PARTNAME={}", p.name));
        }
    }
    let root = "25 1 0:2 / / rw - rootfs rootfs rw";
    sysfs.set("/proc/self/mountinfo", root);
    sysfs.set("/proc/swaps", "Filename Type Size Used Priority");
    sysfs.set("/proc/sys/kernel/osrelease", "6.12.0-machine");
    let uuid = "00000000-0000-4000-8000-000000000001";
    sysfs.set("/proc/sys/kernel/random/uuid", uuid);
    sysfs.set("/proc/sys/kernel/hung_task_timeout_secs", 120);
    sysfs.set("/proc/sys/kernel/hung_task_panic", 0);
    write_back
}

fn node(sysfs: &FakeSysfs, folder: &str, name: &str, minor: u32, sectors: u64) {
    let kind = if minor == 0 { "disk" } else { "partition" };
    sysfs.set(&format!("{folder}/dev"), format!("{MAJOR}:{minor}"));
    sysfs.set(&format!("{folder}/size"), sectors);
    sysfs.set(&format!("{folder}/ro"), 0);
    let uevent = format!("MAJOR={MAJOR}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE={kind}");
    sysfs.set(&format!("{folder}/uevent"), uevent);
}

/// mmc_card's attributes (drivers/mmc/core/mmc.c).
fn device(sysfs: &FakeSysfs, disk: &str, card: &Card) {
    let set = |file: &str, text: String| sysfs.set(&format!("{disk}/device/{file}"), text);
    let cid = card.cid();
    // an SDHCI shows the registers without their CRC
    let mut raw = cid.to_bytes();
    raw[15] = 0;
    let mut csd = card.csd_bytes();
    csd[15] = 0;
    let ext = card.ext_csd();
    set("type", "MMC".to_owned());
    set("name", cid.name.clone());
    set("manfid", format!("{:#08x}", cid.manfid));
    set("oemid", format!("{:#06x}", 0x100 | u32::from(cid.oemid)));
    set("serial", format!("{:#010x}", cid.serial));
    set("date", "11/2022".to_owned());
    set("cid", hex(&raw));
    set("csd", hex(&csd));
    set("rca", "0x0001".to_owned());
    let group = card.erase_group_sectors() * SECTOR as u64;
    set("erase_size", group.to_string());
    // 4 MiB above 1 GiB, never less than a group (mmc_init_erase)
    let preferred = (4u64 << 20).next_multiple_of(group);
    set("preferred_erase_size", preferred.to_string());
    set("rel_sectors", format!("{:#x}", ext.0[index::REL_WR_SEC_C]));
}

/// The queue's limits; true if it says "write back" (mmc_blk_alloc_req).
fn queue(sysfs: &FakeSysfs, disk: &str, card: &Card) -> bool {
    let set = |file: &str, text: &str| sysfs.set(&format!("{disk}/queue/{file}"), text);
    let ext = card.ext_csd();
    let fua = ext.0[index::WR_REL_PARAM] & EN_REL_WR != 0 || ext.0[index::REL_WR_SEC_C] != 0;
    let write_back = fua || card.cache_on();
    set("fua", if fua { "1" } else { "0" });
    set("write_cache", write_cache(write_back));
    set("logical_block_size", "512");
    set("physical_block_size", "512");
    set("max_sectors_kb", "512");
    set("discard_granularity", "512");
    write_back
}
