//! `blockctl … --html`.

use super::markup::check;
use crate::case::Outcome;
use crate::reset::layout::{expect_erased_exactly, expect_untouched, machine, plain, plain_fields};
use crate::served::{json_of, Served};
use emmc::card::ext_csd::Fields;
use emmc::card::Config;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// SEC_FEATURE_SUPPORT, byte 231: secure erase and sanitize.
const SECURE_ERASE_AND_SANITIZE: u8 = 0x01 | 0x40;

fn serve(config: Config) -> Result<(Served, TempDir), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    Ok((Served::new(machine(config), &[], None)?, folder))
}

/// Resets `partitions` with a certificate in `file`; the report.
fn certify(served: &Served, file: &Path, partitions: &[&str]) -> Result<Value, String> {
    let file = file.to_string_lossy();
    let mut arguments = vec!["--json", "reset", "run", "--yes", "--marker", "none"];
    arguments.extend(["--html", &file]);
    arguments.extend(partitions);
    let output = served.blockctl(&arguments)?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json_of(&output)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Texts of a list of commands as a page shows them.
fn shown(commands: &Value) -> Vec<String> {
    let hex = |n: &Value| format!("{:#010x}", n.as_u64().unwrap_or(u64::MAX));
    commands
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|c| [hex(&c["argument"]), hex(&c["response"])])
        .collect()
}

