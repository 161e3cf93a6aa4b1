//! Cards that fail or lie, kernels that do not wait: what is reported is what happened.

use super::layout::{
    expect_erased_exactly, expect_untouched, machine, place, plain, plain_fields, reset, GROUP,
};
use super::wrapped::{Fault as Left, Wrapped};
use crate::case::{Case, Outcome};
use blockd::device::{Access, Block, Command, Mmc, Storage, Sysfs};
use blockd::error::{Code, Failure};
use blockd::reset::report::Report;
use blockd::reset::request::{Method, Request};
use blockd::reset::Reset;
use emmc::card::ext_csd::Fields;
use emmc::card::{Config, Effect, Fault, Lies, Timing};
use emmc::machine::{Kernel, Machine};
use nix::errno::Errno;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::lying_cards_are_found_out", lies),
        Case::new("reset::errors_in_answers_are_reported", answers),
        Case::new("reset::kernels_that_do_not_wait", kernels),
        Case::new("reset::a_card_that_stays_busy", stuck),
        Case::new("reset::a_sanitize_that_timed_out_is_not_claimed", sanitize),
        Case::new("reset::a_second_run_is_refused", second),
        Case::new("reset::cancel_stops_before_the_erase", cancel),
        Case::new("reset::write_protected_groups_are_found", protected),
        Case::new("reset::boot_partitions_stay_as_they_are", boot),
        Case::new("reset::cancel_is_heard_while_the_card_is_busy", cancel_busy),
        Case::new("reset::neighbours_in_use_are_not_compared", busy_neighbour),
        Case::new(
            "reset::small_cards_that_count_either_way_are_overwritten",
            small,
        ),
    ]
}

/// The suite's own proof: a card that breaks the promise in any of these ways must fail the run.
fn lies() -> Outcome {
    let first = place("userdata").start / GROUP;
    let table = [
        (
            "skips its first group",
            "userdata",
            Lies {
                skip_groups: vec![first],
                ..Lies::default()
            },
        ),
        (
            "skips its last group",
            "userdata",
            Lies {
                skip_groups: vec![first + 63],
                ..Lies::default()
            },
        ),
        (
            "skips every fourth",
            "userdata",
            Lies {
                skip_every: Some(4),
                ..Lies::default()
            },
        ),
        (
            "skips all",
            "userdata",
            Lies {
                skip_every: Some(1),
                ..Lies::default()
            },
        ),
        (
            "widens",
            "ragged",
            Lies {
                widen_groups: 1,
                ..Lies::default()
            },
        ),
    ];
    for (what, target, lies) in &table {
        let lies = lies.clone();
        let machine = machine(Config { lies, ..plain() });
        let failure = reset(&machine, target)
            .err()
            .ok_or(format!("a card that {what} passed"))?;
        assert_eq!(failure.code, Code::NotVerified, "{what}: {failure:?}");
        assert!(failure.message.contains("sector"), "{what}: {failure:?}");
    }
    // The suite's own proof: a product that does not look at its canaries lets skipping cards pass.
    let mut passed = 0;
    for (_, target, lies) in table {
        let machine = machine(Config { lies, ..plain() });
        let storage = Wrapped::new(&machine).leave_out(Left::Blind);
        let reset = Arc::new(Reset::new(Arc::new(storage)));
        passed += u32::from(reset.run(&Request::new(&[target]), None).is_ok());
    }
    assert!(passed >= 3, "canaries are not what finds them: {passed}");
    Ok(())
}

fn answers() -> Outcome {
    const OUT_OF_RANGE: u32 = 1 << 31;
    const ERASE_SEQ_ERROR: u32 = 1 << 28;
    const ERASE_PARAM: u32 = 1 << 27;
    const WP_ERASE_SKIP: u32 = 1 << 15;
    const ERROR: u32 = 1 << 19;
    let table = [
        (35, Effect::Refuse(OUT_OF_RANGE), "OUT_OF_RANGE"),
        (36, Effect::Refuse(ERASE_PARAM), "ERASE_PARAM"),
        (38, Effect::Later(WP_ERASE_SKIP), "WP_ERASE_SKIP"),
        (38, Effect::Later(ERROR), "ERROR"),
        (35, Effect::Deaf, ""),
        (36, Effect::NoResponse, ""),
    ];
    for (command, effect, name) in table {
        let machine = machine(plain());
        machine.with_card(|card| card.inject(Fault::new(command, 1, effect)));
        let failure = reset(&machine, "userdata")
            .err()
            .ok_or(format!("CMD{command} {effect:?} passed"))?;
        let right = matches!(failure.code, Code::DeviceFailed | Code::NotVerified);
        assert!(right, "CMD{command} {effect:?}: {failure:?}");
        assert!(
            failure.message.contains(name),
            "CMD{command} {effect:?}: {failure:?}"
        );
        assert!(!failure.remedy.is_empty(), "{failure:?}");
    }
    // Another command in between (a retune) ends the sequence: it is sent once more, and said.
    let disturbed = super::layout::machine(plain());
    disturbed.with_card(|card| card.inject(Fault::new(36, 1, Effect::Refuse(ERASE_SEQ_ERROR))));
    let report = reset(&disturbed, "userdata").map_err(|e| e.to_string())?;
    expect_erased_exactly(&disturbed, &["userdata"]);
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    // Only once.
    let disturbed = super::layout::machine(plain());
    for nth in [1, 2] {
        disturbed
            .with_card(|card| card.inject(Fault::new(36, nth, Effect::Refuse(ERASE_SEQ_ERROR))));
    }
    let failure = reset(&disturbed, "userdata")
        .err()
        .ok_or("it was sent again and again")?;
    assert!(failure.message.contains("ERASE_SEQ_ERROR"), "{failure:?}");
    // Shown by CMD38's own answer, which kernels since 5.15.138 overwrite: older ones show it.
    let machine = machine(plain());
    machine.set_kernel(Kernel::V5_15);
    machine.with_card(|card| card.inject(Fault::new(36, 1, Effect::Later(ERASE_PARAM))));
    let failure = reset(&machine, "userdata")
        .err()
        .ok_or("ERASE_PARAM passed")?;
    assert!(failure.message.contains("ERASE_PARAM"), "{failure:?}");
    Ok(())
}

