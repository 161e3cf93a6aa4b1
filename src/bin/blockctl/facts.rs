//! Facts, as `card info` and `cache info` print them.

use blockd::aidl::Fact::Fact;
use blockd::units::Bytes;
use serde_json::{json, Map, Value};
use std::fmt;

/// `{"name": {"value": …, "source": …}}`, or `{"value": null, "reason": …}`.
pub fn as_json(facts: &[Fact]) -> Map<String, Value> {
    facts
        .iter()
        .map(|fact| {
            let value = if fact.known {
                json!({"value": fact.value, "source": fact.source})
            } else {
                json!({"value": null, "reason": fact.source})
            };
            (fact.name.clone(), value)
        })
        .collect()
}

/// As a table: name, value, where it was read.
pub struct Facts<'a>(pub &'a [Fact]);

impl fmt::Display for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|fact| shown_name(&fact.name).len()).max();
        let width = names.unwrap_or(0);
        for fact in self.0 {
            let value = match fact.known {
                true => shown_value(fact),
                false => "unknown".to_owned(),
            };
            let name = shown_name(&fact.name);
            writeln!(f, "  {name:<width$}  {value:<34}  {}", fact.source)?;
        }
        Ok(())
    }
}

/// The unit stands with the value.
fn shown_name(name: &str) -> &str {
    name.strip_suffix("_bytes").unwrap_or(name)
}

fn shown_value(fact: &Fact) -> String {
    match fact.value.parse() {
        Ok(bytes) if fact.name.ends_with("_bytes") => match Bytes(bytes).to_string() {
            text if text.ends_with(" B") => text,
            text => format!("{text} ({bytes} B)"),
        },
        _ => fact.value.clone(),
    }
}
