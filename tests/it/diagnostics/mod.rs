//! The diagnostics: cards, caches, the doctor, dumps.

mod card;

use crate::case::Case;

/// The cases.
pub fn cases() -> Vec<Case> {
    card::cases()
}
