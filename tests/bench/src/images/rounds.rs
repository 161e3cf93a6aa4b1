//! Rounds in turn, so that what else the machine does hits all alike; and what comes of them.

use super::files::Files;
use super::product::{Daemon, Local, Rescue, Service};
use super::strategies::{Apexd, Classic, Devices, Floor, Losetup, Strategy};
use anyhow::{bail, ensure, Context, Result};
use blockd::client::Place;
use guest::trace::FunctionTrace;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Every wait for a queue freeze calls one of these once (block/blk-mq.c).
const FREEZE: &[&str] = &["blk_mq_freeze_queue*", "blk_freeze_queue*"];
/// Where a freeze waits for the queue to drain: called exactly once in each freeze.
const FREEZE_WAIT: &str = "blk_mq_freeze_queue_wait";
/// Freezes of a classic attach that the counter must see.
const CLASSIC_FREEZES: u64 = 2;
/// The floor's p90 to its p10 above which a round of rows is no measurement.
const NOISY: f64 = 1.3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// For the rows: `host`, `guest`, `guest-slow-rcu`.
    pub place: String,
    /// Where the files are made.
    pub folder: PathBuf,
    /// Numbers of files.
    pub counts: Vec<usize>,
    /// Rounds of what is quick.
    pub rounds: usize,
    /// Rounds of what takes seconds.
    pub slow_rounds: usize,
    /// blockd, to be started on a socket.
    pub blockd: Option<PathBuf>,
    /// The service at the service manager too.
    pub binder: bool,
    /// Count freezes by the kernel's function tracer.
    pub trace: bool,
}

/// Measures; `show` gets each row as soon as it is there.
///
/// # Errors
/// A strategy fails, the counter counts nothing.
pub fn run(options: &Options, mut show: impl FnMut(Value)) -> Result<()> {
    let most = options.counts.iter().copied().max().unwrap_or(0);
    ensure!(most > 0, "no number of files");
    let files = Files::new(&options.folder, most)?;
    let backing = files.file_system()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let devices = Devices::open()?;
    devices.prepare(most)?;
    let socket = options.folder.join(format!("b{}.sock", std::process::id()));
    let daemon = match &options.blockd {
        Some(program) => Some(Daemon::start(program, &socket)?),
        None => None,
    };
    let mut strategies: Vec<Box<dyn Strategy + '_>> = Vec::new();
    strategies.push(Box::new(Floor(&devices)));
    strategies.push(Box::new(Local::new(most)?));
    if daemon.is_some() {
        strategies.push(Box::new(Service::connect(&Place::Unix(socket.clone()))?));
    }
    if options.binder {
        strategies.push(Box::new(Service::connect(&Place::Binder)?));
    }
    strategies.push(Box::new(Rescue::new(most)?));
    if Losetup::found() {
        strategies.push(Box::new(Losetup));
    }
    let tracer = options.trace.then(Tracer::start).transpose()?;
    if let Some(tracer) = &tracer {
        tracer.check(&devices, &files)?;
    }
    for &count in &options.counts {
        let threads: BTreeSet<usize> = [1, count].into();
        let mut all: Vec<&dyn Strategy> = strategies.iter().map(|s| &**s).collect();
        let others: Vec<Box<dyn Strategy + '_>> = threads
            .iter()
            .flat_map(|&threads| others(&devices, threads))
            .collect();
        all.extend(others.iter().map(|s| &**s));
        let measured = measure(options, &all, &files, count, tracer.as_ref())?;
        let noisy = measured
            .iter()
            .find(|m| m.strategy.name() == "floor")
            .is_none_or(|floor| floor.spread() > NOISY);
        for one in &measured {
            show(json!({
                "where": options.place,
                "kernel": kernel.trim(),
                "backing": backing,
                "n": count,
                "threads": one.strategy.threads(),
                "strategy": one.strategy.name(),
                "over": one.strategy.over(),
                "rounds": one.times.len(),
                "median_ms": millis(one.at(50)),
                "p95_ms": millis(one.at(95)),
                "freezes": one.freezes,
                "noisy": noisy,
            }));
        }
    }
    drop(strategies);
    drop(daemon);
    let _ = fs::remove_file(&socket);
    Ok(())
}

fn others(devices: &Devices, threads: usize) -> Vec<Box<dyn Strategy + '_>> {
    vec![
        Box::new(Classic { devices, threads }),
        Box::new(Apexd {
            devices,
            threads,
            mutex: Mutex::new(()),
        }),
    ]
}

/// A strategy's rounds.
struct Measured<'a> {
    strategy: &'a dyn Strategy,
    /// Ascending.
    times: Vec<Duration>,
    /// The most of a round; `None` where nobody counts.
    freezes: Option<u64>,
}

impl Measured<'_> {
    fn at(&self, percent: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let place = (last * percent + 50) / 100;
        self.times.get(place).copied().unwrap_or_default()
    }

    fn spread(&self) -> f64 {
        self.at(90).as_secs_f64() / self.at(10).as_secs_f64()
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn measure<'a>(
    options: &Options,
    strategies: &[&'a dyn Strategy],
    files: &Files,
    count: usize,
    tracer: Option<&Tracer>,
) -> Result<Vec<Measured<'a>>> {
    let images = &files.images[..count];
    let mut measured: Vec<Measured<'a>> = strategies
        .iter()
        .map(|&strategy| Measured {
            strategy,
            times: Vec::new(),
            freezes: None,
        })
        .collect();
    let every = options.rounds.div_ceil(options.slow_rounds.max(1)).max(1);
    for round in 0..=options.rounds {
        for one in &mut measured {
            // Slow ones in some rounds; none of them has caches to warm.
            if one.strategy.slow() && (round == 0 || (round - 1) % every != 0) {
                continue;
            }
            if let Some(tracer) = tracer {
                tracer.clear()?;
            }
            let begin = Instant::now();
            let held = one.strategy.attach(images);
            let time = begin.elapsed();
            let freezes = tracer.map(Tracer::freezes).transpose()?;
            let held = held.with_context(|| format!("{} of {count}", one.strategy.name()))?;
            ensure!(held.len() == count, "{} of {count} attached", held.len());
            drop(held);
            if round > 0 {
                one.times.push(time);
                one.freezes = one.freezes.max(freezes);
            }
        }
    }
    for one in &mut measured {
        one.times.sort_unstable();
    }
    Ok(measured)
}

/// Counts queue freezes.
struct Tracer(FunctionTrace);

impl Tracer {
    fn start() -> Result<Tracer> {
        FunctionTrace::start("bench", FREEZE).map(Tracer)
    }

    /// A counter that counts nothing would prove nothing.
    fn check(&self, devices: &Devices, files: &Files) -> Result<()> {
        self.clear()?;
        let classic = Classic {
            devices,
            threads: 1,
        };
        classic.attach(&files.images[..1])?;
        let seen = self.freezes()?;
        if seen < CLASSIC_FREEZES {
            bail!("the freeze counter saw {seen} freezes in a classic attach: it counts nothing");
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        self.0.clear()
    }

    fn freezes(&self) -> Result<u64> {
        Ok(self.0.counts()?.get(FREEZE_WAIT).copied().unwrap_or(0))
    }
}
