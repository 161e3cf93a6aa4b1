//! The diagnostics: cards, caches, the doctor, dumps.

mod cache;
mod card;
mod dump;

use crate::case::Case;

/// The cases.
pub fn cases() -> Vec<Case> {
    let mut cases = card::cases();
    cases.extend(cache::cases());
    cases.extend(dump::cases());
    cases
}
