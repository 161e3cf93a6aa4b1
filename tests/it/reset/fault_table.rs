//! Faults, enumerated: each command of a run, at each position, each error bit of R1, no answer, a deaf
//! card. What must hold in every row: success is said only where everything is erased and nothing
//! else; where something is gone the marker stays; where nothing is it is withdrawn; the next run
//! completes. For the erase sequence itself the verdict stands in a table, row by row.

use super::cuts::{message, Layout, LAYOUTS};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::error::Failure;
use blockd::reset::marker::Found;
use blockd::reset::report::Report;
use blockd::reset::Reset;
use emmc::card::{Effect, Fault};
use emmc::machine::{Kernel, Machine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The error bits of R1, JESD84-B51 table 68; not those that a status poll shows in good order.
const BITS: [(u32, &str); 17] = [
    (31, "ADDRESS_OUT_OF_RANGE"),
    (30, "ADDRESS_MISALIGN"),
    (29, "BLOCK_LEN_ERROR"),
    (28, "ERASE_SEQ_ERROR"),
    (27, "ERASE_PARAM"),
    (26, "WP_VIOLATION"),
    (25, "DEVICE_IS_LOCKED"),
    (24, "LOCK_UNLOCK_FAILED"),
    (23, "COM_CRC_ERROR"),
    (22, "ILLEGAL_COMMAND"),
    (21, "DEVICE_ECC_FAILED"),
    (20, "CC_ERROR"),
    (19, "ERROR"),
    (16, "CID/CSD_OVERWRITE"),
    (15, "WP_ERASE_SKIP"),
    (13, "ERASE_RESET"),
    (7, "SWITCH_ERROR"),
];

/// What sends a sequence once more: something came in between.
const DISTURBED: [u32; 2] = [28, 13];

/// The cases. Pure computation, thousands of runs.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::each_command_fails_at_each_position", all).needs(&[Need::Host]),
        Case::new("reset::each_answer_of_the_erase_has_its_verdict", sequence).needs(&[Need::Host]),
    ]
}

/// What became of one row.
struct Ended {
    machine: Machine,
    result: Result<Report, Failure>,
}

fn run(layout: &Layout, kernel: Kernel, fault: Option<Fault>) -> Result<Ended, String> {
    let machine = layout.machine()?;
    machine.set_kernel(kernel);
    machine.reset_logs();
    if let Some(fault) = fault {
        machine.with_card(|card| card.inject(fault));
    }
    let result = Arc::new(Reset::new(Arc::new(machine.clone()))).run(&layout.request(), None);
    Ok(Ended { machine, result })
}

/// What must hold whatever failed. Returns the verdict in a word.
fn judge(layout: &Layout, ended: &Ended) -> Result<&'static str, String> {
    let (pattern, erased) = layout.scan(&ended.machine)?;
    // An error bit that is still to be shown hits the first of these looks.
    let marker = message(&ended.machine).or_else(|_| message(&ended.machine))?;
    let ours = matches!(marker, Found::Ours { .. });
    let failure = match &ended.result {
        Ok(_) if erased != layout.sectors => {
            return Err(format!("success was said, {pattern} sectors are left"))
        }
        Ok(_) if !ours => return Err(format!("success, and the marker says {marker:?}")),
        Ok(_) => return Ok("erased"),
        Err(failure) => failure,
    };
    let whole = pattern == layout.sectors;
    if failure.remedy.is_empty() || failure.message.is_empty() {
        return Err(format!("says too little: {failure:?}"));
    }
    if !whole && !ours {
        return Err(format!(
            "data is gone and the marker says {marker:?}: {failure:?}"
        ));
    }
    let told = failure.message.contains("could not be withdrawn");
    let before = ["facts", "plan", "claim", "recheck", "flush", "marker"];
    if before.contains(&failure.step.as_str()) && (!whole || (ours && !told)) {
        return Err(format!("whole: {whole}, marker {marker:?}: {failure:?}"));
    }
    // The card is well again: the next run completes.
    let reset = Arc::new(Reset::new(Arc::new(ended.machine.clone())));
    let report = reset.run(&layout.request(), None);
    report.map_err(|e| format!("the next run failed: {e:?}, after {failure:?}"))?;
    match layout.scan(&ended.machine)? {
        (0, erased) if erased == layout.sectors => Ok(failure.code.name()),
        (left, _) => Err(format!("the next run left {left} sectors")),
    }
}

/// All of a few, the ends and the middle of many.
fn positions(count: u64) -> Vec<u64> {
    if count <= 8 {
        return (1..=count).collect();
    }
    let mut positions = vec![1, 2, 3, count / 2, count - 1, count];
    positions.dedup();
    positions
}

