use super::*;
use crate::cache::latency::acks::Start;
use crate::cache::latency::record::RunId;

const RUN: RunId = RunId([1; 16]);
const BEFORE: RunId = RunId([2; 16]);
const LATER: RunId = RunId([3; 16]);

fn here() -> Here {
    Here {
        partition: "userdata".to_owned(),
        offset: Bytes(31 << 20),
    }
}

/// Record `sequence` was written at `sequence` × 10 ms.
fn at(sequence: u64) -> Duration {
    Duration::from_millis(sequence * 10)
}

fn record(run: RunId, sequence: u64) -> Record {
    Record {
        run,
        sequence,
        time: at(sequence),
        offset: here().offset,
        partition: here().partition,
    }
}

fn whole(sequence: u64) -> Half {
    Half::Whole(record(RUN, sequence))
}

fn acks(last: u64) -> Known {
    Known::Acks(Acks {
        run: RUN,
        start: Some(Start {
            run: RUN,
            previous: Some(BEFORE),
            partition: here().partition,
            offset: here().offset,
            hot: Bytes(26 << 20),
            flush: false,
            time: at(0),
        }),
        times: (0..=last).map(|n| (n, at(n))).collect(),
        ignored: 0,
    })
}

struct Row {
    name: &'static str,
    halves: [Half; 2],
    known: Known,
    verdict: Verdict,
    exit: u8,
    lost: Option<u64>,
    age_millis: Option<u64>,
    resolution_millis: Option<u64>,
    says: &'static str,
}

fn rows() -> Vec<Row> {
    let row = |name, halves, known, verdict, exit| Row {
        name,
        halves,
        known,
        verdict,
        exit,
        lost: None,
        age_millis: None,
        resolution_millis: None,
        says: "",
    };
    let both = |half: Half| [half.clone(), half];
    let of = |run, sequence| both(Half::Whole(record(run, sequence)));
    let with = |row: Row, lost, age: Option<u64>, resolution: Option<u64>, says| Row {
        lost: Some(lost),
        age_millis: age,
        resolution_millis: resolution,
        says,
        ..row
    };
    let elsewhere = Half::Whole(Record {
        partition: "cache".to_owned(),
        ..record(RUN, 5)
    });
    let mut wrong_acks = acks(9);
    if let Known::Acks(Acks {
        start: Some(start), ..
    }) = &mut wrong_acks
    {
        start.partition = "cache".to_owned();
    }
    let mut tail = acks(9);
    if let Known::Acks(acks) = &mut tail {
        acks.start = None;
        acks.times.retain(|n, _| *n >= 8);
    }
    vec![
        with(
            row("the last", both(whole(9)), acks(9), Verdict::NothingLost, 0),
            0,
            Some(0),
            None,
            "record 9, the last acknowledged one",
        ),
        with(
            row(
                "one in flight",
                both(whole(10)),
                acks(9),
                Verdict::NothingLost,
                0,
            ),
            0,
            Some(0),
            None,
            "1 after the last one",
        ),
        with(
            row("three are gone", both(whole(6)), acks(9), Verdict::Lost, 1),
            3,
            Some(30),
            Some(10),
            "3 acknowledged records after record 6, up to 30.000 ms",
        ),
        with(
            row(
                "all but the first",
                both(whole(0)),
                acks(9),
                Verdict::Lost,
                1,
            ),
            9,
            Some(90),
            Some(10),
            "9 acknowledged records after record 0",
        ),
        with(
            row(
                "the tail of the lines",
                both(whole(6)),
                tail.clone(),
                Verdict::Lost,
                1,
            ),
            3,
            Some(30),
            None,
            "up to 30.000 ms before the last acknowledgement",
        ),
        with(
            row(
                "noted by hand",
                both(whole(6)),
                Known::Last {
                    sequence: 7,
                    time: Some(at(7)),
                },
                Verdict::Lost,
                1,
            ),
            1,
            Some(10),
            None,
            "1 acknowledged record after",
        ),
        with(
            row(
                "noted without a time",
                both(whole(6)),
                Known::Last {
                    sequence: 8,
                    time: None,
                },
                Verdict::Lost,
                1,
            ),
            2,
            None,
            None,
            "2 acknowledged records after record 6",
        ),
        row(
            "nobody knows",
            both(whole(6)),
            Known::Nothing,
            Verdict::Unknown,
            2,
        ),
        with(
            row(
                "torn in flight",
                [whole(10), whole(9)],
                acks(9),
                Verdict::Torn,
                1,
            ),
            0,
            Some(0),
            None,
            "first block is of record 10, the second of record 9",
        ),
        with(
            row(
                "torn and lost",
                [whole(4), whole(8)],
                acks(9),
                Verdict::Torn,
                1,
            ),
            5,
            Some(50),
            Some(10),
            "5 acknowledged records are lost",
        ),
        row(
            "torn, nobody knows",
            [whole(4), whole(8)],
            Known::Nothing,
            Verdict::Torn,
            1,
        ),
        row(
            "damaged",
            [whole(4), Half::Damaged],
            acks(9),
            Verdict::Torn,
            1,
        ),
        row(
            "both damaged",
            both(Half::Damaged),
            Known::Nothing,
            Verdict::Torn,
            1,
        ),
        row(
            "half missing",
            [Half::Foreign, whole(4)],
            acks(9),
            Verdict::Torn,
            1,
        ),
        row(
            "halves of two runs",
            [whole(4), Half::Whole(record(BEFORE, 7))],
            acks(9),
            Verdict::Torn,
            1,
        ),
        with(
            row("the run before", of(BEFORE, 40), acks(9), Verdict::Stale, 1),
            10,
            None,
            None,
            "of the run before",
        ),
        with(
            row(
                "none, but acknowledged",
                both(Half::Foreign),
                acks(9),
                Verdict::Stale,
                1,
            ),
            10,
            None,
            None,
            "loses what it says it has flushed",
        ),
        row("a later run", of(LATER, 3), acks(9), Verdict::OtherRun, 2),
        row(
            "another run, no start",
            of(BEFORE, 3),
            tail,
            Verdict::OtherRun,
            2,
        ),
        row(
            "nothing at all",
            both(Half::Foreign),
            Known::Nothing,
            Verdict::NoRecord,
            2,
        ),
        row(
            "a copy",
            both(elsewhere),
            Known::Nothing,
            Verdict::WrongPlace,
            2,
        ),
        row(
            "acks of elsewhere",
            both(whole(9)),
            wrong_acks,
            Verdict::WrongPlace,
            2,
        ),
    ]
}

#[test]
fn every_case_has_its_verdict() {
    for row in rows() {
        let [a, b] = &row.halves;
        let finding = judge([a, b], &row.known, &here());
        let name = row.name;
        assert_eq!(finding.verdict, row.verdict, "{name}: {finding:?}");
        assert_eq!(finding.exit(), row.exit, "{name}");
        assert_eq!(finding.lost, row.lost, "{name}: {finding:?}");
        let millis = |time: Option<Duration>| time.map(|t| t.as_millis() as u64);
        assert_eq!(millis(finding.age), row.age_millis, "{name}");
        assert_eq!(millis(finding.resolution), row.resolution_millis, "{name}");
        assert!(finding.text.contains(row.says), "{name}: {}", finding.text);
        assert_eq!(finding.acknowledged, row.known.last(), "{name}");
    }
    for verdict in Verdict::ALL {
        assert!(
            rows().iter().any(|row| row.verdict == *verdict),
            "{verdict}"
        );
    }
}
