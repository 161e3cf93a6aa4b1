//! What a reset did and what it is worth.

use crate::device::Command;
use crate::error::{Failure, Result};
use crate::reset::plan::Plan;
use crate::reset::request::{Assurance, Logical, Physical};
use crate::reset::step::Step;
use crate::units::Bytes;
use std::time::Duration;

/// One range.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetReport {
    /// GPT name.
    pub partition: String,
    /// First byte on the disk.
    pub start: Bytes,
    /// Erased by commands or discards.
    pub erased: Bytes,
    /// Overwritten.
    pub overwritten: Bytes,
    /// As sent, with the answers.
    pub commands: Vec<Command>,
    /// Erase commands with their busy phases.
    pub erase_time: Duration,
    /// Canaries written.
    pub canaries: u32,
    /// Canaries that the erase left.
    pub canaries_found: u32,
    /// Positions read back in the middle.
    pub samples: u32,
    /// Positions that are neither erased nor a canary, and edge blocks that are not erased.
    pub samples_wrong: u32,
    /// Neighbouring sectors compared.
    pub neighbours: u32,
    /// Neighbouring sectors that changed.
    pub neighbours_changed: u32,
    /// That the samples find a card which skips one group in a hundred.
    pub detection_probability: f64,
}

/// The erase certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Version of blockd.
    pub software_version: String,
    /// Names the run.
    pub token: String,
    /// By the device's clock, since 1970-01-01 UTC.
    pub started: Duration,
    /// Duration of the run.
    pub elapsed: Duration,
    /// The plan that was carried out.
    pub plan: Plan,
    /// One for each range of the plan.
    pub targets: Vec<TargetReport>,
    /// SANITIZE as sent, with the answers; empty without it.
    pub sanitize_commands: Vec<Command>,
    /// What reading back found.
    pub logical: Logical,
    /// What the card claims.
    pub physical: Physical,
    /// What it is worth.
    pub assurance: Assurance,
    /// Time per step.
    pub steps: Vec<(Step, Duration)>,
    /// What went otherwise than planned.
    pub warnings: Vec<String>,
    /// Why the run is incomplete; `None` where it is complete.
    pub failure: Option<Failure>,
}

/// How a run ended.
pub struct Ended {
    /// The report of a run that is complete, or why it is not.
    pub result: Result<Report>,
    /// What a run that is not complete had done, where it had destroyed anything.
    pub incomplete: Option<Report>,
}

impl From<Failure> for Ended {
    /// A run that destroyed nothing.
    fn from(failure: Failure) -> Ended {
        Ended {
            result: Err(failure),
            incomplete: None,
        }
    }
}

/// Version of the report's format in AIDL and JSON.
pub const FORMAT_VERSION: i32 = 1;