fn effects(command: u8) -> Vec<Effect> {
    let mut effects = vec![Effect::NoResponse, Effect::Deaf];
    // Data commands fail by their data too; three bits stand for the rest.
    let few = [31, 26, 19];
    for (bit, _) in BITS {
        if matches!(command, 6 | 13 | 35 | 36 | 38) || few.contains(&bit) {
            let bit = 1 << bit;
            effects.extend([
                Effect::Response(bit),
                Effect::Refuse(bit),
                Effect::Later(bit),
            ]);
        }
    }
    effects
}

fn all() -> Outcome {
    let mut counts: BTreeMap<(u8, &str), u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for layout in [&LAYOUTS[1], &LAYOUTS[2]] {
        let whole = run(layout, Kernel::V6_12, None)?;
        whole
            .result
            .map_err(|e| format!("{}: {e:?}", layout.name))?;
        let log = whole.machine.log();
        let mut sent: Vec<u8> = log.entries.iter().map(|entry| entry.command).collect();
        sent.sort_unstable();
        sent.dedup();
        for command in sent {
            for nth in positions(log.count(command)) {
                for effect in effects(command) {
                    let fault = Fault::new(command, nth, effect);
                    let ended = run(layout, Kernel::V6_12, Some(fault))?;
                    match judge(layout, &ended) {
                        Ok(verdict) => *counts.entry((command, verdict)).or_default() += 1,
                        Err(why) => wrong.push(format!("{}, {fault:?}: {why}", layout.name)),
                    }
                }
            }
        }
    }
    println!("faults, by command and verdict: {counts:?}");
    if !wrong.is_empty() {
        let shown: Vec<&str> = wrong.iter().take(12).map(String::as_str).collect();
        return Err(format!("{} rows:\n{}", wrong.len(), shown.join("\n")));
    }
    let total: u64 = counts.values().sum();
    assert!(total >= 1500, "{total}: {counts:?}");
    for command in [6, 8, 13, 35, 36, 38] {
        assert!(
            counts.keys().any(|(c, _)| *c == command),
            "CMD{command}: {counts:?}"
        );
    }
    Ok(())
}

/// What a row of the erase sequence must end with.
fn expected(kernel: Kernel, command: u8, effect: Effect) -> &'static str {
    let new = kernel == Kernel::V6_12;
    let disturbed = |bits: u32| DISTURBED.iter().any(|bit| bits == 1 << bit);
    match (command, effect) {
        // Sent once more, since another command may have come in between.
        (35 | 36, Effect::Response(bits) | Effect::Refuse(bits)) if disturbed(bits) => "erased",
        (35 | 36, Effect::Response(_) | Effect::Refuse(_)) => "DEVICE_FAILED",
        // Newer kernels overwrite the answer of CMD38: reading back decides.
        (38, Effect::Response(_)) if new => "erased",
        (38, Effect::Refuse(_)) if new => "NOT_VERIFIED",
        (38, Effect::Response(bits) | Effect::Refuse(bits)) if disturbed(bits) => "erased",
        (38, Effect::Response(_) | Effect::Refuse(_)) => "DEVICE_FAILED",
        // The kernel says ETIMEDOUT, as for a card that is still busy: reading back decides.
        (38, Effect::NoResponse) => "erased",
        (_, Effect::Deaf | Effect::NoResponse) => "NOT_VERIFIED",
        // Shown by the next answer: CMD36's, CMD38's, that of a poll.
        (35, Effect::Later(bits)) if disturbed(bits) => "erased",
        (36, Effect::Later(_)) if new => "erased",
        (36, Effect::Later(bits)) if disturbed(bits) => "erased",
        // The polls of older kernels swallow it; those of newer ones show it as CMD38's answer.
        (38, Effect::Later(_)) if !new => "erased",
        (38, Effect::Later(bits)) if disturbed(bits) => "erased",
        (_, Effect::Later(_)) => "DEVICE_FAILED",
        _ => "?",
    }
}

fn sequence() -> Outcome {
    let layout = &LAYOUTS[0];
    let mut wrong = Vec::new();
    let mut rows = 0;
    for kernel in [Kernel::V5_15, Kernel::V6_12] {
        for command in [35, 36, 38] {
            for effect in effects(command) {
                rows += 1;
                let ended = run(layout, kernel, Some(Fault::new(command, 1, effect)))?;
                let want = expected(kernel, command, effect);
                match judge(layout, &ended) {
                    Ok(verdict) if verdict == want => {}
                    Ok(verdict) => wrong.push(format!(
                        "{kernel:?} CMD{command} {effect:?}: {verdict}, not {want}: {:?}",
                        ended.result.as_ref().err()
                    )),
                    Err(why) => wrong.push(format!("{kernel:?} CMD{command} {effect:?}: {why}")),
                }
            }
        }
    }
    assert_eq!(rows, 2 * 3 * (2 + 3 * BITS.len()));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    ))
}
