//! Counts what every sector of a medium holds.
use super::{Extent, Pattern, Store, SECTOR};
use crate::card::Card;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;

/// How many sector numbers of each kind a report lists.
pub const FIRST: usize = 8;

/// A stretch of the medium with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRange {
    /// For the reader of the report, for instance a partition name.
    pub name: String,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub sectors: u64,
}

impl NamedRange {
    /// `sectors` from `start` on.
    pub fn new(name: &str, start: u64, sectors: u64) -> Self {
        NamedRange {
            name: name.to_owned(),
            start,
            sectors,
        }
    }
}

/// One range of a [`ScanReport`]. `pattern + erased + other == range.sectors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeReport {
    /// The range.
    #[serde(flatten)]
    pub range: NamedRange,
    /// Sectors that still hold exactly the initial pattern of their own number.
    pub pattern: u64,
    /// Sectors all bytes of which are the erased value.
    pub erased: u64,
    /// All others.
    pub other: u64,
    /// Sectors for which the card's volatile cache holds newer data (not part of the medium).
    pub dirty: u64,
    /// The first sectors counted in `pattern`.
    pub first_pattern: Vec<u64>,
    /// The first sectors counted in `erased`.
    pub first_erased: Vec<u64>,
    /// The first sectors counted in `other`.
    pub first_other: Vec<u64>,
}

/// Result of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanReport {
    /// Seed of the initial pattern, if the store has one.
    pub pattern_seed: Option<u64>,
    /// What erased sectors read as.
    pub erased_value: u8,
    /// An operation was in flight: the medium does not show its effect yet.
    pub in_flight: bool,
    /// In the caller's order.
    pub ranges: Vec<RangeReport>,
}

impl ScanReport {
    /// The range of that name.
    pub fn range(&self, name: &str) -> Option<&RangeReport> {
        self.ranges.iter().find(|r| r.range.name == name)
    }
}

/// Adds a run of equal sectors to a count and to the list of the first ones.
fn add(count: &mut u64, first: &mut Vec<u64>, run: Range<u64>) {
    *count += run.end - run.start;
    first.extend(run.take(FIRST.saturating_sub(first.len())));
}

impl RangeReport {
    fn count(&mut self, kind: Kind, run: Range<u64>) {
        match kind {
            Kind::Pattern => add(&mut self.pattern, &mut self.first_pattern, run),
            Kind::Erased => add(&mut self.erased, &mut self.first_erased, run),
            Kind::Other => add(&mut self.other, &mut self.first_other, run),
        }
    }
}

enum Kind {
    Pattern,
    Erased,
    Other,
}

fn classify(lba: u64, data: &[u8], erased: u8, pattern: Option<Pattern>) -> Kind {
    if data.iter().all(|b| *b == erased) {
        Kind::Erased
    } else if pattern.is_some_and(|p| p.matches(lba, data)) {
        Kind::Pattern
    } else {
        Kind::Other
    }
}

/// Scans the medium. Untouched and erased extents are counted without being read, everything
/// else is read and judged by content, so the result is exact.
///
/// # Errors
/// A range beyond the end, or an error of the store.
pub fn scan(store: &dyn Store, ranges: &[NamedRange]) -> io::Result<ScanReport> {
    let mut report = ScanReport {
        pattern_seed: store.pattern().map(|p| p.seed),
        erased_value: store.erased_value(),
        in_flight: false,
        ranges: Vec::new(),
    };
    let erased = report.erased_value;
    let mut buf = vec![0; 1 << 20];
    for range in ranges {
        let end = range.start.checked_add(range.sectors);
        let Some(end) = end.filter(|end| *end <= store.sectors()) else {
            let what = format!("range {} leaves the medium", range.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let mut r = RangeReport {
            range: range.clone(),
            pattern: 0,
            erased: 0,
            other: 0,
            dirty: 0,
            first_pattern: Vec::new(),
            first_erased: Vec::new(),
            first_other: Vec::new(),
        };
        for (extent, kind) in store.extents(range.start..end)? {
            match kind {
                Extent::Pattern => r.count(Kind::Pattern, extent),
                Extent::Erased => r.count(Kind::Erased, extent),
                Extent::Data => {
                    let mut at = extent.start;
                    while at < extent.end {
                        let n = (extent.end - at).min((buf.len() / SECTOR) as u64);
                        let part = &mut buf[..n as usize * SECTOR];
                        store.read(at, part)?;
                        for (lba, data) in (at..).zip(part.chunks_exact(SECTOR)) {
                            let kind = classify(lba, data, erased, store.pattern());
                            r.count(kind, lba..lba + 1);
                        }
                        at += n;
                    }
                }
            }
        }
        report.ranges.push(r);
    }
    Ok(report)
}

/// Scans the medium of a card; dirty cache lines and an operation in flight are reported, not
/// applied: the numbers are what a power cut at this moment would leave at best.
///
/// # Errors
/// As [`scan`].
pub fn scan_card(card: &Card, ranges: &[NamedRange]) -> io::Result<ScanReport> {
    let mut report = scan(card.store(), ranges)?;
    report.in_flight = card.busy_until().is_some();
    for r in &mut report.ranges {
        r.dirty = card.dirty_sectors(r.range.start..r.range.start + r.range.sectors);
    }
    Ok(report)
}
