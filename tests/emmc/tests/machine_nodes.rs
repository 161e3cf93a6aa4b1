//! Nodes, claims, page caches and files of the machine; power loss.
#![cfg(feature = "machine")]
mod common;
use blockd::device::mmc::Reply;
use blockd::device::{Access, DirectBuffer, Storage};
use blockd::units::Bytes;
use common::machine::*;
use common::{us, SEED};
use emmc::card::{bits, Config, Effect, Fault, Fields, Timing};
use emmc::machine::{Cut, Event, DISK};
use emmc::store::{Pattern, SECTOR};
use nix::errno::Errno;
use std::time::Duration;

#[test]
fn claims_follow_o_excl() {
    let m = machine();
    let claim = |node| m.open_block(node, Access::Claim).map(drop);
    for node in [P1, P2, DISK] {
        assert_eq!(claim(node), Ok(()), "idle {node}");
    }
    let held = m.open_block(P2, Access::Claim).expect("claim");
    assert_eq!(claim(P2), Err(Errno::EBUSY));
    assert_eq!(claim(DISK), Err(Errno::EBUSY));
    assert_eq!(claim(P1), Ok(()));
    assert_eq!(m.open_block(P2, Access::Read).map(drop), Ok(()));
    assert_eq!(m.mount(P2, "/data"), Err(Errno::EBUSY));
    drop(held);
    m.loop_on(P2, "loop7").expect("loop");
    assert_eq!(claim(P2), Ok(()), "O_EXCL does not see loops");
    m.map_on(DISK, "dm-0", "whole").expect("dm");
    for node in [P1, P2, DISK] {
        assert_eq!(claim(node), Err(Errno::EBUSY), "dm on the disk, {node}");
    }
}

#[test]
fn dirty_pages_come_back_over_an_erase() {
    for flush_first in [false, true] {
        let m = machine();
        let user = m.open_buffered(P2).expect("open");
        user.write(100, &[0xbb; SECTOR]).expect("dirty");
        let ours = m.open_block(P2, Access::Read).expect("open");
        if flush_first {
            ours.flush_buffers().expect("BLKFLSBUF");
        }
        let mut c = sequence(Reply::R1b, None);
        multi(&m, &mut c).expect("erase");
        user.write_back().expect("write-back");
        ours.sync().expect("fdatasync");
        let back = u64::from(!flush_first);
        assert_eq!(userdata(&m), (0, SECTORS - back, back));
    }
}

/// The table of page-cache coherence: what partition and disk read after the erase.
#[test]
fn page_caches_go_stale_separately() {
    let old = Pattern { seed: SEED }.sector(START);
    let stale = |data: [u8; SECTOR]| data == old;
    for flush in [None, Some(P2), Some(DISK)] {
        let m = machine();
        let p2 = m.open_buffered(P2).expect("open");
        let disk = m.open_buffered(DISK).expect("open");
        assert!(stale(p2.read(0).expect("read")));
        assert!(stale(disk.read(START).expect("read")));
        let mut c = sequence(Reply::R1b, None);
        multi(&m, &mut c).expect("erase");
        if let Some(node) = flush {
            let block = m.open_block(node, Access::Read).expect("open");
            block.flush_buffers().expect("BLKFLSBUF");
        }
        let got = (
            stale(p2.read(0).expect("p2")),
            stale(disk.read(START).expect("disk")),
        );
        let want = (flush != Some(P2), flush != Some(DISK));
        assert_eq!(got, want, "{flush:?}");
        assert!(read(&m, P2, 0).iter().all(|b| *b == 0), "O_DIRECT");
        // the last close drops the cache
        drop(p2);
        let again = m.open_buffered(P2).expect("open");
        assert!(!stale(again.read(0).expect("read")));
    }
}