/// An erase of 14 s: kernels before 5.15.46 stop waiting after 10 s, 4.14 does not wait at all.
fn kernels() -> Outcome {
    for kernel in [Kernel::V4_14, Kernel::V5_10, Kernel::V5_15, Kernel::V6_12] {
        let timing = Timing {
            erase_us: 14_000_000,
            ..Timing::zero()
        };
        let machine = machine(Config { timing, ..plain() });
        machine.set_kernel(kernel);
        let report = reset(&machine, "userdata").map_err(|e| format!("{kernel:?}: {e}"))?;
        expect_erased_exactly(&machine, &["userdata"]);
        assert!(report.targets[0].erase_time.as_secs() >= 14, "{kernel:?}");
        assert_eq!(
            report.warnings.is_empty(),
            kernel != Kernel::V5_10,
            "{kernel:?}"
        );
    }
    Ok(())
}

fn stuck() -> Outcome {
    let timing = Timing {
        erase_us: 100_000_000,
        ..Timing::zero()
    };
    let machine = machine(Config { timing, ..plain() });
    let failure = reset(&machine, "userdata").err().ok_or("it passed")?;
    assert_eq!(failure.code, Code::DeviceFailed);
    assert!(failure.message.contains("busy"), "{failure:?}");
    Ok(())
}

/// Reading back cannot see whether a sanitize was done: one that timed out is not claimed.
fn sanitize() -> Outcome {
    let timing = Timing {
        sanitize_us: 5_000_000_000,
        ..Timing::zero()
    };
    let fields = Fields {
        sec_feature_support: 0x45,
        ..plain_fields()
    };
    let machine = machine(Config {
        timing,
        ..fields.into()
    });
    let failure = reset(&machine, "userdata").err().ok_or("it was claimed")?;
    assert_eq!(
        (failure.code, failure.step.as_str()),
        (Code::DeviceFailed, "sanitize")
    );
    Ok(())
}

