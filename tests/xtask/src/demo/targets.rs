//! What the demonstration must find, and how it is told to a person.

use serde_json::Value;

use crate::card;

/// A condition on one value.
#[derive(Clone, Copy)]
enum Target {
    Is(u64),
    IsBool(bool),
    IsText(&'static str),
    AtMost(f64),
    AtLeast(f64),
    /// Told, without a target.
    Measured,
}

use Target::{AtLeast, AtMost, Is, IsBool, IsText, Measured};

/// One row: where the value lies, what it must be, what it says to a person.
type Row = (&'static str, Target, &'static str);

/// 2048 groups in commands of 7 groups, which is what 6.12 makes of this card's registers.
const KERNEL_COMMANDS: u64 = card::USERDATA_GROUPS.div_ceil(7);

const ROWS: &[Row] = &[
    (
        "/reset/cmd38",
        Is(1),
        "erase commands (CMD38) that the card got for userdata",
    ),
    (
        "/reset/multi_cmd_ioctls",
        Is(1),
        "MMC_IOC_MULTI_CMD calls that the kernel saw",
    ),
    (
        "/reset/erased_bytes",
        Is(card::USERDATA_GROUPS << 19),
        "bytes erased by it",
    ),
    ("/reset/edge_bytes", Is(0), "bytes overwritten at its edges"),
    (
        "/reset/old_data_found",
        IsBool(false),
        "old data on the whole medium of userdata",
    ),
    (
        "/reset/neighbours_intact",
        IsBool(true),
        "every other sector of the card as before",
    ),
    (
        "/reset/logical",
        IsText("verified"),
        "read back by the service",
    ),
    (
        "/reset/physical",
        IsText("secure-erase"),
        "claimed by the card",
    ),
    (
        "/reset/modelled_seconds",
        AtMost(1.5),
        "seconds of the card's model in CMD38",
    ),
    ("/ragged/cmd38", Is(1), "erase commands for ragged"),
    (
        "/ragged/multi_cmd_ioctls",
        Is(1),
        "MMC_IOC_MULTI_CMD calls for ragged",
    ),
    (
        "/ragged/edge_bytes",
        AtLeast(1.0),
        "bytes overwritten at its edges",
    ),
    (
        "/ragged/old_data_found",
        IsBool(false),
        "old data on the whole medium of ragged",
    ),
    (
        "/ragged/neighbours_intact",
        IsBool(true),
        "every other sector of the card as before",
    ),
    (
        "/ragged/logical",
        IsText("verified"),
        "read back by the service",
    ),
    (
        "/ragged/modelled_seconds",
        AtMost(1.5),
        "seconds of the card's model in CMD38",
    ),
    (
        "/kernel_blksecdiscard/cmd38",
        Is(KERNEL_COMMANDS),
        "erase commands that the kernel's own BLKSECDISCARD needs for userdata",
    ),
    ("/images/attached", Is(40), "images attached in each round"),
    (
        "/images/verified",
        Is(40),
        "devices read whole, SHA-256 as on the host",
    ),
    (
        "/images/queue_freezes",
        Is(0),
        "queue freezes in all rounds with devices made ahead",
    ),
    (
        "/images/grace_period_waits",
        Is(0),
        "other waits for an RCU grace period in those rounds",
    ),
    (
        "/images/milliseconds",
        AtMost(25.0),
        "ms for all, devices made ahead (median)",
    ),
    (
        "/images/milliseconds_cold",
        Measured,
        "ms for all, no device made ahead",
    ),
    (
        "/images/classic_milliseconds",
        Measured,
        "ms for the classic sequence of ioctls",
    ),
];

impl Target {
    fn holds(self, value: &Value) -> bool {
        match self {
            Is(wanted) => value.as_u64() == Some(wanted),
            IsBool(wanted) => value.as_bool() == Some(wanted),
            IsText(wanted) => value.as_str() == Some(wanted),
            AtMost(most) => value.as_f64().is_some_and(|v| v <= most),
            AtLeast(least) => value.as_f64().is_some_and(|v| v >= least),
            Measured => value.is_number(),
        }
    }

    fn text(self) -> String {
        match self {
            Is(wanted) => wanted.to_string(),
            IsBool(wanted) => wanted.to_string(),
            IsText(wanted) => wanted.to_owned(),
            AtMost(most) => format!("at most {most}"),
            AtLeast(least) => format!("at least {least}"),
            Measured => "a number".to_owned(),
        }
    }
}

fn value<'a>(result: &'a Value, path: &str) -> &'a Value {
    result.pointer(path).unwrap_or(&Value::Null)
}

/// What only the guest can measure: it has a kernel to trace, and a clock of its own.
const GUEST_ONLY: &[&str] = &[
    "/kernel_blksecdiscard/cmd38",
    "/images/queue_freezes",
    "/images/grace_period_waits",
    "/images/classic_milliseconds",
];

/// The rows that a result can have.
fn rows(result: &Value) -> impl Iterator<Item = Row> + '_ {
    let in_guest = result["transport"] == "binder";
    let without_images = !in_guest && result["images"].is_null();
    ROWS.iter()
        .filter_map(move |&(path, target, what)| match path {
            _ if in_guest => Some((path, target, what)),
            _ if GUEST_ONLY.contains(&path) => None,
            _ if without_images && path.starts_with("/images/") => None,
            // This machine's clock sees whatever else runs on it.
            "/images/milliseconds" => Some((path, Measured, what)),
            _ => Some((path, target, what)),
        })
}

/// What a result cannot say.
pub fn not_measured(result: &Value) -> Vec<&'static str> {
    let measured: Vec<_> = rows(result).map(|(path, _, _)| path).collect();
    let all = ROWS.iter().map(|(path, _, _)| *path);
    all.filter(|path| !measured.contains(path)).collect()
}

/// The rows whose value is not as it must be.
pub fn missed(result: &Value) -> Vec<String> {
    rows(result)
        .filter(|(path, target, _)| !target.holds(value(result, path)))
        .map(|(path, target, what)| {
            format!(
                "{path} is {}, not {} ({what})",
                value(result, path),
                target.text()
            )
        })
        .collect()
}

/// One line for each value.
pub fn text(result: &Value) -> String {
    let line = |(path, target, what): Row| {
        let value = value(result, path);
        let mark = if target.holds(value) {
            "ok    "
        } else {
            "MISSED"
        };
        format!(
            "{mark} {:>12}  {what}\n",
            value.to_string().trim_matches('"')
        )
    };
    let clock = value(result, "/images/clock");
    let clock = clock
        .as_str()
        .map(|name| format!("clock of the images: {name}\n"));
    rows(result).map(line).chain(clock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kernels_count_is_that_of_seven_groups() {
        assert_eq!(KERNEL_COMMANDS, 293);
    }

    #[test]
    fn every_row_can_be_missed() {
        let empty = json!({"transport": "binder"});
        assert_eq!(missed(&empty).len(), ROWS.len());
        assert!(not_measured(&empty).is_empty());
        let result = json!({"transport": "binder", "reset": {"cmd38": 2}});
        assert!(missed(&result)[0].starts_with("/reset/cmd38 is 2, not 1"));
        let unix = json!({"transport": "unix", "images": {}});
        assert_eq!(missed(&unix).len(), ROWS.len() - GUEST_ONLY.len());
        assert_eq!(not_measured(&unix), GUEST_ONLY);
        assert!(text(&result).starts_with("MISSED            2  erase commands"));
    }
}
