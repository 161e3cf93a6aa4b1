//! The cache diagnostics.

mod fua;

use crate::case::Case;

/// The cases.
pub fn cases() -> Vec<Case> {
    fua::cases()
}
