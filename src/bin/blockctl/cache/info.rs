//! `blockctl cache info`.

use crate::facts::{as_json, Facts};
use crate::output::Output;
use blockd::client::Client;
use blockd::error::Result;
use blockd::service::error::failure;
use serde_json::json;

/// `cache info`.
pub fn run(
    disk: Option<&str>,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let cache = connect()?
        .diagnostics()?
        .cache(disk)
        .map_err(|s| failure(&s))?;
    output.data(
        || {
            json!({
                "disk": cache.disk,
                "verdict": cache.verdict,
                "reasons": cache.reasons,
                "facts": as_json(&cache.facts),
            })
        },
        || {
            let mut text = format!("{}: {}\n", cache.disk, cache.verdict);
            for reason in &cache.reasons {
                text.push_str(&format!("  - {reason}\n"));
            }
            text.push_str(&format!("\n{}", Facts(&cache.facts)));
            text
        },
    );
    Ok(())
}
