//! `test powercut`: the power fails at a chosen command of a factory reset in the guest. The next
//! boot is the one that a bootloader would choose from misc; the reset must be completed in it.
//! The judge is the medium, not the product.

mod client;
mod device;
mod suite;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use serde_json::{json, Value};

use crate::vm::setup::Equipment;
use client::Way;
use suite::{Finding, Suite};
use watch::Phase;

pub use watch::Dice;

/// From so many cuts on, every phase must have had this many.
const FULL_SUITE: usize = 25;
const CUTS_A_PHASE: u64 = 3;
/// Cuts in every test run.
const SHORT_SUITE: usize = 4;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of cuts.
    pub cuts: usize,
    /// Decides the instants and what the cache keeps.
    pub seed: u64,
    /// Machines at once.
    pub jobs: usize,
    /// With a client that writes the marker too late: the suite must fail.
    pub late_marker: bool,
}

/// Runs the cuts; `told` hears of each when it has ended.
pub fn cuts(
    suite: &Suite<'_>,
    options: Options,
    told: impl Fn(usize, &Finding) + Sync,
) -> Result<Vec<Finding>> {
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= options.cuts {
                return Ok(());
            }
            let way = Way {
                late_marker: options.late_marker,
                ..Way::nth(n / Phase::ALL.len() + n)
            };
            let phase = Phase::ALL[n % Phase::ALL.len()];
            let seed = options.seed.wrapping_mul(1_000_003) + n as u64;
            let phases = Phase::ALL.len();
            let part = (n / phases, options.cuts.div_ceil(phases));
            let part = (part.0 as u64, part.1 as u64);
            let finding = suite.cut(phase, part, way, &format!("powercut-{n}"), seed);
            let finding = finding
                .with_context(|| format!("cut {n} ({}, seed {})", phase.name(), options.seed));
            match finding {
                Ok(finding) => {
                    told(n, &finding);
                    let mut all = findings.lock().unwrap_or_else(|e| e.into_inner());
                    all.push(finding);
                }
                Err(e) => {
                    // The others end with what they are at.
                    next.store(options.cuts, Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
    };
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        jobs.into_iter().try_for_each(|job| match job.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    Ok(findings.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// A short suite for every test run, case by case: the client without a cut both ways, a few cuts,
/// and one that a broken client must not survive.
pub fn short(equipment: &Equipment, told: &(dyn Fn(&str, Result<()>) + Sync)) -> Result<()> {
    let first = "recovery_by_exec_f2fs";
    let suite = match Suite::new(equipment, Way::nth(0)) {
        Ok(suite) => suite,
        Err(e) => {
            told(first, Err(e));
            return Ok(());
        }
    };
    told(first, Ok(()));
    let other = Way::nth(3);
    told("recovery_by_binder_ext4", suite.whole(other).map(drop));
    let options = Options {
        cuts: SHORT_SUITE,
        seed: 1,
        jobs: 2,
        late_marker: false,
    };
    cuts(&suite, options, |_, finding| {
        let name = format!("powercut_{}", finding.phase.name());
        let result = match finding.good() {
            true => Ok(()),
            false => Err(anyhow!("{}", finding.text())),
        };
        told(&name, result);
    })?;
    let late = Way {
        late_marker: true,
        ..Way::nth(0)
    };
    let finding = suite.cut(Phase::Erase, (0, 1), late, "powercut-late", 1)?;
    // Found for what it is, not for some other failure.
    let result = match finding.after == "lost" && finding.old_data > 0 {
        true => Ok(()),
        false => Err(anyhow!("not found: {}", finding.text())),
    };
    told("powercut_finds_a_late_marker", result);
    Ok(())
}

/// The whole suite; the last line of standard output is its result.
///
/// # Errors
/// A cut was not survived, or a phase had too few.
pub fn run(equipment: &Equipment, options: Options, json: bool) -> Result<()> {
    let begin = Instant::now();
    eprintln!("one run without a cut, to see where there is something to cut");
    let suite = Suite::new(equipment, Way::nth(0))?;
    let findings = cuts(&suite, options, |n, finding| {
        let state = if finding.good() { "ok" } else { "FAILED" };
        eprintln!(
            "{:>5.0} s  cut {n}: {state}: {}",
            begin.elapsed().as_secs_f64(),
            finding.text()
        );
    })?;
    let result = result(&findings, options, begin.elapsed());
    if json {
        println!("{result}");
    } else {
        print!("{}", text(&result));
    }
    judge(&findings, options)
}

fn result(findings: &[Finding], options: Options, elapsed: Duration) -> Value {
    let count = |good: &dyn Fn(&Finding) -> bool| findings.iter().filter(|f| good(f)).count();
    json!({
        "cuts": findings.len(),
        "completed": count(&|f| f.problem.is_none()),
        "neighbours_intact": count(&|f| f.changed.is_empty()),
        "old_data_found": count(&|f| f.old_data > 0),
        "phases": by_phase(findings),
        "resumed": count(&|f| f.after == "resumed"),
        "not_begun": count(&|f| f.after == "not begun"),
        "nothing_left_to_do": count(&|f| f.after == "done"),
        "seed": options.seed,
        "seconds": elapsed.as_secs(),
    })
}

fn by_phase(findings: &[Finding]) -> BTreeMap<&'static str, u64> {
    let mut phases: BTreeMap<_, u64> = Phase::ALL.iter().map(|p| (p.name(), 0)).collect();
    for finding in findings {
        *phases.entry(finding.phase.name()).or_default() += 1;
    }
    phases
}

fn text(result: &Value) -> String {
    let mut text = String::new();
    if let Some(fields) = result.as_object() {
        for (name, value) in fields {
            text += &format!("{name:<20}{value}\n");
        }
    }
    text
}

fn judge(findings: &[Finding], options: Options) -> Result<()> {
    let bad = findings.iter().filter(|f| !f.good()).count();
    ensure!(
        bad == 0,
        "{bad} of {} cuts were not survived",
        findings.len()
    );
    ensure!(findings.len() == options.cuts, "not every cut was made");
    if options.cuts >= FULL_SUITE {
        for (phase, count) in by_phase(findings) {
            ensure!(
                count >= CUTS_A_PHASE,
                "{count} cuts in the phase {phase}, fewer than {CUTS_A_PHASE}"
            );
        }
    }
    Ok(())
}
