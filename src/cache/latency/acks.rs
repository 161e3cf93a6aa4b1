//! What `write` says while it runs, to be captured off the device: one line for the beginning, one for
//! each acknowledged record. Text, or JSON lines.

use crate::cache::latency::record::RunId;
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The beginning of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which.
    pub run: RunId,
    /// What lay in the record's place before.
    pub previous: Option<RunId>,
    /// GPT name.
    pub partition: String,
    /// Where the record lies in it.
    pub offset: Bytes,
    /// Bytes that are overwritten beside it.
    pub hot: Bytes,
    /// Each record is flushed before it is acknowledged.
    pub flush: bool,
    /// Monotonic time just before record 0 was written: this line acknowledges it, flushed.
    pub time: Duration,
}

/// One acknowledged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Of which run.
    pub run: RunId,
    /// Sequence.
    pub sequence: u64,
    /// Monotonic time just before it was written.
    pub time: Duration,
}

/// `start run=… previous=… offset=… hot=… flush=no time=… partition=userdata`.
impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let previous = self.previous.map_or("none".to_owned(), |p| p.to_string());
        write!(
            f,
            "start run={} previous={previous} offset={} hot={} flush={} time={} partition={}",
            self.run,
            self.offset.0,
            self.hot.0,
            if self.flush { "yes" } else { "no" },
            Seconds(self.time),
            self.partition
        )
    }
}

/// `ack run=… seq=17 time=12.345678901`, seconds.
impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Seconds(self.time);
        write!(f, "ack run={} seq={} time={time}", self.run, self.sequence)
    }
}

/// A time as `12.345678901`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}

/// Reads `12.345678901`, seconds.
///
/// # Errors
/// A sentence that says what was wrong with the text.
pub fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write seconds, as 12.345678901");
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    let nanos: u32 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    Ok(Duration::new(seconds, nanos))
}

/// Everything that was captured of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Which.
    pub run: RunId,
    /// Its beginning, where that was captured too.
    pub start: Option<Start>,
    /// Times by sequence.
    pub times: BTreeMap<u64, Duration>,
    /// Lines that are none of ours: a log has others, and the last may be cut.
    pub ignored: usize,
}

enum Line {
    Start(Start),
    Ack(Ack),
}

impl Acks {
    /// Reads what was captured.
    ///
    /// # Errors
    /// `INVALID_REQUEST` where nothing is acknowledged in it, where it has lines of several runs, or one
    /// record with two times.
    pub fn parse(text: &str) -> Result<Acks> {
        let mut run = None;
        let mut start = None;
        let mut times = BTreeMap::new();
        let mut ignored = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let read = match line.trim_start().starts_with('{') {
                true => json(line),
                false => words(line),
            };
            let of = match &read {
                Some(Line::Start(start)) => start.run,
                Some(Line::Ack(ack)) => ack.run,
                None => {
                    ignored += 1;
                    continue;
                }
            };
            let first = *run.get_or_insert(of);
            if first != of {
                return Err(invalid(format!(
                    "the acknowledgements are of several runs ({first} and {of}): times of two runs \
                     cannot be compared"
                ))
                .remedy("keep the lines of one run: those after its `start` line"));
            }
            match read {
                Some(Line::Ack(ack)) => {
                    let before = times.insert(ack.sequence, ack.time);
                    if before.is_some_and(|before| before != ack.time) {
                        return Err(invalid(format!(
                            "record {} is acknowledged twice, with two times",
                            ack.sequence
                        ))
                        .remedy("capture the lines anew; these have been mixed up"));
                    }
                }
                Some(Line::Start(line)) => {
                    times.insert(0, line.time);
                    start = Some(line);
                }
                None => {}
            }
        }
        let Some(run) = run.filter(|_| !times.is_empty()) else {
            return Err(invalid("nothing is acknowledged there".to_owned()).remedy(
                "capture standard output of `cache latency write` off the device, as by \
                 `adb shell blockctl cache latency write … > acks`",
            ));
        };
        Ok(Acks {
            run,
            start,
            times,
            ignored,
        })
    }

    /// The last record that was acknowledged.
    pub fn last(&self) -> Option<Ack> {
        let (sequence, time) = self.times.iter().next_back()?;
        Some(Ack {
            run: self.run,
            sequence: *sequence,
            time: *time,
        })
    }
}

fn invalid(text: String) -> Failure {
    Failure::new(Code::InvalidRequest, "acks", text)
}

