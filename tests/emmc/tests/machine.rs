//! The machine behaves as the Linux MMC block driver was seen to behave.
#![cfg(feature = "machine")]
mod common;
use blockd::device::mmc::Reply;
use blockd::device::{Access, Command, DirectBuffer, Storage};
use blockd::units::Bytes;
use common::{us, SEED};
use emmc::card::{argument, bits, Card, Config, Effect, Fault, Fields, Lies, Timing};
use emmc::machine::{Cut, Event, Kernel, Machine, Partition, DISK};
use emmc::store::{MemStore, NamedRange, Pattern, SECTOR};
use nix::errno::Errno;
use std::time::Duration;

const P1: &str = "mmcblk0p1";
const P2: &str = "mmcblk0p2";
/// userdata: 4 MiB from sector 8192.
const START: u64 = 8192;
const SECTORS: u64 = 8192;

fn machine_of(config: Config) -> Machine {
    let sectors = config.ext_csd.sectors();
    let store = MemStore::with_pattern(sectors, Pattern { seed: SEED });
    let card = Card::new(config, Box::new(store)).expect("configuration");
    let table = [
        Partition::new("misc", 2048, 2048),
        Partition::new("userdata", START, SECTORS),
    ];
    Machine::new(card, &table).expect("boot")
}

fn machine() -> Machine {
    machine_of(Fields::default().into())
}

fn timed(erase: Duration) -> Machine {
    let timing = Timing {
        erase_us: erase.as_micros() as u64,
        ..Timing::zero()
    };
    machine_of(Config {
        timing,
        ..Fields::default().into()
    })
}

/// CMD35/36/38 over userdata.
fn sequence(reply: Reply, timeout: Option<Duration>) -> [Command; 3] {
    let last = (START + SECTORS - 1) as u32;
    let mut commands = [
        Command::new(35, START as u32, Reply::R1),
        Command::new(36, last, Reply::R1),
        Command::new(38, argument::SECURE_ERASE, reply),
    ];
    commands[2].timeout = timeout;
    commands
}

fn multi(m: &Machine, commands: &mut [Command]) -> Result<(), Errno> {
    m.open_mmc(DISK).expect("card").multi_cmd(commands)
}

/// (still pattern, erased, other) of userdata.
fn userdata(m: &Machine) -> (u64, u64, u64) {
    let range = NamedRange::new("userdata", START, SECTORS);
    let report = m.report(&[range]).expect("scan");
    let r = report.scan.range("userdata").expect("range");
    (r.pattern, r.erased, r.other)
}

fn read(m: &Machine, node: &str, sector: u64) -> DirectBuffer {
    let block = m.open_block(node, Access::Read).expect("open");
    let mut buffer = DirectBuffer::new(SECTOR);
    let offset = Bytes(sector * SECTOR as u64);
    block.read_at(offset, &mut buffer).expect("read");
    buffer
}

#[test]
fn one_ioctl_is_one_uninterrupted_sequence() {
    let m = machine();
    m.reset_logs();
    let mut commands = sequence(Reply::R1b, Some(Duration::from_secs(60)));
    assert_eq!(multi(&m, &mut commands), Ok(()));
    let log = m.log();
    let sent: Vec<u8> = log.entries.iter().map(|e| e.command).collect();
    assert_eq!(sent, [35, 36, 38, 13]);
    assert_eq!(m.journal().calls.multi_cmd_ioctls, 1);
    assert_eq!(userdata(&m), (0, SECTORS, 0));
    assert_eq!(commands[0].response, 0x900);
}

/// cmd_timeout → (CMD13 count at least, modelled time): above the controller's limit the
/// kernel polls, below it the controller waits.
#[test]
fn long_time_outs_are_polled_short_ones_left_to_the_controller() {
    let erase = Duration::from_millis(1500);
    for (timeout, polls) in [(60_000, 20..60), (2000, 1..2)] {
        let m = timed(erase);
        m.reset_logs();
        let start = m.now();
        let mut c = sequence(Reply::R1b, Some(Duration::from_millis(timeout)));
        assert_eq!(multi(&m, &mut c), Ok(()));
        let took = m.now() - start;
        assert!(
            took >= erase && took < erase + Duration::from_millis(33),
            "{took:?}"
        );
        let count = m.log().count(13) as i32;
        assert!(polls.contains(&count), "{timeout} ms: {count} polls");
    }
}

