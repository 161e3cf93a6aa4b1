//! `bench fua`: the FUA measurement beside fio, on this machine, on a disk in memory.

use std::process::Command;

use anyhow::{bail, Context, Result};
use serde_json::{json, Value};

use crate::{binaries, process};

/// How far from fio a row may be that is no noise.
const NEAR: f64 = 0.05;

/// Runs it. With `json` the rows are the last line of standard output.
///
/// # Errors
/// There is no fio or no loop device, or the disk was asked for other things than by fio.
pub fn run(rounds: usize, json: bool) -> Result<()> {
    let program = binaries::programs()?.join("blockd-bench");
    let mut bench = Command::new(program);
    bench.args(["fua", "--rounds", &rounds.to_string()]);
    let text = process::capture(&mut bench)?;
    let parse = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
    let rows: Vec<Value> = text.lines().map(parse).collect::<Result<_>>()?;
    if rows.is_empty() {
        bail!("nothing was measured");
    }
    let (near, counted) = near(&rows);
    if json {
        let result = json!({
            "bench": "fua", "rows": rows,
            "not_noisy": counted, "within_5_percent": near,
        });
        println!("{result}");
    } else {
        print!("{}", table(&rows));
        println!("{near} of {counted} rows that are no noise are within 5 % of fio");
    }
    Ok(())
}

/// (rows within 5 % of fio, rows that are no noise).
fn near(rows: &[Value]) -> (usize, usize) {
    let good: Vec<_> = rows.iter().filter(|row| row["noisy"] == false).collect();
    let ratio = |row: &&Value| row["ratio"].as_f64().unwrap_or(f64::NAN);
    let near = good.iter().map(ratio).filter(|r| (r - 1.0).abs() <= NEAR);
    (near.count(), good.len())
}

fn table(rows: &[Value]) -> String {
    let mut text = format!(
        "{:<10} {:<6} {:>8} {:>10} {:>12} {:>12} {:>6} {:>24}\n",
        "pattern",
        "path",
        "block",
        "operations",
        "ours MiB/s",
        "fio MiB/s",
        "ratio",
        "reads/writes/flushes"
    );
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let word = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
        let ios = &row["ios"];
        text += &format!(
            "{:<10} {:<6} {:>8} {:>10} {:>12.2} {:>12.2} {:>6.3} {:>24}{}\n",
            word("pattern"),
            word("path"),
            row["block_bytes"].to_string(),
            row["operations"].to_string(),
            number("ours_mib_s"),
            number("fio_mib_s"),
            number("ratio"),
            format!("{}/{}/{}", ios["reads"], ios["writes"], ios["flushes"]),
            if row["noisy"] == true { "  noisy" } else { "" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_proves_nothing() {
        let row = |ratio: f64, noisy: bool| json!({"ratio": ratio, "noisy": noisy});
        let rows = [
            row(1.04, false),
            row(0.96, false),
            row(0.9, false),
            row(1.0, true),
        ];
        assert_eq!(near(&rows), (2, 3));
        // A row without a ratio is not near.
        assert_eq!(near(&[json!({"noisy": false})]), (0, 1));
    }
}
