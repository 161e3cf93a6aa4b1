//! The verdict: what was found against what was acknowledged. Pure.

use crate::cache::latency::acks::{Ack, Acks};
use crate::cache::latency::record::{Half, Record};
use crate::named_enum;
use crate::units::Bytes;
use std::time::Duration;

named_enum! {
    /// What became of the acknowledged records.
    Verdict {
        /// The last acknowledged record, or a later one, is there whole.
        NothingLost = 0 "nothing lost",
        /// A whole older record is there: the acknowledged ones after it are lost.
        Lost = 1 "lost",
        /// The two blocks are of different records, or one is of none.
        Torn = 2 "torn",
        /// What was there before the run is there still, though the run had flushed its first record.
        Stale = 3 "stale",
        /// A whole record, and nobody says what was acknowledged.
        Unknown = 4 "loss unknown",
        /// There is no record, and nobody says that there was one.
        NoRecord = 5 "no record",
        /// The record is of a run that is neither the acknowledged one nor the one before it.
        OtherRun = 6 "other run",
        /// The record, or the acknowledgements, are of another partition or place.
        WrongPlace = 7 "wrong partition",
    }
}

/// What is known of the acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// The last one, noted by hand.
    Last {
        /// Its sequence.
        sequence: u64,
        /// Its time, where that was noted too.
        time: Option<Duration>,
    },
    /// All that were captured.
    Acks(Acks),
}

/// Where is looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// GPT name.
    pub partition: String,
    /// Offset of the record in it.
    pub offset: Bytes,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The record that is there; of a torn one the older half.
    pub survivor: Option<Record>,
    /// The last acknowledged record.
    pub acknowledged: Option<(u64, Option<Duration>)>,
    /// Acknowledged records that are gone; record 0 counts too.
    pub lost: Option<u64>,
    /// Time from the survivor to the last acknowledged record: nothing older than this was lost.
    pub age: Option<Duration>,
    /// From the survivor to the first lost record: how exactly the age is known.
    pub resolution: Option<Duration>,
    /// In words.
    pub text: String,
}

impl Finding {
    fn new(verdict: Verdict, text: String) -> Finding {
        Finding {
            verdict,
            survivor: None,
            acknowledged: None,
            lost: None,
            age: None,
            resolution: None,
            text,
        }
    }

    fn survivor(mut self, record: &Record) -> Finding {
        self.survivor = Some(record.clone());
        self
    }

    /// Exit status: 0 where nothing was lost, 1 where something was, 2 where that cannot be told.
    pub fn exit(&self) -> u8 {
        match self.verdict {
            Verdict::NothingLost => 0,
            Verdict::Lost | Verdict::Torn | Verdict::Stale => 1,
            Verdict::Unknown | Verdict::NoRecord | Verdict::OtherRun | Verdict::WrongPlace => 2,
        }
    }
}

/// Judges the two blocks.
pub fn judge(halves: [&Half; 2], known: &Known, here: &Here) -> Finding {
    let mut finding = verdict(halves, known, here);
    finding.acknowledged = known.last();
    finding
}

impl Known {
    fn last(&self) -> Option<(u64, Option<Duration>)> {
        match self {
            Known::Nothing => None,
            Known::Last { sequence, time } => Some((*sequence, *time)),
            Known::Acks(acks) => acks
                .last()
                .map(|Ack { sequence, time, .. }| (sequence, Some(time))),
        }
    }

    fn acks(&self) -> Option<&Acks> {
        match self {
            Known::Acks(acks) => Some(acks),
            _ => None,
        }
    }
}

fn verdict(halves: [&Half; 2], known: &Known, here: &Here) -> Finding {
    if let Some(start) = known.acks().and_then(|acks| acks.start.as_ref()) {
        if start.partition != here.partition || start.offset != here.offset {
            return Finding::new(
                Verdict::WrongPlace,
                format!(
                    "the acknowledgements are of {}, byte {}; looked at was {}, byte {}",
                    start.partition, start.offset.0, here.partition, here.offset.0
                ),
            );
        }
    }
    let whole = halves.map(|half| match half {
        Half::Whole(record) => Some(record),
        _ => None,
    });
    let misplaced = whole
        .iter()
        .flatten()
        .find(|r| r.partition != here.partition || r.offset != here.offset);
    if let Some(record) = misplaced {
        return Finding::new(
            Verdict::WrongPlace,
            format!(
                "the record is of {}, byte {}: a copy; it says nothing of {}, byte {}",
                record.partition, record.offset.0, here.partition, here.offset.0
            ),
        )
        .survivor(record);
    }
    match (halves, whole) {
        (_, [Some(a), Some(b)]) if a == b => one(a, known),
        (_, [Some(a), Some(b)]) if a.run == b.run => torn_between(a, b, known),
        (_, [Some(a), Some(b)]) => Finding::new(
            Verdict::Torn,
            format!(
                "torn: the first block is of run {}, record {}, the second of run {}, record {}",
                a.run, a.sequence, b.run, b.sequence
            ),
        ),
        ([Half::Foreign, Half::Foreign], _) => nothing(known, here),
        ([a, b], [left, right]) => {
            let what = |half: &Half| match half {
                Half::Whole(record) => format!("whole, record {}", record.sequence),
                Half::Damaged => "damaged: neither old nor new".to_owned(),
                Half::Foreign => "no record at all".to_owned(),
            };
            let text = format!(
                "torn: the first block is {}, the second is {}",
                what(a),
                what(b)
            );
            let finding = Finding::new(Verdict::Torn, text);
            match left.or(right) {
                Some(record) => finding.survivor(record),
                None => finding,
            }
        }
    }
}

