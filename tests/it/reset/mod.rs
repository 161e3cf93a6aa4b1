//! Factory reset in process: the product's whole path over the card model, in virtual time.

mod cases;
mod company;
mod cuts;
mod fault_table;
mod faults;
pub mod layout;
mod markers;
mod methods;
mod ranges;
mod refusals;
mod registers;
pub mod wrapped;

use crate::case::{Case, Outcome};
use blockd::reset::request::{Assurance, Logical, Physical, Request, Verify};
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Config, Timing};
use emmc::machine::{Event, Machine, Partition};
use emmc::store::{MemStore, NamedRange, Pattern};
use layout::{expect_erased_exactly, machine, place, plain, plain_fields, reset, run, GROUP};
use std::sync::{Arc, Mutex};
use wrapped::{Fault, Wrapped};

const SECURE_ERASE: u32 = 0x8000_0000;

/// The cases.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("reset::aligned_is_one_command", aligned),
        Case::new("reset::ragged_edges_are_overwritten_never_widened", ragged),
        Case::new("reset::a_range_without_a_whole_group_is_overwritten", tiny),
        Case::new("reset::a_part_of_a_partition", part),
        Case::new("reset::several_targets", several),
        Case::new("reset::byte_addressed_cards", byte_addressed),
        Case::new("reset::large_groups", large_groups),
        Case::new("reset::erased_value_ff", erased_value),
        Case::new("reset::dirty_pages_do_not_come_back", dirty_pages),
        Case::new("reset::caches_that_are_not_dropped_fail_that", stale_caches),
        Case::new("reset::cached_pages_do_not_hide_the_erase", cached_pages),
        Case::new("reset::write_through_flushes_by_cmd6", write_through),
        Case::new("reset::the_order_of_the_steps", order),
        Case::new("reset::full_verification", full),
        Case::new("reset::progress_is_told", progress),
        Case::new("reset::twenty_two_gib_in_one_command", twenty_two_gib),
    ];
    cases.extend(ranges::cases());
    cases.extend(refusals::cases());
    cases.extend(faults::cases());
    cases.extend(fault_table::cases());
    cases.extend(registers::cases());
    cases.extend(methods::cases());
    cases.extend(cases::cases());
    cases.extend(company::cases());
    cases.extend(markers::cases());
    cases.extend(cuts::cases());
    cases
}

fn aligned() -> Outcome {
    let machine = machine(plain());
    let report = reset(&machine, "userdata").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata"]);
    let userdata = place("userdata");
    let log = machine.log();
    assert_eq!((log.count(35), log.count(36), log.count(38)), (1, 1, 1));
    assert_eq!(log.erases(SECURE_ERASE).sectors, userdata.sectors);
    assert_eq!(machine.journal().calls.multi_cmd_ioctls, 1);
    let target = &report.targets[0];
    assert_eq!(target.erased, Bytes(userdata.sectors * 512));
    assert_eq!(target.overwritten, Bytes(0));
    assert_eq!(target.canaries_found + target.samples_wrong, 0);
    assert!(
        target.canaries >= 256 && target.neighbours >= 2,
        "{target:?}"
    );
    assert_eq!(report.logical, Logical::Verified);
    assert_eq!(report.physical, Physical::SecureErase);
    assert_eq!(report.assurance, Assurance::Purge);
    let arguments: Vec<(u8, u32)> = target
        .commands
        .iter()
        .map(|c| (c.index, c.argument))
        .collect();
    let (first, last) = (userdata.start, userdata.start + userdata.sectors - 1);
    assert_eq!(
        arguments[..3],
        [(35, first as u32), (36, last as u32), (38, SECURE_ERASE)]
    );
    Ok(())
}

fn ragged() -> Outcome {
    let machine = machine(plain());
    let report = reset(&machine, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    assert_eq!(machine.log().count(38), 1);
    let ragged = place("ragged");
    let head = GROUP - ragged.start % GROUP;
    let tail = (ragged.start + ragged.sectors) % GROUP;
    let target = &report.targets[0];
    assert_eq!(target.overwritten, Bytes((head + tail) * 512));
    assert_eq!(target.erased, Bytes((ragged.sectors - head - tail) * 512));
    // The rest of both shared groups was compared.
    let around = (ragged.start % GROUP) + (GROUP - tail);
    assert_eq!(u64::from(target.neighbours), around);
    assert_eq!(
        report.assurance,
        Assurance::Clear,
        "edges are only overwritten"
    );
    assert_eq!(report.physical, Physical::None, "the least over all parts");
    Ok(())
}

fn tiny() -> Outcome {
    let machine = machine(plain());
    let report = reset(&machine, "tiny").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["tiny"]);
    assert_eq!(machine.log().count(38), 0);
    assert_eq!(report.physical, Physical::None);
    assert_eq!(report.assurance, Assurance::Clear);
    Ok(())
}

