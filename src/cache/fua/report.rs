//! What a measurement found.

use crate::cache::fua::plan::{Plan, Row};
use crate::cache::fua::stats::{self, Latencies, PERCENTILES};
use crate::cache::fua::{Path, Pattern};
use crate::units::Bytes;
use std::time::Duration;

/// One pattern over one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// What was measured.
    pub row: Row,
    /// Bytes per second of each run.
    pub bytes_per_second: Vec<f64>,
    /// Latencies of single operations, nanoseconds: percentiles 50, 95, 99 and the longest.
    pub latency_nanos: [u64; 4],
    /// Largest minus smallest run, in per cent of the mean.
    pub spread_percent: f64,
    /// Against path direct of the same pattern, in per cent of its mean; 0 for that path itself.
    pub change_percent: f64,
}

impl Figures {
    /// Mean of the runs, bytes per second.
    pub fn mean(&self) -> f64 {
        stats::mean(&self.bytes_per_second)
    }
}

/// The measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// One for each pattern and path.
    pub rows: Vec<Figures>,
    /// Bytes of the medium that were overwritten.
    pub length: Bytes,
    /// The whole time.
    pub elapsed: Duration,
    /// What the figures mean.
    pub notes: Vec<String>,
}

impl Report {
    /// The figures of a pattern and path.
    pub fn row(&self, pattern: Pattern, path: Path) -> Option<&Figures> {
        self.rows
            .iter()
            .find(|figures| figures.row.pattern == pattern && figures.row.path == path)
    }
}

/// What the runs of one row brought.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    pub bytes_per_second: Vec<f64>,
    pub latencies: Latencies,
}

pub(super) fn report(plan: &Plan, collected: &[Collected], elapsed: Duration) -> Report {
    let base = |pattern: Pattern| {
        let rows = plan.rows.iter().zip(collected);
        let mut direct = rows.filter(|(r, _)| r.pattern == pattern && r.path == Path::Direct);
        let runs = direct.next().map(|(_, c)| c.bytes_per_second.as_slice());
        stats::mean(runs.unwrap_or_default())
    };
    let rows = plan
        .rows
        .iter()
        .zip(collected)
        .map(|(row, found)| {
            let [p50, p95, p99] = PERCENTILES.map(|p| found.latencies.percentile(p));
            let mean = stats::mean(&found.bytes_per_second);
            Figures {
                row: *row,
                latency_nanos: [p50, p95, p99, found.latencies.longest()],
                spread_percent: stats::spread_percent(&found.bytes_per_second),
                change_percent: stats::change_percent(base(row.pattern), mean),
                bytes_per_second: found.bytes_per_second.clone(),
            }
        })
        .collect();
    Report {
        rows,
        length: plan.length,
        elapsed,
        notes: plan.notes.clone(),
    }
}
