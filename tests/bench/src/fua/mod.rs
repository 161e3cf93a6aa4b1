//! `fua`: our measurement beside fio's, in paired rounds on a disk in memory, where what the
//! measurement itself costs is most of it.

mod device;
mod fio;

use anyhow::{ensure, Context, Result};
use blockd::cache::fua::facts::Queue;
use blockd::cache::fua::plan::{plan, Plan, Row};
use blockd::cache::fua::{Measurements, Request};
use blockd::device::medium::OpenFile;
use blockd::device::{Host, Medium, Storage};
use blockd::units::Bytes;
use device::{Counts, RamDisk};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A round of one row takes about this: fio tells its time in milliseconds.
const ROUND: Duration = Duration::from_millis(400);
/// Bytes that a random row goes through: enough, and soon filled.
const RANDOM: u64 = 64 << 20;
/// The pairs' p90 to p10 above which a row is no measurement.
const NOISY: f64 = 1.3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// A folder in memory.
    pub folder: PathBuf,
    /// Bytes of the disk, which a sequential row goes through.
    pub length: u64,
    /// Pairs for each row.
    pub rounds: usize,
}

/// Measures; `show` gets each row.
///
/// # Errors
/// There is no fio, no loop device, or the disk has counted other requests for fio than for ours.
pub fn run(options: &Options, mut show: impl FnMut(Value)) -> Result<()> {
    ensure!(options.rounds > 0, "no rounds");
    let fio = fio::version()?;
    let disk = RamDisk::new(&options.folder, options.length)?;
    let ours = Ours::new(&disk, options.length)?;
    let mut all: Vec<Measured> = Vec::new();
    for row in &ours.plan.rows {
        all.push(Measured::new(ours.calibrated(row)?));
    }
    for round in 0..options.rounds {
        for one in &mut all {
            one.pair(&ours, &disk, round % 2 == 1)
                .with_context(|| one.row.name())?;
        }
    }
    for one in &all {
        one.check()?;
        let mut row = one.json();
        row["fio"] = fio.as_str().into();
        row["queue_fua"] = disk.queue("fua").unwrap_or_default().into();
        row["queue_write_cache"] = disk.queue("write_cache")?.into();
        show(row);
    }
    Ok(())
}

/// The product's measurement on the disk.
struct Ours {
    measurements: Measurements,
    medium: Arc<dyn Medium>,
    plan: Plan,
}

impl Ours {
    fn new(disk: &RamDisk, length: u64) -> Result<Ours> {
        let file = OpenFile::new(disk.open_direct()?);
        let described = file.describe().context("fstat")?;
        let host = Host::new();
        let queue = Queue::gather(host.sysfs(), &described.device);
        let request = Request::new(Bytes(length));
        let mut plan = plan(&request, &described, &queue)?;
        plan.runs = 1;
        Ok(Ours {
            measurements: Measurements::new(),
            medium: Arc::new(file),
            plan,
        })
    }

    /// Bytes that a row goes through.
    fn length(&self, row: &Row) -> u64 {
        match row.pattern.is_sequential() {
            true => self.plan.length.0,
            false => self.plan.length.0.min(RANDOM),
        }
    }

    /// One run of `row`. Returns bytes per second.
    fn run(&self, row: &Row) -> Result<f64> {
        let plan = Plan {
            rows: vec![*row],
            length: Bytes(self.length(row)),
            ..self.plan.clone()
        };
        let medium = Arc::clone(&self.medium);
        let report = self.measurements.carry_out(medium, plan, None)?;
        Ok(report.rows.first().context("no row")?.mean())
    }

    /// The row with as many operations as fill a round. A sequential one goes through the disk once:
    /// fio flushes once more whenever it begins again.
    fn calibrated(&self, row: &Row) -> Result<Row> {
        if row.pattern.is_sequential() {
            return Ok(*row);
        }
        let speed = self.run(row)?;
        let operations = speed * ROUND.as_secs_f64() / row.block.0 as f64;
        Ok(Row {
            operations: (operations as u64).max(row.operations),
            ..*row
        })
    }
}

/// The pairs of a row.
struct Measured {
    row: Row,
    /// (ours, fio's), bytes per second.
    pairs: Vec<(f64, f64)>,
    /// Requests of the last round, ours without filling and settling.
    ours: Counts,
    fio: Counts,
    /// Rounds in which the two differed.
    differed: Vec<(Counts, Counts)>,
}