#[test]
fn direct_io_is_checked_and_goes_to_the_card() {
    let m = machine();
    let block = m.open_block(P2, Access::Claim).expect("claim");
    assert_eq!(block.size(), Ok(Bytes(SECTORS * 512)));
    let mut buffer = DirectBuffer::new(1 << 20);
    m.reset_logs();
    buffer.fill(7);
    block.write_at(Bytes(512), &buffer[..1024]).expect("write");
    block.write_at(Bytes(4096), &buffer[..512]).expect("write");
    block.read_at(Bytes(0), &mut buffer).expect("read");
    let log = m.log();
    let sent: Vec<(u8, u32)> = log
        .entries
        .iter()
        .filter(|e| e.command != 13)
        .map(|e| (e.command, e.argument))
        .collect();
    let s = START as u32;
    assert_eq!(
        sent,
        [
            (23, 2),
            (25, s + 1),
            (24, s + 8),
            (23, 1024),
            (18, s),
            (23, 1024),
            (18, s + 1024)
        ]
    );
    assert_eq!((buffer[512], buffer[1535], buffer[4096]), (7, 7, 7));
    assert_eq!(userdata(&m).2, 0, "in the cache of the card only");
    block.sync().expect("fdatasync");
    assert_eq!(userdata(&m).2, 3);
    // alignment of offset, length and memory; the end; read-only
    let e = block.read_at(Bytes(100), &mut buffer[..512]);
    assert_eq!(e, Err(Errno::EINVAL));
    assert_eq!(
        block.read_at(Bytes(0), &mut buffer[..100]),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        block.read_at(Bytes(0), &mut buffer[1..513]),
        Err(Errno::EINVAL)
    );
    let end = Bytes(SECTORS * 512);
    assert_eq!(block.read_at(end, &mut buffer[..512]), Err(Errno::EIO));
    m.set_read_only(P2, true).expect("ro");
    assert_eq!(block.read_only(), Ok(true));
    assert_eq!(block.write_at(Bytes(0), &buffer[..512]), Err(Errno::EPERM));
    // an error bit in the response of a data command is EIO
    m.with_card(|c| c.inject(Fault::new(17, 1, Effect::Response(bits::ERROR))));
    let e = block.read_at(Bytes(0), &mut buffer[..512]);
    assert_eq!(e, Err(Errno::EIO));
}

/// (cache, REL_WR_SEC_C, EN_REL_WR, queue turned to write through) →
/// (fua, write_cache, fdatasync sends FLUSH_CACHE).
#[test]
fn fdatasync_follows_the_queue_and_the_card() {
    let table = [
        (32768, 1, 0x14, false, ("1", "write back", true)),
        (0, 1, 0x10, false, ("1", "write back", false)),
        (32768, 0, 0x10, false, ("0", "write back", true)),
        (0, 0, 0x10, false, ("0", "write through", false)),
        (32768, 1, 0x14, true, ("1", "write through", false)),
    ];
    for (cache_size_kibit, rel_wr_sec_c, wr_rel_param, through, want) in table {
        let fields = Fields {
            cache_size_kibit,
            rel_wr_sec_c,
            wr_rel_param,
            ..Fields::default()
        };
        let m = machine_of(fields.into());
        if through {
            m.set_write_back(false);
        }
        let file = |f: &str| {
            let path = format!("/sys/block/{DISK}/queue/{f}");
            m.sysfs().read(&path).expect("sysfs")
        };
        let block = m.open_block(P2, Access::Claim).expect("claim");
        block.sync().expect("fdatasync");
        let flushed = m.log().counters.flushes == 1;
        let got = (file("fua"), file("write_cache"), flushed);
        assert_eq!(got, (want.0.to_owned(), want.1.to_owned(), want.2));
    }
}

#[test]
fn sysfs_looks_like_a_kernel_s() {
    let m = machine();
    let read = |path: &str| m.sysfs().read(path).expect("read");
    assert_eq!(read("/sys/class/block/mmcblk0p2/start"), "8192");
    assert_eq!(read("/sys/block/mmcblk0/mmcblk0p2/size"), "8192");
    assert_eq!(read("/sys/class/block/mmcblk0p2/dev"), "179:2");
    let uevent = read("/sys/class/block/mmcblk0p2/uevent");
    assert!(uevent.lines().any(|l| l == "PARTNAME=userdata"));
    assert_eq!(read("/sys/block/mmcblk0/device/type"), "MMC");
    assert_eq!(read("/sys/block/mmcblk0/device/manfid"), "0x0000fe");
    assert_eq!(read("/sys/block/mmcblk0/device/erase_size"), "524288");
    assert_eq!(
        read("/sys/block/mmcblk0/device/cid"),
        "fe01425253454d4d43511badcafeb900"
    );
    assert_eq!(
        read("/sys/block/mmcblk0/device/csd"),
        "d0270132075903ffffffffff8a400000"
    );
    let sysfs = m.sysfs();
    assert_eq!(sysfs.list("/sys/block").expect("list"), ["mmcblk0"]);
    assert_eq!(
        sysfs.list("/sys/class/block").expect("list"),
        ["mmcblk0", "mmcblk0p1", "mmcblk0p2"]
    );
    let parent = sysfs.resolved_name("/sys/class/block/mmcblk0p2/..");
    assert_eq!(parent.expect("link"), "mmcblk0");
    assert!(!sysfs.exists("/sys/class/block/mmcblk0/partition"));
    assert!(sysfs.read("/sys/block/mmcblk9/size").is_err());

    m.mount(P1, "/misc").expect("mount");
    m.map_on(P2, "dm-3", "userdata_crypt").expect("dm");
    m.loop_on(P2, "loop7").expect("loop");
    assert!(read("/proc/self/mountinfo").contains("179:1 / /misc"));
    assert_eq!(
        sysfs
            .list("/sys/class/block/mmcblk0p2/holders")
            .expect("list"),
        ["dm-3"]
    );
    assert_eq!(read("/sys/class/block/dm-3/dm/name"), "userdata_crypt");
    assert_eq!(
        read("/sys/block/loop7/loop/backing_file"),
        "/dev/block/mmcblk0p2"
    );
    m.files()
        .deny("/sys/block/mmcblk0/device/manfid", Errno::EACCES);
    let e = sysfs.read("/sys/block/mmcblk0/device/manfid");
    let e = e.expect_err("denied");
    assert_eq!(e.raw_os_error(), Some(Errno::EACCES as i32));
}

