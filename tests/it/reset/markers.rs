//! The restart marker: written before anything is destroyed, withdrawn where nothing was, kept until
//! `finish`, never taken from somebody else; and pending updates.

use super::layout::{self, expect_untouched, machine, place, plain, run};
use super::wrapped::Wrapped;
use crate::case::{Case, Outcome};
use blockd::device::{Access, DirectBuffer, Storage};
use blockd::error::Code;
use blockd::reset::marker::{parse, Found, SECTOR};
use blockd::reset::request::{Marker, MarkerFile, Request};
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::{Effect, Fault};
use emmc::machine::{Event, Machine};
use std::sync::Arc;

const MISC: &str = "mmcblk0p5";

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::the_marker_lies_before_the_first_write", before),
        Case::new(
            "reset::the_marker_is_withdrawn_where_nothing_was_touched",
            withdrawn,
        ),
        Case::new("reset::the_marker_stays_after_a_failure", stays),
        Case::new("reset::finish_removes_only_our_marker", finish),
        Case::new("reset::foreign_messages_are_left_alone", foreign),
        Case::new("reset::the_third_failure_stops", attempts),
        Case::new("reset::a_marker_in_a_file", file),
        Case::new("reset::a_pending_reset_is_not_forgotten", pending),
        Case::new("reset::recovery_is_told_no_more_than_was_asked_for", told),
        Case::new("reset::a_marker_that_stays_is_told_of", told_of),
        Case::new("reset::pending_updates_are_refused", updates),
    ]
}

/// A machine whose misc is empty, as it is on a phone.
fn phone() -> Result<Machine, String> {
    let machine = machine(plain());
    write(&machine, 0, &[0; 2048])?;
    write(&machine, 32 * 1024, &[0; 512])?;
    machine.reset_logs();
    Ok(machine)
}

fn write(machine: &Machine, offset: u64, data: &[u8]) -> Outcome {
    let block = machine
        .open_block(MISC, Access::Update)
        .map_err(|e| e.to_string())?;
    let mut buffer = DirectBuffer::new(data.len());
    buffer.copy_from_slice(data);
    block
        .write_at(Bytes(offset), &buffer)
        .map_err(|e| e.to_string())
}

fn message(machine: &Machine) -> Result<[u8; SECTOR], String> {
    layout::message(machine, MISC)
}

fn found(machine: &Machine) -> Result<Found, String> {
    message(machine).map(|sector| parse(&sector))
}

fn request() -> Request {
    Request {
        marker: Marker::Misc,
        ..Request::new(&["userdata"])
    }
}

fn before() -> Outcome {
    let machine = phone()?;
    let report = run(&machine, &request()).map_err(|e| e.to_string())?;
    let misc = place("misc").start;
    let writes: Vec<u64> = machine
        .journal()
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Write { sector, .. } => Some(*sector),
            _ => None,
        })
        .collect();
    assert_eq!(writes[0], misc, "the marker is the first write");
    assert!(
        writes[1..].iter().all(|sector| *sector != misc),
        "and the only one in misc"
    );
    let ours = Found::Ours {
        token: report.token.clone(),
        attempts: 1,
        targets: vec!["userdata".to_owned()],
    };
    assert_eq!(found(&machine)?, ours, "it stays until finish");
    assert!(
        machine.log().counters.reliable_writes >= 1,
        "it cannot tear"
    );
    Ok(())
}

fn withdrawn() -> Outcome {
    // The claim's recheck finds the plan stale: nothing was touched.
    let machine = phone()?;
    let before = message(&machine)?;
    // The first canary cannot be written: that is the first command that destroys.
    machine.with_card(|card| card.inject(Fault::new(24, 1, Effect::Refuse(1 << 19))));
    let failure = run(&machine, &request()).err().ok_or("it passed")?;
    assert_eq!(failure.step, "canaries", "{failure:?}");
    // A canary that failed may have been written: the marker stays.
    assert!(matches!(found(&machine)?, Found::Ours { .. }));

    let machine = phone()?;
    let reset = Arc::new(Reset::new(Arc::new(machine.clone())));
    let held = machine
        .open_block(MISC, Access::Update)
        .map_err(|e| e.to_string())?;
    let failure = reset.run(&request(), None).err().ok_or("misc was held")?;
    assert_eq!(
        (failure.code, failure.step.as_str()),
        (Code::InUse, "marker")
    );
    drop(held);
    assert_eq!(message(&machine)?, before);
    Ok(())
}

