//! `blockctl card` and `blockctl doctor`.

use crate::output::Output;
use blockd::client::Client;
use blockd::diagnostics::Severity;
use blockd::error::Result;
use blockd::service::error::failure;
use serde_json::{json, Map, Value};
use std::fmt::Write;

/// `card info`.
pub fn info(
    disk: Option<&str>,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let card = connect()?
        .diagnostics()?
        .card(disk)
        .map_err(|s| failure(&s))?;
    output.data(
        || {
            let facts: Map<String, Value> = card
                .facts
                .iter()
                .map(|fact| {
                    let value = if fact.known {
                        json!({"value": fact.value, "source": fact.source})
                    } else {
                        json!({"value": null, "reason": fact.source})
                    };
                    (fact.name.clone(), value)
                })
                .collect();
            json!({"disk": card.disk, "facts": facts})
        },
        || {
            let width = card.facts.iter().map(|f| f.name.len()).max().unwrap_or(0);
            let mut text = format!("{}\n", card.disk);
            for fact in &card.facts {
                let value = if fact.known { &fact.value } else { "unknown" };
                let _ = writeln!(
                    text,
                    "  {:<width$}  {value:<34}  {}",
                    fact.name, fact.source
                );
            }
            text
        },
    );
    Ok(())
}

/// `doctor`.
pub fn doctor(connect: impl FnOnce() -> Result<Client>, output: &Output) -> Result<()> {
    let findings = connect()?
        .diagnostics()?
        .doctor()
        .map_err(|s| failure(&s))?;
    let severity = |number: i32| Severity::from_number(number).map_or("?", |s| s.name());
    output.data(
        || {
            findings
                .iter()
                .map(|f| {
                    json!({
                        "topic": f.topic,
                        "severity": severity(f.severity.0),
                        "text": f.text,
                        "evidence": f.evidence,
                        "remedy": f.remedy,
                    })
                })
                .collect()
        },
        || {
            let mut text = String::new();
            for f in &findings {
                let _ = writeln!(
                    text,
                    "{:<8} {:<7} {} ({})",
                    severity(f.severity.0),
                    f.topic,
                    f.text,
                    f.evidence
                );
                if !f.remedy.is_empty() {
                    let _ = writeln!(text, "{:<16} try: {}", "", f.remedy);
                }
            }
            text
        },
    );
    Ok(())
}