#[test]
fn power_cuts_tear_and_reboots_keep_the_medium() {
    let timing = Timing {
        erase_group_us: 1000,
        ..Timing::zero()
    };
    let config = Config {
        timing,
        ..Fields::default().into()
    };
    let m = machine_of(config);
    let now = m.now();
    m.cut_power(Cut::At(now + us(2500)));
    let mut c = sequence(Reply::R1b, Some(Duration::from_secs(60)));
    assert_eq!(multi(&m, &mut c), Err(Errno::ETIMEDOUT));
    assert!(!m.powered());
    assert_eq!(userdata(&m), (SECTORS - 2048, 2048, 0));
    let block = m.open_block(P2, Access::Read).expect("open");
    let mut buffer = DirectBuffer::new(SECTOR);
    assert_eq!(block.read_at(Bytes(0), &mut buffer), Err(Errno::EIO));
    drop(block);
    m.reboot().expect("reboot");
    assert!(read(&m, P2, 2047).iter().all(|b| *b == 0));

    // before the card hears CMD38
    let m = machine();
    m.cut_power(Cut::BeforeCommand(3));
    let mut c = sequence(Reply::R1b, None);
    assert_eq!(multi(&m, &mut c), Err(Errno::ETIMEDOUT));
    assert_eq!((m.powered(), m.log().count(38)), (false, 0));
    m.reboot().expect("reboot");
    assert_eq!(userdata(&m), (SECTORS, 0, 0));
}

#[test]
fn the_journal_has_the_order_of_everything() {
    let m = machine();
    m.reset_logs();
    let block = m.open_block(P2, Access::Claim).expect("claim");
    let buffer = DirectBuffer::new(SECTOR);
    block.write_at(Bytes(512), &buffer).expect("write");
    block.flush_buffers().expect("BLKFLSBUF");
    let mut c = sequence(Reply::R1b, None);
    multi(&m, &mut c).expect("erase");
    drop(block);
    let node = || P2.to_owned();
    let want = [
        Event::Open {
            node: node(),
            claim: true,
            errno: 0,
        },
        Event::Write {
            node: node(),
            sector: START + 1,
            sectors: 1,
        },
        Event::FlushBuffers { node: node() },
        Event::Ioctl {
            multi: true,
            commands: c.iter().map(|c| (c.index, c.argument)).collect(),
            errno: 0,
        },
        Event::Close { node: node() },
    ];
    assert_eq!(m.journal().events, want);
}

#[test]
fn direct_io_and_the_page_cache_of_one_node_agree() {
    let m = machine();
    let user = m.open_buffered(P2).expect("open");
    let block = m.open_block(P2, Access::Claim).expect("claim");
    let mut buffer = DirectBuffer::new(SECTOR);
    // a direct write drops the page
    user.read(5).expect("cached");
    buffer.fill(7);
    block.write_at(Bytes(5 * 512), &buffer).expect("write");
    assert_eq!(user.read(5).expect("read"), [7; SECTOR]);
    // a direct read writes the page back first
    user.write(5, &[8; SECTOR]).expect("dirty");
    block.read_at(Bytes(5 * 512), &mut buffer).expect("read");
    assert_eq!(buffer[..], [8; SECTOR]);
    // fdatasync writes all dirty pages, and nothing of another node
    let disk = m.open_buffered(DISK).expect("open");
    disk.write(0, &[9; SECTOR]).expect("dirty");
    user.write(6, &[9; SECTOR]).expect("dirty");
    m.reset_logs();
    block.sync().expect("fdatasync");
    let want = [
        Event::WriteBack {
            node: P2.to_owned(),
            sector: START + 6,
            sectors: 1,
        },
        Event::Sync {
            node: P2.to_owned(),
            flushed: true,
        },
    ];
    assert_eq!(m.journal().events, want);
}

#[test]
fn a_reboot_loses_dirty_pages_and_claims() {
    let m = machine();
    let user = m.open_buffered(P2).expect("open");
    user.write(5, &[8; SECTOR]).expect("dirty");
    m.mount(P1, "/misc").expect("mount");
    m.reboot().expect("reboot");
    drop(user);
    let old = Pattern { seed: SEED }.sector(START + 5);
    assert_eq!(read(&m, P2, 5)[..], old);
    assert_eq!(m.open_block(P1, Access::Claim).map(drop), Ok(()));
}
