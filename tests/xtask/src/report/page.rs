//! The page: for each result what it means, its chart, and all of its numbers.

use serde_json::{Map, Value};

use super::chart::{bars, escape, Bar};

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><title>blockd: measurements</title>
<style>
body { font: 15px/1.45 sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #1a202c; }
svg { width: 100%; font: 12px sans-serif; } .axis { fill: #4a5568; }
table { border-collapse: collapse; font-size: 12px; } .wide { overflow-x: auto; }
th, td { border: 1px solid #cbd5e0; padding: 2px 6px; text-align: right; white-space: nowrap; }
th { background: #edf2f7; } h2 { margin-top: 2em; }
</style></head><body>
<h1>blockd: measurements</h1>
"#;

/// A result by what it is.
pub struct Section {
    title: &'static str,
    meaning: &'static str,
    unit: &'static str,
    bars: fn(&Value) -> Vec<Bar>,
}

/// What a result is; `None` for one that nobody knows.
pub fn section(result: &Value) -> Option<Section> {
    let (title, meaning, unit, bars): (_, _, _, fn(&Value) -> Vec<Bar>) =
        match result["bench"].as_str() {
            Some("erase") => (
                "Secure erase by size of its commands",
                "Each command costs the card the same time, whatever it erases: what the kernel splits \
                 into one command for each erase group takes as many times longer. Orange: through a \
                 real kernel in the guest, wall time of an emulated machine.",
                "seconds",
                erase,
            ),
            Some("images") => (
                "Attaching files as block devices",
                "Median of a round, by strategy and number of files. Orange: rows whose rounds lie too \
                 far apart to be more than a hint.",
                "milliseconds",
                images,
            ),
            Some("fua") => (
                "FUA: our measurement beside fio",
                "On a disk in memory, so that what measuring costs is most of it: the closer the pairs \
                 (blue: ours, orange: fio), the less of it is in the figures of a real device.",
                "MiB/s",
                fua,
            ),
            _ if result["verdict_right"].is_number() => (
                "Power loss: what acknowledged writes were worth",
                "Cuts of a card's power while records were acknowledged, by what the medium had really \
                 lost; the tool's verdict is right in as many as verdict_right says.",
                "cuts",
                latency,
            ),
            _ => return None,
        };
    Some(Section {
        title,
        meaning,
        unit,
        bars,
    })
}

/// The whole page.
pub fn page(results: &[(Section, Value)]) -> String {
    let mut page = HEAD.to_owned();
    for (section, result) in results {
        page += &format!(
            "<h2>{}</h2>\n<p>{}</p>\n",
            escape(section.title),
            escape(section.meaning)
        );
        page += &bars(section.title, section.unit, &(section.bars)(result));
        page += &numbers(result);
    }
    page + "</body></html>\n"
}

fn rows(result: &Value) -> impl Iterator<Item = &Value> {
    result["rows"].as_array().into_iter().flatten()
}

fn word(row: &Value, key: &str) -> String {
    match &row[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A bar for `row[key]`, or nothing where that is no number.
fn bar(row: &Value, key: &str, label: String, kind: usize) -> Option<Bar> {
    Some(Bar {
        value: row[key].as_f64()?,
        shown: row[key].to_string(),
        label,
        kind,
    })
}

fn erase(result: &Value) -> Vec<Bar> {
    let one = |row: &Value| {
        let guest = row["where"] == "guest";
        let key = if guest {
            "wall_seconds"
        } else {
            "modelled_seconds"
        };
        let chunk = match word(row, "chunk_groups").as_str() {
            "" => String::new(),
            groups => format!(", {groups} groups a command"),
        };
        let place = if guest { " (guest)" } else { "" };
        bar(
            row,
            key,
            word(row, "method") + &chunk + place,
            usize::from(guest),
        )
    };
    rows(result).filter_map(one).collect()
}

fn images(result: &Value) -> Vec<Bar> {
    let one = |row: &Value| {
        let over = match word(row, "over").as_str() {
            "" => String::new(),
            over => format!(" ({over})"),
        };
        let label = format!(
            "{}, {}, {} × {}{over}, {} threads",
            word(row, "where"),
            word(row, "backing"),
            word(row, "n"),
            word(row, "strategy"),
            word(row, "threads")
        );
        bar(row, "median_ms", label, usize::from(row["noisy"] == true))
    };
    rows(result).filter_map(one).collect()
}

fn fua(result: &Value) -> Vec<Bar> {
    let pair = |row: &Value| {
        let noisy = if row["noisy"] == true { ", noisy" } else { "" };
        let name = format!("{} {}", word(row, "pattern"), word(row, "path"));
        let both = [("ours_mib_s", "ours", 0), ("fio_mib_s", "fio", 1)];
        both.map(|(key, who, kind)| bar(row, key, format!("{name}, {who}{noisy}"), kind))
    };
    rows(result).flat_map(pair).flatten().collect()
}

fn latency(result: &Value) -> Vec<Bar> {
    let outcomes = result["outcomes"].as_object().into_iter().flatten();
    outcomes
        .filter_map(|(name, _)| bar(&result["outcomes"], name, name.clone(), 0))
        .collect()
}

/// Every value of a result: what stands alone in a list, the rows in a table.
fn numbers(result: &Value) -> String {
    let mut text = String::from("<ul>\n");
    let mut alone = Vec::new();
    for (key, value) in result.as_object().into_iter().flatten() {
        if key != "rows" {
            flatten(key, value, &mut alone);
        }
    }
    for (key, value) in &alone {
        text += &format!("<li>{}: {}</li>\n", escape(key), escape(value));
    }
    text += "</ul>\n";
    let rows: Vec<Vec<(String, String)>> = rows(result).map(fields).collect();
    let mut columns: Vec<&String> = Vec::new();
    for (key, _) in rows.iter().flatten() {
        if !columns.contains(&key) {
            columns.push(key);
        }
    }
    if columns.is_empty() {
        return text;
    }
    text += "<div class=\"wide\"><table>\n<tr>";
    for column in &columns {
        text += &format!("<th>{}</th>", escape(column));
    }
    text += "</tr>\n";
    for row in &rows {
        text += "<tr>";
        for column in &columns {
            let value = row.iter().find(|(key, _)| key == *column);
            let value = value.map_or("", |(_, value)| value);
            text += &format!("<td>{}</td>", escape(value));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

fn fields(row: &Value) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (key, value) in row.as_object().unwrap_or(&Map::new()) {
        flatten(key, value, &mut fields);
    }
    fields
}

/// `ios.reads` and the like.
fn flatten(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, into)),
        Value::Array(values) => (0..)
            .zip(values)
            .for_each(|(n, value): (usize, _)| flatten(&format!("{name}.{n}"), value, into)),
        Value::Null => {}
        Value::String(text) => into.push((name.to_owned(), text.clone())),
        other => into.push((name.to_owned(), other.to_string())),
    }
}