fn stays() -> Outcome {
    let machine = phone()?;
    machine.with_card(|card| card.inject(Fault::new(38, 1, Effect::Later(1 << 19))));
    let failure = run(&machine, &request()).err().ok_or("it passed")?;
    assert_eq!(failure.step, "erase", "{failure:?}");
    assert!(matches!(found(&machine)?, Found::Ours { attempts: 1, .. }));
    // The next run goes on with the same token.
    let report = run(&machine, &request()).map_err(|e| e.to_string())?;
    match found(&machine)? {
        Found::Ours {
            token, attempts, ..
        } => assert_eq!((token, attempts), (report.token, 2)),
        other => return Err(format!("{other:?}")),
    }
    Ok(())
}

fn finish() -> Outcome {
    let machine = phone()?;
    let reset = Arc::new(Reset::new(Arc::new(machine.clone())));
    assert_eq!(reset.marker_present(), Some(false));
    reset.finish("none", None).map_err(|e| e.to_string())?;
    let report = reset.run(&request(), None).map_err(|e| e.to_string())?;
    assert_eq!(reset.marker_present(), Some(true));
    let other = reset.finish("another", None).err().ok_or("another token")?;
    assert_eq!(other.code, Code::InvalidRequest);
    assert_eq!(reset.marker_present(), Some(true));
    reset
        .finish(&report.token, None)
        .map_err(|e| e.to_string())?;
    assert_eq!(message(&machine)?, [0; SECTOR]);
    reset
        .finish(&report.token, None)
        .map_err(|e| e.to_string())?;
    Ok(())
}

fn foreign() -> Outcome {
    let text = |command: &str, recovery: &str| {
        let mut sector = [0; 512];
        sector[..command.len()].copy_from_slice(command.as_bytes());
        sector[64..64 + recovery.len()].copy_from_slice(recovery.as_bytes());
        sector
    };
    let machine = phone()?;
    let update = text("boot-recovery", "recovery\n--update_package=/x.zip\n");
    write(&machine, 0, &update)?;
    let failure = run(&machine, &request())
        .err()
        .ok_or("a foreign message passed")?;
    assert_eq!(failure.code, Code::ForeignMarker);
    assert_eq!(message(&machine)?, update);
    let reset = Reset::new(Arc::new(machine.clone()));
    let failure = reset.finish("x", None).err().ok_or("it was cleared")?;
    assert_eq!(failure.code, Code::ForeignMarker);
    assert_eq!(message(&machine)?, update);
    assert_eq!(machine.log().count(38), 0);

    // Settings asked for the wipe: recovery's own message is the marker, and stays as it is.
    let wipe = text(
        "boot-recovery",
        "recovery\n--wipe_data\n--reason=MasterClearConfirm\n",
    );
    write(&machine, 0, &wipe)?;
    run(&machine, &request()).map_err(|e| e.to_string())?;
    assert_eq!(message(&machine)?, wipe);
    Ok(())
}

fn attempts() -> Outcome {
    let machine = phone()?;
    for attempt in 1..=3 {
        machine.with_card(|card| card.inject(Fault::new(38, 1, Effect::Later(1 << 19))));
        run(&machine, &request()).err().ok_or("it passed")?;
        match found(&machine)? {
            Found::Ours { attempts, .. } => assert_eq!(attempts, attempt),
            other => return Err(format!("{other:?}")),
        }
    }
    machine.reset_logs();
    let failure = run(&machine, &request()).err().ok_or("a fourth attempt")?;
    assert_eq!(failure.code, Code::NotVerified);
    assert!(
        failure.remedy.contains("do not pass this device on"),
        "{failure:?}"
    );
    assert_eq!(machine.log().count(38), 0);
    Ok(())
}

