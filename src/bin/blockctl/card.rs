//! `blockctl card`.

use crate::facts::{self, Facts};
use crate::output::Output;
use blockd::aidl::CardFacts::CardFacts;
use blockd::client::Client;
use blockd::device::ext_csd::{saved, standard, ExtCsd};
use blockd::diagnostics::card;
use blockd::error::{Code, Failure, Result};
use blockd::service::convert;
use blockd::service::error::failure;
use serde_json::{json, Map, Value};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// `card info`: of `disk`, or of the register that `from` holds.
pub fn info(
    disk: Option<&str>,
    raw: bool,
    from: Option<&Path>,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let card = match from {
        Some(file) => of_file(file)?,
        None => connect()?
            .diagnostics()?
            .card(disk)
            .map_err(|s| failure(&s))?,
    };
    let register = <[u8; 512]>::try_from(card.extCsd.as_slice()).ok();
    if raw {
        let bytes = register.ok_or_else(|| no_register(&card))?;
        output.data(
            || json!({"disk": card.disk, "ext_csd_hex": hex(&bytes)}),
            || saved::dump(&bytes),
        );
        return Ok(());
    }
    let csd = register.map(ExtCsd);
    output.data(|| as_json(&card, &csd), || as_text(&card, &csd));
    Ok(())
}

/// A register that was saved.
fn of_file(path: &Path) -> Result<CardFacts> {
    let shown = path.display().to_string();
    let wrong = |message: String| {
        Failure::new(Code::InvalidRequest, "file", message).remedy(
            "save one by `blockctl card info --raw`, or from /sys/kernel/debug/mmc0/mmc0:0001/ext_csd",
        )
    };
    let mut contents = Vec::new();
    File::open(path)
        .and_then(|file| file.take(saved::LARGEST as u64).read_to_end(&mut contents))
        .map_err(|error| wrong(format!("cannot read {shown}: {error}")))?;
    let csd = saved::parse(&contents).map_err(|why| wrong(format!("{shown}: {why}")))?;
    Ok(CardFacts {
        facts: card::saved(&csd, &shown)
            .iter()
            .map(convert::fact)
            .collect(),
        disk: shown,
        extCsd: csd.0.to_vec(),
    })
}

fn no_register(card: &CardFacts) -> Failure {
    let why = card
        .facts
        .iter()
        .find(|fact| fact.name == "ext_csd_rev")
        .map_or("", |fact| fact.source.as_str());
    Failure::new(
        Code::Unsupported,
        "facts",
        format!("the EXT_CSD of {} could not be read: {why}", card.disk),
    )
    .remedy("it takes an eMMC, CAP_SYS_RAWIO and a domain that may use MMC_IOC_CMD on the disk")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn as_json(card: &CardFacts, csd: &Option<ExtCsd>) -> Value {
    let registers: Option<Map<String, Value>> = csd.as_ref().map(|csd| {
        let named = |row: &blockd::device::ext_csd::Row| match row.name {
            "RESERVED" => format!("RESERVED_{}", row.at),
            name => name.to_owned(),
        };
        csd.rows()
            .iter()
            .map(|row| {
                let value = json!({
                    "byte": row.at,
                    "length_bytes": row.length,
                    "value_hex": row.value.trim_start_matches("0x"),
                    "meaning": row.meaning,
                });
                (named(row), value)
            })
            .collect()
    });
    json!({
        "disk": card.disk,
        "facts": facts::as_json(&card.facts),
        "ext_csd": registers,
    })
}

fn as_text(card: &CardFacts, csd: &Option<ExtCsd>) -> String {
    let mut text = format!("{}\n{}", card.disk, Facts(&card.facts));
    let Some(csd) = csd else {
        return text;
    };
    let _ = writeln!(
        text,
        "\nEXT_CSD, revision {} ({})",
        csd.rev(),
        standard(csd.rev())
    );
    for row in csd.rows() {
        let bytes = match row.length {
            1 => format!("[{}]", row.at),
            more => format!("[{}:{}]", row.at + more - 1, row.at),
        };
        let mut line = format!("  {bytes:<9} {:<34} {}", row.name, row.value);
        if !row.meaning.is_empty() {
            line = format!("{line:<57} {}", row.meaning);
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