impl Measured {
    fn new(row: Row) -> Measured {
        Measured {
            row,
            pairs: Vec::new(),
            ours: Counts::default(),
            fio: Counts::default(),
            differed: Vec::new(),
        }
    }

    /// One round; who goes first alternates.
    fn pair(&mut self, ours: &Ours, disk: &RamDisk, fio_first: bool) -> Result<()> {
        let length = ours.length(&self.row);
        let mut fio = 0.0;
        if fio_first {
            fio = self.fio(disk, length)?;
        }
        // What is done before and after the operations, to be subtracted.
        let none = Row {
            operations: 0,
            ..self.row
        };
        let begin = disk.counts()?;
        ours.run(&none)?;
        let beside = disk.counts()?;
        let own = ours.run(&self.row)?;
        self.ours = disk.counts()? - beside - (beside - begin);
        if !fio_first {
            fio = self.fio(disk, length)?;
        }
        self.pairs.push((own, fio));
        if !same(self.ours, self.fio) {
            self.differed.push((self.ours, self.fio));
        }
        Ok(())
    }

    fn fio(&mut self, disk: &RamDisk, length: u64) -> Result<f64> {
        let before = disk.counts()?;
        let speed = fio::run(disk, &self.row, length)?;
        self.fio = disk.counts()? - before;
        Ok(speed)
    }

    /// Fails where the disk was asked for other things than by fio.
    fn check(&self) -> Result<()> {
        let Some((ours, fio)) = self.differed.first() else {
            return Ok(());
        };
        anyhow::bail!(
            "{}: the disk has counted {ours:?} for ours and {fio:?} for fio ({} of {} rounds)",
            self.row.name(),
            self.differed.len(),
            self.pairs.len()
        )
    }

    fn json(&self) -> Value {
        let mib = |bytes: f64| (bytes / f64::from(1 << 20) * 100.0).round() / 100.0;
        let ratios = sorted(self.pairs.iter().map(|(own, fio)| own / fio));
        let speeds = |of: fn(&(f64, f64)) -> f64| sorted(self.pairs.iter().map(of));
        json!({
            "pattern": self.row.pattern.name(),
            "path": self.row.path.name(),
            "block_bytes": self.row.block.0,
            "operations": self.row.operations,
            "rounds": self.pairs.len(),
            "ours_mib_s": mib(at(&speeds(|pair| pair.0), 50)),
            "fio_mib_s": mib(at(&speeds(|pair| pair.1), 50)),
            "ratio": (at(&ratios, 50) * 1000.0).round() / 1000.0,
            "noisy": at(&ratios, 90) / at(&ratios, 10) > NOISY,
            "ios": {
                "reads": self.ours.reads,
                "writes": self.ours.writes,
                "flushes": self.ours.flushes,
            },
        })
    }
}

/// The same requests. fio ends without the fdatasync of its last write; the kernel counts a flush
/// that somebody asked for as a write of no sectors, too.
fn same(ours: Counts, fio: Counts) -> bool {
    let with_last = Counts {
        writes: fio.writes + 1,
        flushes: fio.flushes + 1,
        ..fio
    };
    ours == fio || ours == with_last
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn at(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last * percent + 50) / 100;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_pairs() {
        let row = Row {
            pattern: blockd::cache::fua::Pattern::RandomRead,
            path: blockd::cache::fua::Path::Direct,
            block: Bytes(4096),
            operations: 1,
        };
        let mut measured = Measured::new(row);
        // The machine became slower by half in the midst of it: both did.
        measured.pairs = vec![(100.0, 100.0), (50.0, 50.0), (99.0, 100.0)];
        let value = measured.json();
        assert_eq!(
            (&value["ratio"], &value["noisy"]),
            (&json!(1.0), &json!(false))
        );
        measured.pairs = vec![(100.0, 100.0), (50.0, 100.0), (150.0, 100.0)];
        assert_eq!(measured.json()["noisy"], true);
    }

    #[test]
    fn other_requests_are_no_comparison() {
        let counts = Counts {
            writes: 10,
            written_sectors: 80,
            flushes: 10,
            ..Counts::default()
        };
        let with = |writes, flushes| Counts {
            writes,
            flushes,
            ..counts
        };
        assert!(same(counts, counts));
        assert!(same(counts, with(9, 9)));
        assert!(!same(counts, with(10, 9)));
        assert!(!same(counts, with(8, 8)));
        assert!(!same(counts, with(11, 11)));
    }
}
