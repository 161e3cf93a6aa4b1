//! The steps of an attachment, by the names that results, errors and logs use.

use crate::error::{Code, Failure};
use crate::named_enum;
use std::time::{Duration, Instant};

named_enum! {
    /// A step.
    Step {
        /// Asking the kernel about the client's file.
        Facts = 0 "facts",
        /// Finding the payload in the archive.
        Apex = 1 "apex",
        /// Deciding.
        Plan = 2 "plan",
        /// Opening loop-control.
        Control = 3 "control",
        /// Getting a device number.
        Number = 4 "number",
        /// Opening the node, with the wait for one that is late.
        Open = 5 "open",
        /// Asking whether the kernel has LOOP_CONFIGURE; once per process.
        Probe = 6 "probe",
        /// LOOP_CONFIGURE, or the calls that it replaced.
        Configure = 7 "configure",
        /// Comparing what the kernel made of it.
        ReadBack = 8 "read-back",
        /// Setting the read-ahead.
        ReadAhead = 9 "read-ahead",
        /// Detaching.
        Detach = 10 "detach",
        /// Listing.
        List = 11 "list",
        /// Reading and verifying the payload's vbmeta image.
        Avb = 12 "avb",
        /// Building a hash tree that the payload does not bring.
        HashTree = 13 "hash-tree",
        /// Making a device of device-mapper.
        Mapper = 14 "mapper",
        /// Opening its node, with the wait for one that is late.
        Node = 15 "node",
        /// Mounting.
        Mount = 16 "mount",
        /// Comparing the mounted manifest with the archive's.
        Manifest = 17 "manifest",
        /// Asking dm-verity whether all that was read so far was right.
        VerityState = 18 "verity-state",
        /// Mounting at the name without the version.
        Bind = 19 "bind",
        /// Deactivating.
        Deactivate = 20 "deactivate",
    }
}

impl Step {
    /// A failure at this step.
    pub(super) fn fail(self, code: Code, message: impl Into<String>) -> Failure {
        Failure::new(code, self.name(), message)
    }
}

/// Time per step, in the order of their first run. A step that is tried again adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(pub Vec<(Step, Duration)>);

impl Steps {
    /// Runs and times `work`.
    pub(super) fn run<T>(&mut self, step: Step, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.sum(step, start.elapsed());
        result
    }

    /// Adds the steps of a part.
    pub(super) fn add(&mut self, part: &Steps) {
        part.0
            .iter()
            .for_each(|(step, time)| self.sum(*step, *time));
    }

    fn sum(&mut self, step: Step, time: Duration) {
        match self.0.iter_mut().find(|(known, _)| *known == step) {
            Some((_, sum)) => *sum += time,
            None => self.0.push((step, time)),
        }
    }
}
