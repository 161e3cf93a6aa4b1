//! A reset is not alone: processes that die in it, others that ask meanwhile, clients that go.

use super::layout::{self, expect_erased_exactly, expect_untouched, machine, place, plain, GROUP};
use super::wrapped::{Killed, Wrapped};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::served::Served;
use blockd::device::{Access, DirectBuffer, Storage};
use blockd::error::Code;
use blockd::reset::board::State;
use blockd::reset::marker::{parse, Found};
use blockd::reset::request::{Marker, Request};
use blockd::reset::Reset;
use blockd::units::Bytes;
use emmc::card::{Config, Timing};
use emmc::machine::{Kernel, Machine};
use emmc::store::NamedRange;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const MISC: &str = "mmcblk0p5";

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::killed_at_each_call", killed),
        Case::new("reset::looking_at_a_run_sends_nothing", looking),
        Case::new("reset::busy_says_with_what", busy),
        Case::new("reset::cancel_stops_no_later_run", early_cancel),
        Case::new("reset::a_client_that_is_killed_ends_no_erase", client_gone).needs(&[Need::Host]),
    ]
}

/// A machine whose misc is empty.
fn phone(config: Config) -> Result<Machine, String> {
    let machine = machine(config);
    let block = machine
        .open_block(MISC, Access::Update)
        .map_err(|e| e.to_string())?;
    for (offset, length) in [(0, 2048), (32 * 1024, 512)] {
        block
            .write_at(Bytes(offset), &DirectBuffer::new(length))
            .map_err(|e| e.to_string())?;
    }
    drop(block);
    machine.reset_logs();
    Ok(machine)
}

fn with_marker() -> Request {
    Request {
        marker: Marker::Misc,
        ..Request::new(&["userdata"])
    }
}

fn found(machine: &Machine) -> Result<Found, String> {
    layout::message(machine, MISC).map(|sector| parse(&sector))
}

/// Sectors of userdata that are as before, and those that are erased.
fn userdata(machine: &Machine) -> Result<(u64, u64), String> {
    let p = place("userdata");
    let range = NamedRange::new("userdata", p.start, p.sectors);
    let scan = machine.report(&[range]).map_err(|e| e.to_string())?.scan;
    Ok((scan.ranges[0].pattern, scan.ranges[0].erased))
}

/// The process is killed between any two calls of a device: the claims are gone, data that were
/// touched have their marker, and the next run ends the reset.
fn killed() -> Outcome {
    let whole = {
        let machine = phone(plain())?;
        let storage = Arc::new(Wrapped::new(&machine));
        let counted = Arc::clone(&storage);
        Arc::new(Reset::new(storage))
            .run(&with_marker(), None)
            .map_err(|e| e.to_string())?;
        counted.calls()
    };
    let (mut before, mut within) = (0, 0);
    for calls in 0..whole {
        // Canaries and samples are hundreds of the same.
        if calls > 40 && calls < whole - 10 && calls % 13 != 0 {
            continue;
        }
        let machine = phone(plain())?;
        let storage = Wrapped::new(&machine).killed_after(calls);
        let reset = Arc::new(Reset::new(Arc::new(storage)));
        let end = catch_unwind(AssertUnwindSafe(|| reset.run(&with_marker(), None)));
        let why = end.err().ok_or(format!("not killed at {calls}"))?;
        if !why.is::<Killed>() {
            return Err(format!("at {calls}: it panicked by itself"));
        }
        drop(reset);
        let (left, _) = userdata(&machine)?;
        let token = match found(&machine)? {
            Found::Ours { token, .. } => Some(token),
            Found::Empty => None,
            other => return Err(format!("at {calls}: {other:?}")),
        };
        if left == place("userdata").sectors {
            before += 1;
        } else {
            within += 1;
            assert!(token.is_some(), "at {calls}: touched, and nothing tells");
        }
        let next = Arc::new(Reset::new(Arc::new(machine.clone())));
        let report = next
            .run(&with_marker(), None)
            .map_err(|e| format!("after a death at {calls}: {e}"))?;
        if let Some(token) = token {
            assert_eq!(report.token, token, "at {calls}: it goes on");
        }
        assert_eq!(
            userdata(&machine)?,
            (0, place("userdata").sectors),
            "{calls}"
        );
    }
    assert!(before >= 10 && within >= 10, "{before} {within}");
    Ok(())
}

type Seen = Arc<Mutex<Vec<String>>>;