fn part() -> Outcome {
    let machine = machine(plain());
    let request = Request {
        offset: Bytes(GROUP * 512),
        length: Some(Bytes(2 * GROUP * 512)),
        ..Request::new(&["userdata"])
    };
    let report = run(&machine, &request).map_err(|e| e.to_string())?;
    assert_eq!(report.targets[0].erased, Bytes(2 * GROUP * 512));
    let log = machine.log();
    assert_eq!(log.erases(SECURE_ERASE).sectors, 2 * GROUP);
    assert_eq!(
        report.targets[0].start,
        Bytes((place("userdata").start + GROUP) * 512)
    );
    Ok(())
}

fn several() -> Outcome {
    let machine = machine(plain());
    let request = Request::new(&["userdata", "ragged"]);
    let report = run(&machine, &request).map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata", "ragged"]);
    assert_eq!(machine.log().count(38), 2);
    assert_eq!(report.targets.len(), 2);
    Ok(())
}

fn byte_addressed() -> Outcome {
    let fields = Fields {
        sectors: 1 << 21,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    let report = reset(&machine, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    let first = report.targets[0].commands[0].argument;
    assert_eq!(u64::from(first) % (GROUP * 512), 0, "a byte address");
    assert!(u64::from(first) / 512 >= place("ragged").start);
    Ok(())
}

fn large_groups() -> Outcome {
    let fields = Fields {
        hc_erase_grp_size: 8,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    reset(&machine, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    assert_eq!(machine.log().erases(SECURE_ERASE).sectors % (8 * GROUP), 0);
    Ok(())
}

fn erased_value() -> Outcome {
    let fields = Fields {
        erased_mem_cont: 1,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    reset(&machine, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    Ok(())
}

fn dirty_pages() -> Outcome {
    let after = written_back_after(Fault::None)?;
    after.map_err(|e| format!("old data came back: {e}"))
}

/// The suite's own proof: what is not dropped comes back, and is found.
fn stale_caches() -> Outcome {
    match written_back_after(Fault::Stale)? {
        Err(_) => Ok(()),
        Ok(()) => Err("caches that were not dropped went unseen".to_owned()),
    }
}

/// Dirty pages of two openers, a reset, and then the kernel's own write-back. What the scan of the
/// whole medium says.
fn written_back_after(fault: Fault) -> Result<Outcome, String> {
    let machine = machine(plain());
    let user = machine
        .open_buffered("mmcblk0p1")
        .map_err(|e| e.to_string())?;
    user.write(2 * GROUP, &[0xbb; 4096])
        .map_err(|e| e.to_string())?;
    let disk = machine
        .open_buffered("mmcblk0")
        .map_err(|e| e.to_string())?;
    let inside = place("userdata").start + 3 * GROUP;
    disk.write(inside, &[0xcc; 4096])
        .map_err(|e| e.to_string())?;
    let storage = Wrapped::new(&machine).leave_out(fault);
    Arc::new(Reset::new(Arc::new(storage)))
        .run(&Request::new(&["userdata"]), None)
        .map_err(|e| e.to_string())?;
    // What the kernel would write back later.
    user.write_back().map_err(|e| e.to_string())?;
    disk.write_back().map_err(|e| e.to_string())?;
    let userdata = place("userdata");
    let range = NamedRange::new("userdata", userdata.start, userdata.sectors);
    let report = machine.report(&[range]).map_err(|e| e.to_string())?;
    let found = &report.scan.ranges[0];
    Ok(if found.erased == userdata.sectors && found.dirty == 0 {
        expect_erased_exactly(&machine, &["userdata"]);
        Ok(())
    } else {
        Err(format!("{found:?}"))
    })
}

fn cached_pages() -> Outcome {
    let machine = machine(plain());
    let user = machine
        .open_buffered("mmcblk0p1")
        .map_err(|e| e.to_string())?;
    let disk = machine
        .open_buffered("mmcblk0")
        .map_err(|e| e.to_string())?;
    let inside = place("userdata").start + 5;
    assert_ne!(user.read(5).map_err(|e| e.to_string())?, [0; 512]);
    assert_ne!(disk.read(inside).map_err(|e| e.to_string())?, [0; 512]);
    reset(&machine, "userdata").map_err(|e| e.to_string())?;
    assert_eq!(user.read(5).map_err(|e| e.to_string())?, [0; 512]);
    assert_eq!(disk.read(inside).map_err(|e| e.to_string())?, [0; 512]);
    Ok(())
}

fn write_through() -> Outcome {
    let machine = machine(plain());
    machine.set_write_back(false);
    reset(&machine, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    assert!(
        machine.log().counters.flushes >= 3,
        "canaries, both edge passes"
    );
    Ok(())
}

/// Claims before anything else, both caches dropped before and after, nothing between 35 and 38,
/// canaries before the erase, reading after it.
fn order() -> Outcome {
    let machine = machine(plain());
    reset(&machine, "userdata").map_err(|e| e.to_string())?;
    let events = machine.journal().events;
    let position = |what: &str, test: &dyn Fn(&Event) -> bool| {
        events.iter().position(test).ok_or(format!("no {what}"))
    };
    let last = |test: &dyn Fn(&Event) -> bool| events.iter().rposition(test).unwrap_or(0);
    let claim = position("claim", &|e| matches!(e, Event::Open { claim: true, .. }))?;
    let write = position("write", &|e| matches!(e, Event::Write { .. }))?;
    let erase = position("erase", &|e| matches!(e, Event::Ioctl { multi: true, .. }))?;
    let is_flush = |node: &'static str| move |e: &Event| matches!(e, Event::FlushBuffers { node: n } if n == node);
    for node in ["mmcblk0p1", "mmcblk0"] {
        let flushed = is_flush(node);
        assert!(
            position("flush", &flushed)? < write,
            "flushed before the first write"
        );
        assert!(last(&flushed) > erase, "dropped after the erase");
        assert!(
            last(&|e| matches!(e, Event::Read { .. })) > last(&flushed),
            "read back after that"
        );
    }
    assert!(claim < position("flush", &is_flush("mmcblk0p1"))?);
    assert!(last(&|e| matches!(e, Event::Write { .. })) < erase);
    let synced = events[write..erase]
        .iter()
        .any(|e| matches!(e, Event::Sync { flushed: true, .. }));
    assert!(synced, "the canaries are on the medium before the erase");
    Ok(())
}

fn full() -> Outcome {
    let request = Request {
        verify: Verify::Full,
        ..Request::new(&["userdata"])
    };
    let honest = machine(plain());
    run(&honest, &request).map_err(|e| e.to_string())?;
    let mut config = plain();
    // One group that no seeded sample need hit: full verification must.
    config.lies.skip_groups = vec![place("userdata").start / GROUP + 33];
    let lying = machine(config);
    let failure = run(&lying, &request)
        .err()
        .ok_or("a skipped group passed")?;
    assert_eq!(failure.code.name(), "NOT_VERIFIED");
    Ok(())
}

fn progress() -> Outcome {
    let machine = machine(plain());
    let reset = Arc::new(Reset::new(Arc::new(machine)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let observer = Box::new(move |status: &blockd::reset::board::Status| {
        told.lock().expect("no panic").push(status.step);
    });
    reset
        .run(&Request::new(&["userdata"]), Some(observer))
        .map_err(|e| e.to_string())?;
    assert_eq!(reset.status().state.name(), "done");
    Ok(())
}

/// The seed's card and range: 44k commands took 20 minutes, one takes 1.4 s.
fn twenty_two_gib() -> Outcome {
    const GROUPS: u64 = 45_056;
    let mut config: Config = Fields {
        sectors: 24 << 21,
        ..plain_fields()
    }
    .into();
    config.timing = Timing::seed_card();
    let store = MemStore::with_pattern(24 << 21, Pattern { seed: 1 });
    let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
    let table = [Partition::new("userdata", GROUP, GROUPS * GROUP)];
    let machine = Machine::new(card, &table).map_err(|e| e.to_string())?;
    let report = reset(&machine, "userdata").map_err(|e| e.to_string())?;
    assert_eq!(machine.log().count(38), 1);
    let seconds = machine.log().busy_of(38).as_secs_f64();
    assert!((1.3..1.5).contains(&seconds), "modelled {seconds} s");
    assert!(report.targets[0].erase_time.as_secs_f64() < 1.6);
    Ok(())
}
