use super::*;
use crate::aidl::{
    MmcCommand::MmcCommand, ResetPlan::ResetPlan, ResetReport::ResetReport,
    ResetTarget::ResetTarget, StepTime::StepTime, TargetReport::TargetReport,
};

fn command(index: i32) -> MmcCommand {
    MmcCommand {
        index,
        argument: 0x8000_0000 + i64::from(index),
        response: -1,
    }
}

/// No two fields of a kind alike, and the ends of every range.
fn full() -> ResetReport {
    let text = |t: &str| t.to_owned();
    ResetReport {
        formatVersion: FORMAT_VERSION,
        softwareVersion: text("1.2.3"),
        token: text("t"),
        startedUnixMillis: i64::MIN,
        elapsedMillis: i64::MAX,
        plan: ResetPlan {
            disk: text("mmcblk0"),
            cardName: text("\"</td>\u{7}\u{1F600}\n"),
            cid: text("00"),
            method: aidl::Method::Method::SECURE_TRIM,
            physical: aidl::Physical::Physical::SANITIZE,
            assurance: aidl::Assurance::Assurance::PURGE,
            eraseGroupBytes: 1 << 53 | 1,
            erasedValue: 255,
            verify: aidl::Verify::Verify::FULL,
            marker: aidl::Marker::Marker::FILE,
            attempt: i32::MAX,
            sanitize: true,
            maxChunkBytes: 7,
            targets: vec![ResetTarget {
                partition: text("userdata"),
                node: text("mmcblk0p1"),
                startBytes: 1,
                lengthBytes: 2,
                headBytes: 3,
                middleBytes: 4,
                tailBytes: 5,
                overwrittenBytes: 6,
                eraseGroups: 7,
                commands: vec![command(35), command(36)],
                omittedCommands: 0,
                limitMillis: 8,
                eraseCommands: 9,
                kernelEraseCommands: 10,
                modelMillis: 11,
                kernelModelMillis: 12,
                samples: 13,
            }],
            steps: vec![text("one"), text("two")],
            notes: vec![text("three")],
        },
        targets: vec![TargetReport {
            partition: text("userdata"),
            startBytes: 21,
            erasedBytes: 22,
            overwrittenBytes: 23,
            commands: vec![command(38)],
            omittedCommands: 5,
            eraseCommands: 2,
            eraseMicros: 24,
            canaries: 25,
            canariesFound: 26,
            samples: 27,
            samplesWrong: 28,
            neighbours: 29,
            neighboursChanged: i32::MIN,
            detectionProbability: 0.926_735,
        }],
        sanitizeCommands: vec![command(6), command(13)],
        // 99 has no name: it stays a number.
        logical: aidl::Logical::Logical(99),
        physical: aidl::Physical::Physical::NONE,
        assurance: aidl::Assurance::Assurance::CLEAR,
        formatNeeded: false,
        steps: vec![StepTime {
            step: text("erase"),
            micros: 31,
        }],
        warnings: vec![text("w")],
        error: aidl::ErrorCode::ErrorCode(0),
        message: String::new(),
    }
}

/// Through text, as a file is.
fn again(value: &Value) -> Value {
    serde_json::from_str(&value.to_string()).expect("it was JSON")
}

#[test]
fn a_report_survives_json() {
    let report = full();
    let value = again(&super::report(&report));
    // The debug forms, since Soong's types have no equality.
    let back = parse_report(&value).expect("it was a report");
    assert_eq!(format!("{back:?}"), format!("{report:?}"));
    assert_eq!(value["plan"]["card_name"], "\"</td>\u{7}\u{1F600}\n");
    assert_eq!(value["plan"]["method"], "secure-trim");
    assert_eq!(value["logical"], 99);
    assert_eq!(value["plan"]["targets"][0]["kernel_model_millis"], 12);
}

quickcheck::quickcheck! {
    fn numbers_survive_json(bytes: i64, count: i32, millionths: u32, text: String) -> bool {
        let mut report = full();
        report.token = text;
        report.plan.eraseGroupBytes = bytes;
        report.plan.attempt = count;
        report.targets[0].detectionProbability = f64::from(millionths % 1_000_001) / 1e6;
        let back = parse_report(&again(&super::report(&report)));
        back.map(|back| format!("{back:?}")) == Ok(format!("{report:?}"))
    }
}

/// Every place in `value` that has a key, as the pointer to its object and the key.
fn places(value: &Value, at: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.push((at.to_owned(), key.clone()));
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn what_is_missing_or_of_another_type_is_named() {
    let value = super::report(&full());
    let mut found = Vec::new();
    places(&value, "", &mut found);
    assert!(found.len() > 60, "{}", found.len());
    for (object, key) in found {
        let mut less = value.clone();
        let mut other = value.clone();
        for (value, new) in [(&mut less, None), (&mut other, Some(Value::Null))] {
            let map = value.pointer_mut(&object).and_then(Value::as_object_mut);
            let map = map.expect("an object");
            match new {
                None => drop(map.remove(&key)),
                Some(new) => drop(map.insert(key.clone(), new)),
            }
            let why = parse_report(value).map(|_| ()).unwrap_err();
            assert!(why.contains(&format!(".{key} ")), "{object} {key}: {why}");
        }
    }
}

#[test]
fn newer_reports_are_read_as_far_as_they_promise() {
    let mut value = super::report(&full());
    value["new_key"] = Value::from("passed over");
    assert!(parse_report(&value).is_ok());
    value["plan"]["method"] = Value::from("by-moonlight");
    let why = parse_report(&value).map(|_| ()).unwrap_err();
    assert_eq!(why, ".plan.method has the unknown value `by-moonlight`");
    value["format_version"] = Value::from(FORMAT_VERSION + 1);
    let why = parse_report(&value).map(|_| ()).unwrap_err();
    assert_eq!(why, "format_version is 2, this version reads 1");
    let why = parse_report(&Value::Null).map(|_| ()).unwrap_err();
    assert_eq!(why, " is no object");
}

#[test]
fn keys_are_snake_case() {
    assert_eq!(key("startedUnixMillis"), "started_unix_millis");
    assert_eq!(key("cid"), "cid");
}