/// A machine whose first exclusive open waits until the test lets it go on.
struct Held {
    machine: Machine,
    /// Told when the run is there, and what it waits for.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Storage for Held {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.machine.open_mmc(disk)
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        let gate = match access {
            Access::Claim => self.gate.lock().expect("no panic").take(),
            _ => None,
        };
        if let Some((there, go_on)) = gate {
            there.send(()).expect("the test listens");
            go_on.recv().expect("the test lets it go on");
        }
        self.machine.open_block(name, access)
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

/// Starts a reset, does `meanwhile` while it is held at its claim, and returns what became of it.
fn while_held(
    machine: &Machine,
    meanwhile: impl FnOnce(&Arc<Reset>) -> Outcome,
) -> Result<Result<Report, Failure>, String> {
    let (there, arrived) = channel();
    let (let_go, go_on) = channel();
    let held = Held {
        machine: machine.clone(),
        gate: Mutex::new(Some((there, go_on))),
    };
    let reset = Arc::new(Reset::new(Arc::new(held)));
    let runner = Arc::clone(&reset);
    let run = std::thread::spawn(move || runner.run(&Request::new(&["userdata"]), None));
    arrived.recv().map_err(|e| e.to_string())?;
    let result = meanwhile(&reset);
    let_go.send(()).map_err(|e| e.to_string())?;
    let run = run.join().map_err(|_| "the run panicked".to_owned())?;
    result.map(|()| run)
}

fn second() -> Outcome {
    let machine = machine(plain());
    let first = while_held(&machine, |reset| {
        assert_eq!(reset.status().state.name(), "running");
        assert_eq!(reset.status().step.map(|s| s.name()), Some("claim"));
        let second = reset.run(&Request::new(&["ragged"]), None);
        let failure = second.err().ok_or("two resets ran at once")?;
        assert_eq!(failure.code, Code::Busy);
        Ok(())
    })?;
    first.map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata"]);
    Ok(())
}

fn cancel() -> Outcome {
    let machine = machine(plain());
    let run = while_held(&machine, |reset| {
        reset.cancel();
        Ok(())
    })?;
    let failure = run.err().ok_or("a cancelled reset went on")?;
    assert_eq!(failure.code, Code::Cancelled);
    expect_untouched(&machine);
    Ok(())
}

/// A kernel that does not wait, a card that is busy for 14 s: cancel ends the waiting, not the erase.
fn cancel_busy() -> Outcome {
    let timing = Timing {
        erase_us: 14_000_000,
        ..Timing::zero()
    };
    let machine = machine(Config { timing, ..plain() });
    machine.set_kernel(Kernel::V4_14);
    let asked: Arc<OnceLock<Arc<Reset>>> = Arc::default();
    let who = Arc::clone(&asked);
    let storage = Wrapped::new(&machine).on_sleep(Box::new(move || {
        if let Some(reset) = who.get() {
            reset.cancel();
        }
    }));
    let reset = Arc::new(Reset::new(Arc::new(storage)));
    let _ = asked.set(Arc::clone(&reset));
    let failure = reset
        .run(&Request::new(&["userdata"]), None)
        .err()
        .ok_or("it waited on")?;
    assert_eq!(
        (failure.code, failure.step.as_str()),
        (Code::Cancelled, "erase")
    );
    assert!(failure.message.contains("goes on by itself"), "{failure:?}");
    assert!(
        failure.remedy.contains("run the reset again"),
        "{failure:?}"
    );
    assert_eq!(machine.log().count(38), 1, "and is not sent again");
    Ok(())
}

/// persist is mounted, its file system writes beside the range: that is no fault of the erase.
fn busy_neighbour() -> Outcome {
    let machine = machine(plain());
    let persist = place("persist");
    let compared = |report: &Report| {
        report.plan.targets[0]
            .neighbours
            .iter()
            .any(|range| range.start.0 < persist.start + persist.sectors)
    };
    let report = reset(&machine, "ragged").map_err(|e| e.to_string())?;
    assert!(compared(&report), "unused ones are compared");
    machine
        .mount("mmcblk0p2", "/persist")
        .map_err(|e| e.to_string())?;
    let report = reset(&machine, "ragged").map_err(|e| e.to_string())?;
    assert!(!compared(&report));
    assert!(report.targets[0].neighbours > 0, "those of frp still are");
    let said = report
        .plan
        .notes
        .iter()
        .any(|note| note.contains("persist") && note.contains("/persist"));
    assert!(said, "{:?}", report.plan.notes);
    Ok(())
}

/// 1 GiB, and a CSD that larger cards have: a user area made small by partitions of the card's own
/// still counts in sectors, and EXT_CSD does not tell.
fn small() -> Outcome {
    let fields = Fields {
        sectors: 1 << 21,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    machine.files().set(
        "/sys/block/mmcblk0/device/csd",
        "d04f01320f5903fffffffff7924000f2",
    );
    let failure = reset(&machine, "userdata").err().ok_or("it was guessed")?;
    assert_eq!(failure.code, Code::Unsupported);
    expect_untouched(&machine);
    let request = Request {
        method: Method::Overwrite,
        ..Request::new(&["userdata"])
    };
    super::layout::run(&machine, &request).map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata"]);
    assert_eq!(machine.log().count(35), 0);
    Ok(())
}

/// A group inside the range that the card protects: it stays, and that is said. One outside is none of
/// ours.
fn protected() -> Outcome {
    let machine = machine(plain());
    let inside = place("userdata").start + 20 * GROUP;
    machine.with_card(|card| card.protect(inside..inside + 1));
    let failure = reset(&machine, "userdata").err().ok_or("it passed")?;
    assert_eq!(failure.code, Code::DeviceFailed, "{failure:?}");
    let other = super::layout::machine(plain());
    let frp = place("frp");
    let last = frp.start + frp.sectors - 1;
    other.with_card(|card| card.protect(last..last + 1));
    reset(&other, "ragged").map_err(|e| e.to_string())?;
    expect_erased_exactly(&other, &["ragged"]);
    Ok(())
}

/// Sanitize and secure erase are about the user area.
fn boot() -> Outcome {
    const ACCESS: u8 = 179;
    let fields = Fields {
        boot_size_mult: 1,
        sec_feature_support: 0x55,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    let mmc = machine.open_mmc("mmcblk0").map_err(|e| e.to_string())?;
    let select = |area: u8| {
        let mut command = Command::switch(ACCESS, area);
        mmc.cmd(&mut command).map_err(|e| e.to_string())
    };
    let fill = |card: &mut emmc::card::Card| {
        card.store_mut().write(0, &[0xb0; 512]).expect("room");
    };
    for area in [1, 2] {
        select(area)?;
        machine.with_card(fill);
    }
    select(0)?;
    reset(&machine, "userdata").map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["userdata"]);
    for area in [1, 2] {
        select(area)?;
        let mut sector = [0; 512];
        machine
            .with_card(|card| card.store().read(0, &mut sector))
            .map_err(|e| e.to_string())?;
        assert_eq!(sector, [0xb0; 512], "boot partition {area}");
    }
    Ok(())
}
