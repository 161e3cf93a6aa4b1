//! One JSON document about a card.
use crate::card::{Card, Counters, Entry};
use crate::store::{scan_card, NamedRange, ScanReport};
use serde::{Deserialize, Serialize};
use std::io;

/// What a test usually wants to know at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Counters since the last reset of the log.
    pub counters: Counters,
    /// Modelled time of all commands, microseconds.
    pub busy_us: u64,
    /// Dirty cache lines of 4 KiB.
    pub dirty_lines: u64,
    /// The card has power.
    pub powered: bool,
    /// The medium.
    pub scan: ScanReport,
    /// The log, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
    /// Commands that had no room in the log.
    pub dropped_entries: u64,
}

impl Report {
    /// Scans `ranges`; without any, the whole card as "card".
    ///
    /// # Errors
    /// As [`scan_card`].
    pub fn new(card: &Card, ranges: &[NamedRange], entries: bool) -> io::Result<Report> {
        let all = [NamedRange::new("card", 0, card.sectors())];
        let ranges = if ranges.is_empty() { &all } else { ranges };
        let log = &card.log;
        Ok(Report {
            counters: log.counters.clone(),
            busy_us: log.busy().as_micros() as u64,
            dirty_lines: card.dirty_lines() as u64,
            powered: card.powered(),
            scan: scan_card(card, ranges)?,
            entries: if entries {
                log.entries.clone()
            } else {
                Vec::new()
            },
            dropped_entries: log.dropped,
        })
    }
}