/// `key=value` words behind the first; `partition` is the last, since names may have spaces.
fn words(line: &str) -> Option<Line> {
    // Whatever a serial console or logcat puts before.
    let at = line.find("ack run=").or_else(|| line.find("start run="))?;
    let (kind, rest) = line[at..].trim_end().split_once(' ')?;
    let (rest, partition) = match rest.split_once(" partition=") {
        Some((rest, name)) => (rest, Some(name)),
        None => (rest, None),
    };
    let value = |key: &str| {
        rest.split(' ')
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let run = RunId::parse(value("run")?)?;
    // A line that was cut has fewer digits, and would be another time.
    let time = value("time")?;
    time.split_once('.').filter(|(_, f)| f.len() == 9)?;
    let time = parse_seconds(time).ok()?;
    if kind == "ack" {
        return Some(Line::Ack(Ack {
            run,
            sequence: value("seq")?.parse().ok()?,
            time,
        }));
    }
    Some(Line::Start(Start {
        run,
        previous: RunId::parse(value("previous")?),
        partition: partition?.to_owned(),
        offset: Bytes(value("offset")?.parse().ok()?),
        hot: Bytes(value("hot")?.parse().ok()?),
        flush: value("flush")? == "yes",
        time,
    }))
}

fn json(line: &str) -> Option<Line> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let run = RunId::parse(value["run"].as_str()?)?;
    match value["event"].as_str()? {
        "ack" => Some(Line::Ack(Ack {
            run,
            sequence: value["sequence"].as_u64()?,
            time: Duration::from_nanos(value["monotonic_nanos"].as_u64()?),
        })),
        "start" => Some(Line::Start(Start {
            run,
            previous: value["previous"].as_str().and_then(RunId::parse),
            partition: value["partition"].as_str()?.to_owned(),
            offset: Bytes(value["offset_bytes"].as_u64()?),
            hot: Bytes(value["hot_bytes"].as_u64()?),
            flush: value["flush"].as_bool()?,
            time: Duration::from_nanos(value["monotonic_nanos"].as_u64()?),
        })),
        _ => None,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Start {
    /// The same as a line of JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "event": "start",
            "run": self.run.to_string(),
            "previous": self.previous.map(|run| run.to_string()),
            "partition": self.partition,
            "offset_bytes": self.offset.0,
            "hot_bytes": self.hot.0,
            "flush": self.flush,
            "monotonic_nanos": nanos(self.time),
        })
    }
}

impl Ack {
    /// The same as a line of JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "event": "ack",
            "run": self.run.to_string(),
            "sequence": self.sequence,
            "monotonic_nanos": nanos(self.time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Start {
        Start {
            run: RunId([1; 16]),
            previous: Some(RunId([2; 16])),
            partition: "user data".to_owned(),
            offset: Bytes(31 << 20),
            hot: Bytes(26 << 20),
            flush: true,
            time: Duration::new(0, 7),
        }
    }

    fn ack(sequence: u64) -> Ack {
        Ack {
            run: RunId([1; 16]),
            sequence,
            time: Duration::new(sequence, 5),
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        let text = format!("{}\n{}\n{}\n", start(), ack(1), ack(2));
        let lines = format!(
            "{}\n{}\n{}\n",
            start().to_json(),
            ack(1).to_json(),
            ack(2).to_json()
        );
        for captured in [text, lines] {
            let acks = Acks::parse(&captured).expect("acks");
            assert_eq!(acks.start, Some(start()));
            assert_eq!(acks.last(), Some(ack(2)));
            assert_eq!((acks.times.len(), acks.ignored), (3, 0));
        }
    }

    #[test]
    fn a_line_that_was_cut_acknowledges_nothing() {
        let whole = format!("{}\n{}\n", ack(1), ack(23));
        let second = ack(1).to_string().len() + 1;
        for end in second..whole.len() - 1 {
            let acks = Acks::parse(&whole[..end]).expect("acks");
            assert_eq!(acks.last(), Some(ack(1)), "{}", &whole[..end]);
        }
        // What a console puts before a line does not hide it.
        let logged = format!("[   12.345] {}\r\nnoise\n", ack(7));
        let acks = Acks::parse(&logged).expect("acks");
        assert_eq!((acks.last(), acks.ignored), (Some(ack(7)), 1));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let other = Ack {
            run: RunId([9; 16]),
            ..ack(3)
        };
        let twice = Ack {
            time: Duration::from_secs(99),
            ..ack(1)
        };
        let table = [
            (format!("{}\n{other}\n", ack(1)), "several runs"),
            (format!("{}\n{twice}\n", ack(1)), "twice"),
            (String::new(), "nothing is acknowledged"),
            ("hello\n".to_owned(), "nothing is acknowledged"),
        ];
        for (text, words) in table {
            let failure = Acks::parse(&text).expect_err(words);
            assert!(failure.message.contains(words), "{failure}");
        }
    }

    #[test]
    fn the_beginning_acknowledges_record_0() {
        let acks = Acks::parse(&start().to_string()).expect("acks");
        let last = acks.last().map(|ack| (ack.sequence, ack.time));
        assert_eq!(last, Some((0, start().time)));
    }

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        assert_eq!(
            parse_seconds("12.345678901"),
            Ok(Duration::new(12, 345_678_901))
        );
        assert_eq!(parse_seconds("7"), Ok(Duration::from_secs(7)));
        assert_eq!(parse_seconds("7.5"), Ok(Duration::from_millis(7500)));
        for bad in ["", "x", "1.x", "-1", "1.0000000001", "1.-5"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
