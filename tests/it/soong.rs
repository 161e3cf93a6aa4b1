//! Cases of soong.

use crate::case::Case;
use crate::needs::Needs;

/// The cases.
pub fn cases(_needs: &Needs) -> Vec<Case> {
    Vec::new()
}
