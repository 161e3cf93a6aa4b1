//! The cache diagnostics.

mod fua;
mod latency;

use crate::case::Case;

/// The cases.
pub fn cases() -> Vec<Case> {
    let mut cases = fua::cases();
    cases.extend(latency::cases());
    cases
}
