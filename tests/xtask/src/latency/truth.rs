//! What a card really lost: the two sectors on its medium against everything that it was sent for
//! them. No checksum and no record is read for it.

use std::collections::BTreeMap;

use anyhow::{ensure, Context, Result};
use serde_json::Value;

/// What `check` says, or what is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `nothing lost`, `lost`, `torn`, `stale`; what `check` says may be another.
    pub name: String,
    /// Acknowledged records that are lost.
    pub lost: Option<u64>,
    /// Nanoseconds from the surviving record to the last acknowledged one.
    pub age: Option<u64>,
}

impl Verdict {
    fn new(name: &str, lost: Option<u64>, age: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            lost,
            age,
        }
    }

    /// What `cache latency check --json` answered.
    pub fn told(answer: &Value) -> Result<Self> {
        let output = &answer["output"];
        let name = output["verdict"].as_str();
        Ok(Self {
            name: name
                .with_context(|| format!("no verdict in {answer}"))?
                .to_owned(),
            lost: output["lost_records"].as_u64(),
            age: output["age_nanos"].as_u64(),
        })
    }
}

/// The times of what was acknowledged, nanoseconds by sequence; that of the `start` line is record
/// 0's. Read here once more, without the product.
pub fn times(lines: &[String]) -> Result<BTreeMap<u64, u64>> {
    let mut times = BTreeMap::new();
    for line in lines {
        let value = |key: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let time = value("time").with_context(|| format!("no time in `{line}`"))?;
        let (seconds, nanos) = time.split_once('.').context("a time without a point")?;
        let nanos = seconds.parse::<u64>()? * 1_000_000_000 + nanos.parse::<u64>()?;
        let sequence = match line.starts_with("start ") {
            true => 0,
            false => value("seq").context("no seq")?.parse()?,
        };
        times.insert(sequence, nanos);
    }
    ensure!(times.contains_key(&0), "no start line was captured");
    let last = times.len() as u64 - 1;
    ensure!(times.contains_key(&last), "a line is missing: {times:?}");
    Ok(times)
}

/// The truth about a cut. `sent` and `times` are this run's, `before` what earlier runs sent.
pub fn truth(
    medium: &[Vec<u8>; 2],
    sent: &[Vec<Vec<u8>>; 2],
    before: &[[Vec<Vec<u8>>; 2]],
    times: &BTreeMap<u64, u64>,
) -> Result<Verdict> {
    let last = times.len() as u64 - 1;
    let find = |sent: &[Vec<Vec<u8>>; 2]| {
        [0, 1].map(|half: usize| sent[half].iter().position(|bytes| *bytes == medium[half]))
    };
    let (first, second) = match find(sent) {
        [Some(a), Some(b)] => (a as u64, b as u64),
        [None, None] => {
            let old = before.iter().map(find);
            let old: Vec<_> = old.filter(|found| *found != [None, None]).collect();
            let one = old.len() == 1 && old[0][0] == old[0][1];
            return Ok(match old.is_empty() || one {
                true => Verdict::new("stale", Some(last + 1), None),
                false => Verdict::new("torn", None, None),
            });
        }
        _ => return Ok(Verdict::new("torn", None, None)),
    };
    let older = first.min(second);
    let lost = last.saturating_sub(older);
    let age = match lost {
        0 => 0,
        _ => times[&last] - times[&older],
    };
    let name = match (first == second, lost) {
        (false, _) => "torn",
        (true, 0) => "nothing lost",
        (true, _) => "lost",
    };
    Ok(Verdict::new(name, Some(lost), Some(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(numbers: [&[u8]; 2]) -> [Vec<Vec<u8>>; 2] {
        numbers.map(|half| half.iter().map(|n| vec![*n; 4]).collect())
    }

    #[test]
    fn the_medium_tells_the_truth() {
        let lines = [
            "start run=x previous=none offset=1 hot=2 flush=no time=1.000000000 partition=userdata",
            "ack run=x seq=1 time=1.000000100",
            "ack run=x seq=2 time=1.000000300",
        ];
        let times = times(&lines.map(str::to_owned)).unwrap();
        // The third was sent and is not acknowledged.
        let sent = run([&[10, 11, 12, 13], &[20, 21, 22, 23]]);
        let before = [run([&[1, 2], &[3, 4]])];
        type Case = ([u8; 2], &'static str, Option<u64>, Option<u64>);
        let table: [Case; 9] = [
            ([12, 22], "nothing lost", Some(0), Some(0)),
            ([13, 23], "nothing lost", Some(0), Some(0)),
            ([13, 22], "torn", Some(0), Some(0)),
            ([11, 21], "lost", Some(1), Some(200)),
            ([10, 20], "lost", Some(2), Some(300)),
            ([12, 20], "torn", Some(2), Some(300)),
            ([2, 4], "stale", Some(3), None),
            ([99, 99], "stale", Some(3), None),
            ([2, 3], "torn", None, None),
        ];
        for (medium, name, lost, age) in table {
            let medium = medium.map(|n| vec![n; 4]);
            let truth = truth(&medium, &sent, &before, &times).unwrap();
            assert_eq!(truth, Verdict::new(name, lost, age), "{medium:?}");
        }
        let mixed = [vec![12; 4], vec![4; 4]];
        let truth = truth(&mixed, &sent, &before, &times).unwrap();
        assert_eq!(truth, Verdict::new("torn", None, None));
    }

    #[test]
    fn a_missing_line_is_no_finding() {
        let line = "ack run=x seq=1 time=1.000000100".to_owned();
        assert!(times(std::slice::from_ref(&line)).is_err());
        let start = "start run=x time=1.000000000".to_owned();
        let later = "ack run=x seq=2 time=1.000000200".to_owned();
        assert!(times(&[start, later]).is_err());
    }
}
