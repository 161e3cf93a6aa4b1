//! Reports of people whose erase went wrong, replayed: the input that showed the fault, and what must
//! happen instead. Those that need more than this stand elsewhere: cards that die by secure erase
//! (`quirks_are_the_kernel_s`), mounted targets (`refuses_targets_in_use`), protected names and ranges
//! that cross into a neighbour (`refuses_requests`), cards without secure erase
//! (`auto_takes_the_strongest`), 44,000 commands instead of one (`twenty_two_gib_in_one_command`).

use super::layout::{
    expect_erased_exactly, expect_untouched, machine, place, plain, plain_fields, reset, run, GROUP,
};
use crate::case::{Case, Outcome};
use blockd::error::Code;
use blockd::reset::request::Request;
use blockd::units::Bytes;
use emmc::card::{Card, Config, Effect, Fault, Timing};
use emmc::machine::{Kernel, Machine, Partition};
use emmc::store::{MemStore, NamedRange, Pattern};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "reset::case_a_partition_that_starts_inside_a_group",
            inside_a_group,
        ),
        Case::new(
            "reset::case_a_card_that_is_busy_for_a_minute",
            busy_for_a_minute,
        ),
        Case::new("reset::case_a_register_that_is_late", late_register),
        Case::new(
            "reset::case_a_kernel_name_instead_of_a_partition",
            kernel_name,
        ),
        Case::new("reset::case_the_last_16_kib", footer),
    ]
}

/// Erasing one partition destroyed most of the one before it: it starts at sector 67592, 8 sectors into
/// a group that it shares.
fn inside_a_group() -> Outcome {
    let config: Config = plain_fields().into();
    let store = MemStore::with_pattern(config.ext_csd.sectors(), Pattern { seed: 7 });
    let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
    let table = [
        Partition::new("persist", 65_536, 67_592 - 65_536),
        Partition::new("userdata", 67_592, 4096),
        Partition::new("frp", 71_688, 4096),
    ];
    let machine = Machine::new(card, &table).map_err(|e| e.to_string())?;
    let report = reset(&machine, "userdata").map_err(|e| e.to_string())?;
    let named: Vec<i64> = report.targets[0]
        .commands
        .iter()
        .filter(|c| matches!(c.index, 35 | 36))
        .map(|c| i64::from(c.argument))
        .collect();
    assert_eq!(
        named,
        [68_608, 71_679],
        "groups 67 to 69, both ends inclusive"
    );
    assert_eq!(report.targets[0].overwritten, Bytes((1016 + 8) * 512));
    let scan = machine
        .report(&[
            NamedRange::new("persist", 65_536, 2056),
            NamedRange::new("userdata", 67_592, 4096),
            NamedRange::new("frp", 71_688, 4096),
        ])
        .map_err(|e| e.to_string())?
        .scan;
    assert_eq!(scan.ranges[0].pattern, 2056);
    assert_eq!(scan.ranges[1].erased, 4096);
    assert_eq!(scan.ranges[2].pattern, 4096);
    Ok(())
}

/// A tool gave up after 30 s and sent the erase again while the card was still at it.
fn busy_for_a_minute() -> Outcome {
    let timing = Timing {
        erase_us: 60_000_000,
        ..Timing::zero()
    };
    // 300 ms × 4 × 2 × 64 groups = 154 s may pass.
    let fields = emmc::card::ext_csd::Fields {
        erase_timeout_mult: 4,
        sec_erase_mult: 2,
        ..plain_fields()
    };
    for kernel in [Kernel::V4_14, Kernel::V5_10, Kernel::V5_15, Kernel::V6_12] {
        let machine = machine(Config {
            timing,
            ..fields.into()
        });
        machine.set_kernel(kernel);
        let report = reset(&machine, "userdata").map_err(|e| format!("{kernel:?}: {e}"))?;
        expect_erased_exactly(&machine, &["userdata"]);
        assert_eq!(machine.log().count(38), 1, "{kernel:?}: sent once");
        assert!(report.targets[0].erase_time >= Duration::from_secs(60));
    }
    Ok(())
}

/// EXT_CSD was not readable for 0.6 to 2.6 s after an erase.
fn late_register() -> Outcome {
    let machine = machine(plain());
    for nth in 1..=3 {
        machine.with_card(|card| card.inject(Fault::new(8, nth, Effect::Deaf)));
    }
    reset(&machine, "userdata").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata"]);
    // For ever is a fault of the card.
    let dead = super::layout::machine(plain());
    for nth in 1..=100 {
        dead.with_card(|card| card.inject(Fault::new(8, nth, Effect::Deaf)));
    }
    let failure = reset(&dead, "userdata").err().ok_or("it passed")?;
    assert_eq!(failure.code, Code::DeviceFailed, "{failure:?}");
    assert!(failure.message.contains("CMD8"), "{failure:?}");
    assert!(failure.message.contains(" s"), "says how long: {failure:?}");
    expect_untouched(&dead);
    Ok(())
}

/// Commands were sent to a partition's node, which the kernel refuses, and to an SD card.
fn kernel_name() -> Outcome {
    let machine = machine(plain());
    let failure = reset(&machine, "mmcblk0p1").err().ok_or("it passed")?;
    assert_eq!(failure.code, Code::NoSuchPartition, "{failure:?}");
    assert!(
        failure.remedy.contains("userdata") || failure.message.contains("userdata"),
        "{failure:?}"
    );
    expect_untouched(&machine);
    Ok(())
}

/// Old devices keep the key in the last 16 KiB, which the format leaves out: the erase does not.
fn footer() -> Outcome {
    let machine = machine(plain());
    let userdata = place("userdata");
    reset(&machine, "userdata").map_err(|e| e.to_string())?;
    let last = NamedRange::new("footer", userdata.start + userdata.sectors - 32, 32);
    let scan = machine.report(&[last]).map_err(|e| e.to_string())?.scan;
    assert_eq!(scan.ranges[0].erased, 32);
    // Where somebody asks to keep them they are kept, to the sector.
    let machine = super::layout::machine(plain());
    let kept = Request {
        length: Some(Bytes((userdata.sectors - 32) * 512)),
        ..Request::new(&["userdata"])
    };
    let report = run(&machine, &kept).map_err(|e| e.to_string())?;
    assert_eq!(report.targets[0].overwritten, Bytes((GROUP - 32) * 512));
    let last = NamedRange::new("footer", userdata.start + userdata.sectors - 32, 32);
    let scan = machine.report(&[last]).map_err(|e| e.to_string())?.scan;
    assert_eq!(scan.ranges[0].pattern, 32);
    Ok(())
}
