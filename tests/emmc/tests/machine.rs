//! The raw command path of the machine behaves as the Linux MMC block driver was seen to.
#![cfg(feature = "machine")]
mod common;
use blockd::device::mmc::Reply;
use blockd::device::{Command, Storage};
use common::machine::*;
use emmc::card::{argument, bits, Config, Effect, Fault, Fields, Lies, Timing};
use emmc::machine::{Kernel, DISK};
use nix::errno::Errno;
use std::time::Duration;

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
    for (timeout, after) in [
        (Some(3000), 3000),
        (Some(2000), 2581),
        (Some(100), 161),
        (None, 10_000),
    ] {
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