/// Neither block is a record.
fn nothing(known: &Known, here: &Here) -> Finding {
    match known.last() {
        None => Finding::new(
            Verdict::NoRecord,
            format!(
                "there is no record on {}: `cache latency write` has not run there, or it was \
                 overwritten since",
                here.partition
            ),
        ),
        Some((sequence, _)) => Finding {
            lost: Some(sequence + 1),
            ..Finding::new(
                Verdict::Stale,
                format!(
                    "stale: of the records up to {sequence}, all acknowledged, none is there, not even \
                     the first, which was flushed: the device loses what it says it has flushed (or \
                     the partition was overwritten since)"
                ),
            )
        },
    }
}

/// Both blocks are of the same record.
fn one(record: &Record, known: &Known) -> Finding {
    let Some((last, time)) = known.last() else {
        return Finding::new(
            Verdict::Unknown,
            format!(
                "record {} of run {} is there whole; without the acknowledgements nobody knows what \
                 came after it: loss unknown",
                record.sequence, record.run
            ),
        )
        .survivor(record);
    };
    if let Some(acks) = known.acks() {
        if acks.run != record.run {
            return other_run(record, acks, last);
        }
    }
    if record.sequence >= last {
        let more = record.sequence - last;
        let text = match more {
            0 => format!("nothing lost: record {last}, the last acknowledged one, is there whole"),
            _ => format!(
                "nothing lost: record {} is there whole, {more} after the last one whose \
                 acknowledgement is known",
                record.sequence
            ),
        };
        return Finding {
            lost: Some(0),
            age: Some(Duration::ZERO),
            ..Finding::new(Verdict::NothingLost, text).survivor(record)
        };
    }
    let (age, resolution) = ages(record, time, known);
    let lost = last - record.sequence;
    let text = format!(
        "lost: {lost} acknowledged record{} after record {}{}",
        if lost == 1 { "" } else { "s" },
        record.sequence,
        age_text(age, resolution)
    );
    Finding {
        lost: Some(lost),
        age,
        resolution,
        ..Finding::new(Verdict::Lost, text).survivor(record)
    }
}

fn ages(
    survivor: &Record,
    last: Option<Duration>,
    known: &Known,
) -> (Option<Duration>, Option<Duration>) {
    let age = last.and_then(|last| last.checked_sub(survivor.time));
    let next = known
        .acks()
        .and_then(|acks| acks.times.get(&(survivor.sequence + 1)))
        .and_then(|next| next.checked_sub(survivor.time));
    (age, next)
}

fn age_text(age: Option<Duration>, resolution: Option<Duration>) -> String {
    let millis = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1000.0);
    match (age, resolution) {
        (Some(age), Some(resolution)) => format!(
            ", up to {} before the last acknowledgement (to within {})",
            millis(age),
            millis(resolution)
        ),
        (Some(age), None) => format!(", up to {} before the last acknowledgement", millis(age)),
        _ => String::new(),
    }
}

/// The blocks are of two records of one run.
fn torn_between(a: &Record, b: &Record, known: &Known) -> Finding {
    let older = if a.sequence < b.sequence { a } else { b };
    let mut text = format!(
        "torn: the first block is of record {}, the second of record {}",
        a.sequence, b.sequence
    );
    let mut finding = Finding::new(Verdict::Torn, String::new()).survivor(older);
    let same_run = known.acks().map_or(true, |acks| acks.run == older.run);
    if let (Some((last, time)), true) = (known.last(), same_run) {
        let lost = last.saturating_sub(older.sequence);
        finding.lost = Some(lost);
        if lost == 0 {
            finding.age = Some(Duration::ZERO);
            text.push_str("; what was acknowledged is not older than the older half");
        } else {
            (finding.age, finding.resolution) = ages(older, time, known);
            text.push_str(&format!(
                "; of the older half {lost} acknowledged record{} lost{}",
                if lost == 1 { " is" } else { "s are" },
                age_text(finding.age, finding.resolution)
            ));
        }
    }
    finding.text = text;
    finding
}

fn other_run(record: &Record, acks: &Acks, last: u64) -> Finding {
    let before = acks.start.as_ref().and_then(|start| start.previous);
    if before == Some(record.run) {
        return Finding {
            lost: Some(last + 1),
            ..Finding::new(
                Verdict::Stale,
                format!(
                    "stale: record {} of the run before is there; of those up to {last}, all \
                     acknowledged, none is, not even the first, which was flushed: the device loses \
                     what it says it has flushed",
                    record.sequence
                ),
            )
            .survivor(record)
        };
    }
    Finding::new(
        Verdict::OtherRun,
        format!(
            "the record is of run {}, the acknowledgements of run {}: `write` has run again since, or \
             these acknowledgements are of another device",
            record.run, acks.run
        ),
    )
    .survivor(record)
}

#[cfg(test)]
mod tests;