pub fn says_it_all() -> Outcome {
    let (served, folder) = serve(plain())?;
    let file = folder.path().join("certificate.html");
    let report = certify(&served, &file, &["userdata", "ragged"])?;
    expect_erased_exactly(&served.card, &["userdata", "ragged"]);
    let page = read(&file)?;
    let text = check(&page)?;

    let mut wanted = vec![
        // The only claim that an overwritten edge leaves.
        "Worth: clear. Claimed by the device: none.".to_owned(),
        "Erased, not formatted".to_owned(),
        "userdata has no ragged edges.".to_owned(),
        "ragged shares erase groups with its neighbours".to_owned(),
        "overwritten twice".to_owned(),
        "CMD35 ERASE_GROUP_START".to_owned(),
        "CMD36 ERASE_GROUP_END".to_owned(),
        "CMD38 ERASE 0x80000000 secure erase".to_owned(),
        "CMD13 SEND_STATUS".to_owned(),
        "READY_FOR_DATA, state tran".to_owned(),
        "times out of 100".to_owned(),
        "Operator".to_owned(),
        "Device serial number".to_owned(),
        "Signature".to_owned(),
        format!("Erased by blockd {}", blockd::VERSION),
    ];
    let plan = &report["plan"];
    let texts = [&report["token"], &plan["card_name"], &plan["cid"]];
    wanted.extend(texts.map(|v| v.as_str().unwrap_or("(no text)").to_owned()));
    for list in [&plan["notes"], &report["warnings"]] {
        let list = list.as_array().into_iter().flatten();
        wanted.extend(list.filter_map(|v| v.as_str().map(str::to_owned)));
    }
    for (planned, target) in plan["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .zip(report["targets"].as_array().into_iter().flatten())
    {
        let number = |v: &Value| v.as_i64().unwrap_or(-1);
        let (start, length) = (
            number(&planned["start_bytes"]),
            number(&planned["length_bytes"]),
        );
        let name = target["partition"].as_str().unwrap_or("(no name)");
        let node = planned["node"].as_str().unwrap_or("(no node)");
        let last = start + length - 1;
        wanted.push(format!(
            "{name} {node} {start} {last} {} {}",
            target["erased_bytes"], target["overwritten_bytes"]
        ));
        wanted.push(format!(
            "{name} {} {} {} {} {} {}",
            target["canaries"],
            target["canaries_found"],
            target["samples"],
            target["samples_wrong"],
            target["neighbours"],
            target["neighbours_changed"]
        ));
        let commands = shown(&target["commands"]);
        assert!(commands.len() >= 8, "{commands:?}");
        wanted.extend(commands);
    }
    for step in report["steps"].as_array().into_iter().flatten() {
        wanted.push(format!("{} ", step["step"].as_str().unwrap_or("(no step)")));
    }
    let missing: Vec<&String> = wanted.iter().filter(|w| !text.contains(*w)).collect();
    assert!(missing.is_empty(), "{missing:#?} in\n{text}");
    // By the host's clock, which is the card model's machine too.
    let year = text
        .split_once("Started ")
        .map_or("", |(_, rest)| &rest[..4]);
    assert!(year >= "2020" && text.contains("Z Duration"), "{text}");

    // The same report, the same page; nothing but the page on stdout, nothing but it in the folder.
    let again = served.blockctl(&["reset", "report", "--html", "-"])?;
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(String::from_utf8_lossy(&again.stdout), page);
    let files = fs::read_dir(folder.path()).map_err(|e| e.to_string())?;
    assert_eq!(files.count(), 1);
    Ok(())
}

pub fn sanitize() -> Outcome {
    let fields = Fields {
        sec_feature_support: SECURE_ERASE_AND_SANITIZE,
        ..plain_fields()
    };
    let (served, folder) = serve(fields.into())?;
    let file = folder.path().join("certificate.html");
    let report = certify(&served, &file, &["userdata"])?;
    let text = check(&read(&file)?)?;
    let sent = &report["sanitize_commands"];
    assert_eq!(
        (&sent[0]["index"], &sent[1]["index"]),
        (&6.into(), &13.into())
    );
    let mut wanted = shown(sent);
    wanted.push("Worth: purge. Claimed by the device: sanitize.".to_owned());
    wanted.push("CMD6 SWITCH 0x03a50101 SANITIZE_START := 1".to_owned());
    wanted.push("recovery is infeasible even with the means of a laboratory".to_owned());
    for word in wanted {
        assert!(text.contains(&word), "`{word}` is missing in\n{text}");
    }
    Ok(())
}

/// What a card calls itself is shown, not obeyed.
pub fn hostile() -> Outcome {
    let (served, folder) = serve(plain())?;
    let name = "</td><script>alert('x')</script>\"&amp;<!--";
    let files = served.card.files();
    files.set(
        "/sys/block/mmcblk0/device/name",
        format!("{name}\u{202e}\u{7}"),
    );
    files.set("/sys/block/mmcblk0/device/cid", "<img src=http://x/>");
    let file = folder.path().join("certificate.html");
    certify(&served, &file, &["userdata"])?;
    let page = read(&file)?;
    let text = check(&page)?;
    assert!(text.contains(&format!("{name}\u{fffd}\u{fffd}")), "{text}");
    assert!(text.contains("<img src=http://x/>"), "{text}");
    for markup in ["<script", "<img", "<!--"] {
        assert!(!page.contains(markup), "{markup}");
    }
    Ok(())
}

pub fn never_replaced() -> Outcome {
    let (served, folder) = serve(plain())?;
    let file = folder.path().join("certificate.html");
    fs::write(&file, "filed").map_err(|e| e.to_string())?;
    let shown = file.to_string_lossy();
    let run = [
        "--json", "reset", "run", "--yes", "--marker", "none", "userdata",
    ];
    for place in [&*shown, "-"] {
        let output = served.blockctl(&[&run[..], &["--html", place]].concat())?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = &json_of(&output)?["error"];
        assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
        assert_eq!(error["step"], "certificate", "{error}");
        assert_ne!(error["remedy"], "", "{error}");
    }
    let dry = served.blockctl(&["reset", "run", "--dry-run", "--html", "-", "userdata"])?;
    assert_eq!(dry.status.code(), Some(1), "{dry:?}");
    let none = served.blockctl(&["--json", "reset", "report", "--html", "/dev/null/x"])?;
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    expect_untouched(&served.card);
    assert_eq!(read(&file)?, "filed");
    Ok(())
}

/// A certificate that cannot be written is known before anything is erased, and one without a report
/// is not made.
pub fn checked_first() -> Outcome {
    let (served, folder) = serve(plain())?;
    let missing = folder.path().join("missing/certificate.html");
    let missing = missing.to_string_lossy();
    let run = [
        "--json", "reset", "run", "--yes", "--marker", "none", "userdata",
    ];
    for place in [&*missing, "/dev/null/certificate.html", "/"] {
        let output = served.blockctl(&[&run[..], &["--html", place]].concat())?;
        assert_eq!(output.status.code(), Some(1), "{place}: {output:?}");
        assert_eq!(json_of(&output)?["error"]["step"], "certificate");
    }
    expect_untouched(&served.card);
    let file = folder.path().join("certificate.html");
    let output = served.blockctl(&["reset", "report", "--html", &file.to_string_lossy()])?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("nothing to certify"), "{text}");
    assert!(!file.exists());
    Ok(())
}
