//! `test latency-cuts`: the power of a card behind the real kernel fails while `cache latency write`
//! runs; in the next boot `cache latency check` says what was lost. The judge is the medium.

mod card;
mod chain;
mod plan;
mod truth;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{anyhow, bail, ensure, Context, Result};
use serde_json::{json, Value};

use crate::vm::setup::Equipment;
use chain::{Chain, Finding};
use plan::Cut;

/// From so many cuts on, every outcome must have come this often.
const FULL_SUITE: usize = 25;
const CUTS_AN_OUTCOME: u64 = 5;
const OUTCOMES: [&str; 4] = ["nothing lost", "lost", "torn", "stale"];
/// Cuts in every test run.
const SHORT_SUITE: usize = 3;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of cuts.
    pub cuts: usize,
    /// Decides the instants.
    pub seed: u64,
    /// Machines at once.
    pub jobs: usize,
    /// `check` is not told of the last acknowledgement: the suite must fail.
    pub forgetful: bool,
}

/// Makes the cuts, those of one kind of card after another on the same card.
fn cuts(
    equipment: &Equipment,
    options: Options,
    told: impl Fn(usize, &Finding) + Sync,
) -> Result<Vec<Finding>> {
    let tree = chain::tree(equipment)?;
    let mut kinds: BTreeMap<_, Vec<(usize, Cut)>> = BTreeMap::new();
    for (n, cut) in plan::cuts(options.cuts, options.seed)
        .into_iter()
        .enumerate()
    {
        kinds.entry(cut.kind).or_default().push((n, cut));
    }
    let mut chains: Vec<_> = kinds.into_iter().collect();
    chains.sort_by_key(|(_, cuts)| std::cmp::Reverse(cuts.len()));
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while let Some((kind, cuts)) = chains.get(next.fetch_add(1, Ordering::Relaxed)) {
            let chain = Chain {
                equipment,
                tree: &tree,
                name: &format!("latency-{kind:?}").to_lowercase(),
                forgetful: options.forgetful,
            };
            let found = chain
                .run(*kind, cuts, options.seed, &told)
                .with_context(|| format!("{} (seed {})", kind.name(), options.seed))?;
            let mut all = findings.lock().unwrap_or_else(|e| e.into_inner());
            all.extend(found);
        }
        Ok(())
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

/// A few cuts for every test run, and one that a broken check must not pass.
pub fn short(equipment: &Equipment, told: &(dyn Fn(&str, Result<()>) + Sync)) -> Result<()> {
    let options = Options {
        cuts: SHORT_SUITE,
        seed: 1,
        jobs: 2,
        forgetful: false,
    };
    cuts(equipment, options, |n, finding| {
        let result = match finding.right() {
            true => Ok(()),
            false => Err(anyhow!("{}", finding.text())),
        };
        told(&format!("latency_cut_{n}"), result);
    })?;
    let broken = Options {
        cuts: 1,
        forgetful: true,
        ..options
    };
    let found = cuts(equipment, broken, |_, _| {})?;
    // Found for what it is: one record fewer.
    let result = match found.first() {
        Some(f) if f.told.lost.map(|lost| lost + 1) == f.truth.lost && !f.right() => Ok(()),
        other => Err(anyhow!("not found: {other:?}")),
    };
    told("latency_finds_a_forgotten_acknowledgement", result);
    Ok(())
}

/// The whole suite; the last line of standard output is its result.
///
/// # Errors
/// A verdict was wrong, or an outcome came too seldom.
pub fn run(equipment: &Equipment, options: Options, json: bool) -> Result<()> {
    let begin = Instant::now();
    let findings = cuts(equipment, options, |n, finding| {
        let state = if finding.right() { "ok" } else { "WRONG" };
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{seconds:>5.0} s  cut {n}: {state}: {}", finding.text());
    })?;
    let mut result = result(&findings, options);
    result["seconds"] = begin.elapsed().as_secs().into();
    if json {
        println!("{result}");
    } else if let Some(fields) = result.as_object() {
        for (name, value) in fields {
            println!("{name:<20}{value}");
        }
    }
    judge(&findings, options)
}

fn outcomes(findings: &[Finding]) -> BTreeMap<&str, u64> {
    let mut outcomes: BTreeMap<_, _> = OUTCOMES.iter().map(|name| (*name, 0)).collect();
    for finding in findings {
        *outcomes.entry(finding.truth.name.as_str()).or_default() += 1;
    }
    outcomes
}

fn result(findings: &[Finding], options: Options) -> Value {
    let mut kinds: BTreeMap<_, u64> = BTreeMap::new();
    for finding in findings {
        *kinds.entry(finding.cut.kind.name()).or_default() += 1;
    }
    json!({
        "cuts": findings.len(),
        "verdict_right": findings.iter().filter(|f| f.right()).count(),
        "outcomes": outcomes(findings),
        "cards": kinds,
        "seed": options.seed,
    })
}

fn judge(findings: &[Finding], options: Options) -> Result<()> {
    let wrong = findings.iter().filter(|f| !f.right()).count();
    ensure!(
        wrong == 0,
        "{wrong} of {} verdicts were wrong",
        findings.len()
    );
    ensure!(findings.len() == options.cuts, "not every cut was made");
    if options.cuts >= FULL_SUITE {
        for (outcome, count) in outcomes(findings) {
            ensure!(
                count >= CUTS_AN_OUTCOME,
                "{count} cuts ended with `{outcome}`, fewer than {CUTS_AN_OUTCOME}"
            );
        }
    }
    Ok(())
}
