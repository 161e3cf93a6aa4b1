//! The refusals of a reset, for whoever else overwrites a partition as a whole.

use crate::error::Result;
use crate::reset::facts::Facts;
use crate::reset::plan::refuse;
use crate::reset::request::Request;

/// Refuses what a reset of the request's partitions would refuse because of what they are and who uses
/// them: names, holders, read-only nodes, kinds of disk, pending updates.
///
/// # Errors
/// `PROTECTED_TARGET`, `IN_USE`, `READ_ONLY`, `NOT_EMMC`, `UPDATE_PENDING`, `OUT_OF_RANGE`.
pub fn guard(request: &Request, facts: &Facts) -> Result<()> {
    refuse::check_request(request)?;
    refuse::check_disk(request, &facts.disk)?;
    refuse::check_update(request, facts)?;
    facts
        .targets
        .iter()
        .try_for_each(|target| refuse::check_target(target, facts))
}