/// A kernel that does not wait, a card that is busy for 14 s, and `look` at the first pause.
fn while_busy(
    machine: &Machine,
    request: &Request,
    look: impl Fn(&Arc<Reset>, &Seen) + Send + Sync + 'static,
) -> Result<Vec<String>, String> {
    machine.set_kernel(Kernel::V4_14);
    let seen: Seen = Arc::default();
    let (kept, once) = (Arc::clone(&seen), AtomicBool::new(false));
    let at_work: Arc<OnceLock<Arc<Reset>>> = Arc::default();
    let who = Arc::clone(&at_work);
    let storage = Wrapped::new(machine).on_sleep(Box::new(move || {
        if let (Some(reset), false) = (who.get(), once.swap(true, Ordering::Relaxed)) {
            look(reset, &kept);
        }
    }));
    let reset = Arc::new(Reset::new(Arc::new(storage)));
    let _ = at_work.set(Arc::clone(&reset));
    reset.run(request, None).map_err(|e| e.to_string())?;
    let seen = seen.lock().map_err(|e| e.to_string())?.clone();
    if seen.is_empty() {
        return Err("the card was never busy: the case looked at nothing".to_owned());
    }
    Ok(seen)
}

fn slow() -> Config {
    let timing = Timing {
        erase_us: 14_000_000,
        ..Timing::zero()
    };
    Config { timing, ..plain() }
}

/// A read of misc would wait for the card until the erase ends.
fn looking() -> Outcome {
    let machine = phone(slow())?;
    let card = machine.clone();
    let seen = while_busy(&machine, &with_marker(), move |reset, seen| {
        let before = card.journal().events.len();
        let (present, status) = (reset.marker_present(), reset.status());
        let sent = card.journal().events.len() - before;
        let text = format!("{present:?} {} {sent}", status.state);
        seen.lock().expect("no panic").push(text);
    })?;
    assert_eq!(seen, ["Some(true) running 0"]);
    // One without a marker of its own knows what lay there.
    let machine = phone(slow())?;
    let seen = while_busy(&machine, &Request::new(&["userdata"]), |reset, seen| {
        let text = format!("{:?}", reset.marker_present());
        seen.lock().expect("no panic").push(text);
    })?;
    assert_eq!(seen, ["Some(false)"]);
    Ok(())
}

fn busy() -> Outcome {
    let machine = phone(slow())?;
    let seen = while_busy(&machine, &Request::new(&["userdata"]), |reset, seen| {
        let mut seen = seen.lock().expect("no panic");
        for failure in [
            reset.run(&Request::new(&["cache"]), None).err(),
            reset.finish("x", None).err(),
        ] {
            let failure = failure.expect("two at once");
            assert_eq!(failure.code, Code::Busy);
            seen.push(failure.message);
        }
    })?;
    for text in &seen {
        assert!(
            text.contains("userdata") && text.contains("erase"),
            "{text}"
        );
    }
    assert_eq!(seen.len(), 2);
    Ok(())
}

fn early_cancel() -> Outcome {
    let machine = machine(plain());
    let reset = Arc::new(Reset::new(Arc::new(machine.clone())));
    reset.cancel();
    reset
        .run(&Request::new(&["userdata"]), None)
        .map_err(|e| format!("a cancel of nothing stopped a later run: {e}"))?;
    expect_erased_exactly(&machine, &["userdata"]);
    // One of a run that is over, too.
    reset.cancel();
    assert_eq!(reset.status().state, State::Done);
    reset
        .run(&Request::new(&["userdata"]), None)
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// blockctl is killed while the card erases: the service goes on, and keeps the report.
fn client_gone() -> Outcome {
    let machine = machine(slow());
    machine.set_kernel(Kernel::V4_14);
    let client: Arc<Mutex<Option<std::process::Child>>> = Arc::default();
    let gone = Arc::new(AtomicBool::new(false));
    let (victim, done) = (Arc::clone(&client), Arc::clone(&gone));
    let storage = Wrapped::new(&machine).on_sleep(Box::new(move || {
        // The case puts it here as soon as it has started it.
        let start = Instant::now();
        while !done.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(30) {
            if let Some(mut child) = victim.lock().expect("no panic").take() {
                let _ = child.kill();
                let _ = child.wait();
                done.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    let served = Served::over(Arc::new(storage), machine.clone(), &[], None)?;
    expect_untouched(&machine);
    let child = Command::new(env!("CARGO_BIN_EXE_blockctl"))
        .arg("--connect")
        .arg(format!("unix:{}", served.socket().display()))
        .args(["reset", "run", "--yes", "--marker", "none", "userdata"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    *client.lock().expect("no panic") = Some(child);
    let reset = served.reset()?;
    let start = Instant::now();
    let report = loop {
        if let Some(report) = reset.lastReport().map_err(|e| format!("{e:?}"))? {
            break report;
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err("the erase ended with its client".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(gone.load(Ordering::Relaxed), "the client was killed in it");
    assert_eq!(report.error.0, 0, "{}", report.message);
    assert!(report.targets[0].erasedBytes >= (GROUP * 512) as i64);
    expect_erased_exactly(&machine, &["userdata"]);
    Ok(())
}