fn file() -> Outcome {
    let machine = phone()?;
    let file = Arc::new(tempfile::tempfile().map_err(|e| e.to_string())?);
    let request = Request {
        marker: Marker::File,
        marker_file: Some(MarkerFile(Arc::clone(&file))),
        ..Request::new(&["userdata"])
    };
    let reset = Arc::new(Reset::new(Arc::new(machine.clone())));
    let report = reset.run(&request, None).map_err(|e| e.to_string())?;
    expect_erased_exactly_with_misc(&machine);
    assert_eq!(message(&machine)?, [0; SECTOR], "misc is not touched");
    let marker = MarkerFile(file);
    let other = reset
        .finish("another", Some(&marker))
        .err()
        .ok_or("another token")?;
    assert_eq!(other.code, Code::InvalidRequest);
    reset
        .finish(&report.token, Some(&marker))
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// userdata is gone; misc was emptied by the case itself.
fn expect_erased_exactly_with_misc(machine: &Machine) {
    let userdata = place("userdata");
    let report = machine
        .report(&[emmc::store::NamedRange::new(
            "userdata",
            userdata.start,
            userdata.sectors,
        )])
        .expect("the medium can be read");
    assert_eq!(report.scan.ranges[0].erased, userdata.sectors);
}

fn updates() -> Outcome {
    let record = |status: u8| {
        let mut sector = [0; 512];
        sector[..6].copy_from_slice(&[2, 0xb0, 0x0a, 0x74, 0x56, status]);
        sector
    };
    for (status, refused) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
        let machine = phone()?;
        write(&machine, 32 * 1024, &record(status))?;
        machine.reset_logs();
        let forced = Request {
            merges_done: true,
            ..Request::new(&["userdata"])
        };
        match run(&machine, &forced) {
            Err(failure) if refused => {
                assert_eq!(failure.code, Code::UpdatePending, "{failure:?}");
                assert_eq!(machine.log().count(38), 0);
            }
            Ok(_) if !refused => {}
            other => return Err(format!("{status}: {other:?}")),
        }
    }
    // misc that cannot be read: only the caller can know.
    let machine = machine(plain());
    machine.with_card(|card| {
        for nth in 1..=20 {
            card.inject(Fault::new(17, nth, Effect::Refuse(1 << 19)));
        }
    });
    let failure = run(&machine, &Request::new(&["userdata"]))
        .err()
        .ok_or("it passed")?;
    assert_eq!(failure.code, Code::UpdatePending);
    assert!(failure.remedy.contains("--merges-done"), "{failure:?}");
    expect_untouched(&machine);
    Ok(())
}

fn fail_once(machine: &Machine) {
    machine.with_card(|card| card.inject(Fault::new(38, 1, Effect::Later(1 << 19))));
}

/// A cut reset of userdata and ragged: one of userdata alone would forget ragged.
fn pending() -> Outcome {
    let machine = phone()?;
    let both = Request {
        marker: Marker::Misc,
        ..Request::new(&["userdata", "ragged"])
    };
    fail_once(&machine);
    run(&machine, &both).err().ok_or("it passed")?;
    let Found::Ours { token, targets, .. } = found(&machine)? else {
        return Err("no marker of ours".to_owned());
    };
    assert_eq!(targets, ["ragged", "userdata"]);
    machine.reset_logs();
    let failure = run(&machine, &request())
        .err()
        .ok_or("ragged was forgotten")?;
    assert_eq!(failure.code, Code::InvalidRequest);
    assert!(failure.message.contains(&token), "{failure:?}");
    assert!(failure.remedy.contains("ragged userdata"), "{failure:?}");
    assert_eq!(machine.log().count(38), 0);
    // In whatever order, and with more.
    let more = Request {
        marker: Marker::Misc,
        ..Request::new(&["ragged", "tiny", "userdata"])
    };
    let report = run(&machine, &more).map_err(|e| e.to_string())?;
    assert_eq!(report.token, token);
    match found(&machine)? {
        Found::Ours {
            attempts, targets, ..
        } => {
            assert_eq!((attempts, targets.len()), (2, 3));
        }
        other => return Err(format!("{other:?}")),
    }
    Ok(())
}

/// After a power loss recovery would wipe userdata for a marker that is about something else.
fn told() -> Outcome {
    let part = Request {
        offset: Bytes(0),
        length: Some(Bytes(1 << 20)),
        ..request()
    };
    let other = Request {
        marker: Marker::Misc,
        ..Request::new(&["ragged"])
    };
    for refused in [part, other] {
        let machine = phone()?;
        let failure = run(&machine, &refused).err().ok_or("it was written")?;
        assert_eq!(failure.code, Code::InvalidRequest, "{failure:?}");
        assert!(failure.remedy.contains("--marker"), "{failure:?}");
        assert_eq!(machine.log().counters.reliable_writes, 0);
        assert_eq!(machine.log().count(38), 0);
        // A file is read by nobody else.
        let file = MarkerFile(Arc::new(tempfile::tempfile().map_err(|e| e.to_string())?));
        let kept = Request {
            marker: Marker::File,
            marker_file: Some(file),
            ..refused
        };
        run(&machine, &kept).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The marker is written, then misc fails: the caller must know that the next boot will wipe.
fn told_of() -> Outcome {
    let machine = phone()?;
    let storage = Wrapped::new(&machine).fragile(MISC);
    let failure = Arc::new(Reset::new(Arc::new(storage)))
        .run(&request(), None)
        .err()
        .ok_or("it passed")?;
    assert_eq!(failure.step, "marker", "{failure:?}");
    let Found::Ours { token, .. } = found(&machine)? else {
        return Err("this case wants a marker that stayed".to_owned());
    };
    assert!(
        failure.message.contains("could not be withdrawn"),
        "{failure:?}"
    );
    assert!(failure.remedy.contains(&token), "{failure:?}");
    assert_eq!(machine.log().count(38), 0);
    Ok(())
}