#[test]
fn a_busy_card_outlasts_the_time_out() {
    // polled, by the controller, and by default
    for (timeout, after) in [(Some(3000), 3000), (Some(2000), 2581), (None, 10_000)] {
        let erase = Duration::from_secs(20);
        let m = timed(erase);
        let start = m.now();
        let mut c = sequence(Reply::R1b, timeout.map(Duration::from_millis));
        assert_eq!(multi(&m, &mut c), Err(Errno::ETIMEDOUT));
        let took = (m.now() - start).as_millis();
        assert!((after..after + 66).contains(&took), "{took} ms");
        assert_eq!(userdata(&m), (SECTORS, 0, 0), "not yet");
        // an own CMD13 loop sees the end
        let card = m.open_mmc(DISK).expect("card");
        let mut polls = 0;
        loop {
            let mut c = Command::send_status(1);
            card.cmd(&mut c).expect("CMD13");
            if c.response & bits::READY_FOR_DATA != 0 {
                break;
            }
            polls += 1;
            m.sleep(Duration::from_millis(100));
        }
        assert!(polls > 10);
        assert_eq!(userdata(&m), (0, SECTORS, 0));
    }
}

#[test]
fn kernels_differ_in_waiting() {
    let table = [
        (Kernel::V4_14, Ok(()), 0),
        (Kernel::V5_10, Err(Errno::ETIMEDOUT), 10_000),
        (Kernel::V5_15, Ok(()), 12_000),
        (Kernel::V6_12, Ok(()), 12_000),
    ];
    for (kernel, want, ms) in table {
        let m = timed(Duration::from_secs(12));
        m.set_kernel(kernel);
        let start = m.now();
        let mut c = sequence(Reply::R1b, Some(Duration::from_secs(60)));
        assert_eq!(multi(&m, &mut c), want, "{kernel:?}");
        let took = (m.now() - start).as_millis();
        assert!((ms..ms + 66).contains(&took), "{kernel:?}: {took} ms");
    }
}

/// Fault in CMD38 → what userspace sees with R1b and with R1, on new and old kernels.
#[test]
fn r1b_hides_the_errors_of_its_own_response() {
    let r = Fault::new(38, 1, Effect::Response(bits::ERASE_SEQ_ERROR));
    let x = Fault::new(38, 1, Effect::Later(bits::ERASE_PARAM));
    let table = [
        (r, Reply::R1b, Kernel::V6_12, 0),
        (r, Reply::R1b, Kernel::V5_15, bits::ERASE_SEQ_ERROR),
        (r, Reply::R1, Kernel::V6_12, bits::ERASE_SEQ_ERROR),
        (x, Reply::R1b, Kernel::V6_12, bits::ERASE_PARAM),
        (x, Reply::R1b, Kernel::V5_15, 0),
        (x, Reply::R1, Kernel::V6_12, 0),
    ];
    for (fault, reply, kernel, want) in table {
        let m = machine();
        m.set_kernel(kernel);
        m.with_card(|c| c.inject(fault));
        let mut c = sequence(reply, None);
        assert_eq!(multi(&m, &mut c), Ok(()), "error bits are no errno");
        let got = c[2].response & bits::ERRORS;
        assert_eq!(got, want, "{fault:?} {reply:?} {kernel:?}");
    }
}

#[test]
fn polled_responses_are_an_or_of_states() {
    let m = timed(Duration::from_millis(10));
    let mut c = sequence(Reply::R1b, Some(Duration::from_secs(60)));
    multi(&m, &mut c).expect("erase");
    assert_eq!(c[2].response, 0xe00 | 0x900);
}

#[test]
fn the_first_failing_command_ends_the_sequence() {
    let m = machine();
    m.with_card(|c| c.inject(Fault::new(36, 1, Effect::NoResponse)));
    m.reset_logs();
    let mut c = sequence(Reply::R1b, None);
    assert_eq!(multi(&m, &mut c), Err(Errno::ETIMEDOUT));
    assert_eq!(m.log().count(38), 0);
    assert_eq!((c[0].response, c[2].response), (0x900, 0));
    assert_eq!(userdata(&m), (SECTORS, 0, 0));
    // no errno for error bits: 38 is sent although 35 was refused
    let m = machine();
    let mut c = sequence(Reply::R1b, None);
    c[0].argument = u32::MAX;
    assert_eq!(multi(&m, &mut c), Ok(()));
    assert_eq!(c[0].response & bits::ERRORS, bits::OUT_OF_RANGE);
    assert_eq!(m.log().count(38), 1);
    assert_eq!(userdata(&m), (SECTORS, 0, 0));
}

