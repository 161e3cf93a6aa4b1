//! `blockctl doctor`.

use crate::output::Output;
use blockd::client::Client;
use blockd::diagnostics::Severity;
use blockd::error::Result;
use blockd::service::error::failure;
use serde_json::json;
use std::fmt::Write;

/// `doctor`.
pub fn run(connect: impl FnOnce() -> Result<Client>, output: &Output) -> Result<()> {
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
