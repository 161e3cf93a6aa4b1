//! `bench erase`: the chunk table of the kernel mailing list's thread in virtual time, what the
//! product adds of its own, and the same range erased by three callers in the guest.

mod guest;
mod overhead;
mod table;

use anyhow::Result;
use serde_json::{json, Value};

use crate::vm::setup;

/// Runs it. With `json` everything is the last line of standard output.
///
/// # Errors
/// A reset fails, a count is not what it must be, or (with BLOCKD_REQUIRE=all) there is no guest.
pub fn run(json: bool, in_process: bool) -> Result<()> {
    let mut rows = table::rows()?;
    let overhead = overhead::measure()?;
    let mut not_measured = None;
    if in_process {
        not_measured = Some("--in-process".to_owned());
    } else {
        match setup::all() {
            Ok(equipment) => rows.extend(guest::rows(&equipment)?),
            Err(e) if std::env::var("BLOCKD_REQUIRE").is_ok_and(|v| v == "all") => return Err(e),
            Err(e) => not_measured = Some(format!("{e:#}")),
        }
    }
    let result = json!({
        "bench": "erase",
        "group_bytes": table::GROUP_BYTES,
        "range_bytes": table::GROUPS * table::GROUP_BYTES,
        "fitted": "the first and the last row of the chunk table only",
        "rows": rows,
        "overhead_ms": overhead.own_ms,
        "verify_ms": overhead.verify_ms,
        "guest_not_measured": not_measured,
    });
    if json {
        println!("{result}");
    } else {
        print!("{}", text(&result));
    }
    Ok(())
}

fn text(result: &Value) -> String {
    let mut text = String::from(
        "22 GiB in groups of 512 KiB, in process; the model is fitted to the first and the last \
         row only,\nthe rows between are predictions. The thread's first three times include 6 to \
         10 s of mkfs.\n\n",
    );
    let header = "method         groups/command  commands  modelled s  thread's s  wall s";
    text += &format!("{header}\n");
    let mut in_guest = false;
    for row in result["rows"].as_array().into_iter().flatten() {
        if row["where"] == "guest" && !in_guest {
            in_guest = true;
            text += &format!(
                "\n{} MiB through a real kernel, on a card without delays; wall s is the emulated \
                 machine's,\nof blockd with canaries and reading back, `of it` the erase alone\n\n\
                 {header}  of it\n",
                guest::range_bytes() >> 20
            );
        }
        text += &line(row);
    }
    if let Some(why) = result["guest_not_measured"].as_str() {
        text += &format!("\nnot measured in the guest: {why}\n");
    }
    text += &format!(
        "\nof its own, beside what the card is asked for: {:.2} ms; reading back: {:.2} ms\n",
        result["overhead_ms"].as_f64().unwrap_or_default(),
        result["verify_ms"].as_f64().unwrap_or_default(),
    );
    text
}

fn line(row: &Value) -> String {
    let seconds = |key: &str| row[key].as_f64();
    let of_it = seconds("erase_wall_seconds").map(|s| format!("  {s:>5.2}"));
    format!(
        "{:<13}  {:>14}  {:>8}  {:>10.2}  {:>10}  {:>6.2}{}\n",
        row["method"].as_str().unwrap_or_default(),
        row["chunk_groups"].to_string(),
        row["cmd38"].to_string(),
        seconds("modelled_seconds").unwrap_or_default(),
        seconds("seed_seconds").map_or("-".to_owned(), |s| s.to_string()),
        seconds("wall_seconds").unwrap_or_default(),
        of_it.unwrap_or_default(),
    )
}