#[test]
fn raw_commands_need_the_whole_disk_and_the_capability() {
    let m = machine();
    m.reset_logs();
    let on_partition = m.open_mmc(P2).expect("open");
    let mut c = sequence(Reply::R1b, None);
    assert_eq!(on_partition.multi_cmd(&mut c), Err(Errno::EPERM));
    assert_eq!(on_partition.ext_csd(), Err(Errno::EPERM));
    m.set_raw_io(false);
    assert_eq!(multi(&m, &mut c), Err(Errno::EPERM));
    assert!(m.log().entries.is_empty());
    m.set_raw_io(true);
    let mut many = vec![Command::send_status(1); 256];
    assert_eq!(multi(&m, &mut many), Err(Errno::EINVAL));
    assert_eq!(multi(&m, &mut many[..255]), Ok(()));
    assert!(matches!(m.open_mmc("mmcblk1"), Err(Errno::ENOENT)));
    // nothing else is asked: read-only and mounted are no obstacle
    m.set_read_only(DISK, true).expect("ro");
    m.mount(P2, "/data").expect("mount");
    let mut c = sequence(Reply::R1b, None);
    assert_eq!(multi(&m, &mut c), Ok(()));
    assert_eq!(userdata(&m), (0, SECTORS, 0));
}

#[test]
fn three_ioctls_are_no_sequence_if_something_comes_between() {
    let m = machine();
    let card = m.open_mmc(DISK).expect("card");
    let [mut a, mut b, mut c] = sequence(Reply::R1b, None);
    card.cmd(&mut a).expect("35");
    card.cmd(&mut b).expect("36");
    read(&m, P1, 0);
    card.cmd(&mut c).expect("38");
    assert_eq!(userdata(&m), (SECTORS, 0, 0));
    assert_eq!(m.journal().calls.cmd_ioctls, 3);
}

#[test]
fn ext_csd_and_sanitize() {
    let m = machine();
    let card = m.open_mmc(DISK).expect("card");
    let ext = card.ext_csd().expect("CMD8");
    assert_eq!((ext[192], ext[175], ext[33]), (8, 1, 1));
    assert_eq!(card.cmd(&mut Command::switch(165, 1)), Ok(()));
    let without = Fields {
        sec_feature_support: 0x15,
        ..Fields::default()
    };
    let m = machine_of(without.into());
    let card = m.open_mmc(DISK).expect("card");
    let result = card.cmd(&mut Command::switch(165, 1));
    assert_eq!(result, Err(Errno::EOPNOTSUPP));
}

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
        "d0270132035903ffffffffff0a400000"
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

/// 22 GiB on the seed's card: one command, about 1.4 s of modelled time; the same in groups.
#[test]
fn the_seed_card_s_first_and_last_row() {
    let fields = Fields {
        sectors: 48 << 20,
        ..Fields::default()
    };
    let config = || Config {
        timing: Timing::seed_card(),
        ..fields.into()
    };
    let groups = 45056u32;
    let run = |chunk: u32| {
        let m = machine_of(config());
        m.reset_logs();
        let start = m.now();
        for first in (0..groups).step_by(chunk as usize) {
            let mut c = sequence(Reply::R1b, Some(Duration::from_secs(600)));
            c[0].argument = first * 1024;
            c[1].argument = (first + chunk) * 1024 - 1;
            multi(&m, &mut c).expect("erase");
        }
        let log = m.log();
        assert_eq!(log.erases(argument::SECURE_ERASE).sectors, 45056 * 1024);
        (
            log.count(38),
            log.busy().as_millis(),
            (m.now() - start).as_secs(),
        )
    };
    assert_eq!(run(groups), (1, 1423, 1));
    let (commands, busy, seconds) = run(1);
    assert_eq!((commands, busy), (45056, 1_195_380));
    assert!((1195..3000).contains(&seconds), "{seconds} s with polls");
}

#[test]
fn lies_are_seen_by_reading_only() {
    let lies = Lies {
        skip_every: Some(4),
        ..Lies::default()
    };
    let m = machine_of(Config {
        lies,
        ..Fields::default().into()
    });
    let mut c = sequence(Reply::R1b, None);
    assert_eq!(multi(&m, &mut c), Ok(()));
    assert_eq!(c[2].response & bits::ERRORS, 0);
    assert_eq!(userdata(&m), (2048, SECTORS - 2048, 0));
}
