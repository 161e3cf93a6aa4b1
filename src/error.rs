//! One shape of failure for every use case: what kind, at which step, why, and what to do.

use nix::errno::Errno;
use std::fmt;

crate::named_enum! {
    /// The kind of a failure: the AIDL enum `ErrorCode`, number for number and name for name.
    Code {
    /// No GPT partition has the name that was asked for.
    NoSuchPartition = 1 "NO_SUCH_PARTITION",
    /// Somebody uses the target: a mount, swap, device-mapper, a loop device, an exclusive open.
    InUse = 2 "IN_USE",
    /// The disk is not an eMMC.
    NotEmmc = 3 "NOT_EMMC",
    /// The target is never erased: protected name, boot area, whole disk, not on the allow-list.
    ProtectedTarget = 4 "PROTECTED_TARGET",
    /// An offset or a length lies outside the target, or is not a multiple of 512 bytes.
    OutOfRange = 5 "OUT_OF_RANGE",
    /// The device or the file is read-only.
    ReadOnly = 6 "READ_ONLY",
    /// This device, kernel or build cannot do it.
    Unsupported = 7 "UNSUPPORTED",
    /// The assurance asked for cannot be reached on this card.
    AssuranceUnreachable = 8 "ASSURANCE_UNREACHABLE",
    /// Another destructive job is running.
    Busy = 9 "BUSY",
    /// A system update is pending: its merge needs the data.
    UpdatePending = 10 "UPDATE_PENDING",
    /// The file is not an APEX, or not a zip at all.
    NotAnApex = 11 "NOT_AN_APEX",
    /// The payload is compressed inside the zip; a loop device cannot read it.
    PayloadCompressed = 12 "PAYLOAD_COMPRESSED",
    /// The payload does not start on a multiple of the block size.
    PayloadUnaligned = 13 "PAYLOAD_UNALIGNED",
    /// A signature or a digest does not match.
    BadSignature = 14 "BAD_SIGNATURE",
    /// `/dev/loop-control` is missing.
    NoLoopControl = 15 "NO_LOOP_CONTROL",
    /// No loop device is free and none can be added.
    NoFreeLoop = 16 "NO_FREE_LOOP",
    /// The caller, or blockd itself, lacks the right.
    Permission = 17 "PERMISSION",
    /// The device answered with an error.
    DeviceFailed = 18 "DEVICE_FAILED",
    /// The job was done, but the check found it wanting.
    NotVerified = 19 "NOT_VERIFIED",
    /// The caller cancelled the job.
    Cancelled = 20 "CANCELLED",
    /// The request contradicts itself or has a value that means nothing.
    InvalidRequest = 21 "INVALID_REQUEST",
    /// The service is not there.
    NoService = 22 "NO_SERVICE",
    /// A restart marker of somebody else is in the way.
    ForeignMarker = 23 "FOREIGN_MARKER",
    /// The device changed between planning and acting.
    PlanStale = 24 "PLAN_STALE",
    /// No such device: a loop or a dm device, a disk.
    NoSuchDevice = 25 "NO_SUCH_DEVICE",
    /// A device node did not appear in time.
    NodeMissing = 26 "NODE_MISSING",
    }
}

/// Why a job failed, in words that a tired person can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub code: Code,
    /// The step that failed, in the words of the use case's step list.
    pub step: String,
    /// What the kernel said, if it said anything.
    pub errno: Option<Errno>,
    /// What happened and where.
    pub message: String,
    /// What to do about it; empty where nothing sensible can be said.
    pub remedy: String,
}

/// The result of a use case.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure without errno and remedy; see [`Failure::errno`] and [`Failure::remedy`].
    pub fn new(code: Code, step: &str, message: impl Into<String>) -> Failure {
        Failure {
            code,
            step: step.to_owned(),
            errno: None,
            message: message.into(),
            remedy: String::new(),
        }
    }

    /// Keeps what the kernel said.
    pub fn errno(mut self, errno: Errno) -> Failure {
        self.errno = Some(errno);
        self
    }

    /// Says what to do about it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = remedy.into();
        self
    }

    /// The text that crosses binder: the message, then one `key=value` line each for step, errno
    /// and remedy. A C++ client can log it as it is; [`Failure::from_wire`] reads it back.
    pub fn to_wire(&self) -> String {
        let mut text = format!("{}\nstep={}", self.message.replace('\n', " "), self.step);
        if let Some(errno) = self.errno {
            text.push_str(&format!("\nerrno={}", errno as i32));
        }
        if !self.remedy.is_empty() {
            text.push_str(&format!("\nremedy={}", self.remedy.replace('\n', " ")));
        }
        text
    }

    /// The inverse of [`Failure::to_wire`]. A text without our lines becomes the message; an
    /// unknown number (a newer service) becomes [`Code::DeviceFailed`] and is named in the message.
    pub fn from_wire(number: i32, text: &str) -> Failure {
        let mut lines = text.lines();
        let mut failure = Failure::new(Code::DeviceFailed, "", lines.next().unwrap_or_default());
        for line in lines {
            match line.split_once('=') {
                Some(("step", step)) => failure.step = step.to_owned(),
                Some(("errno", n)) => failure.errno = n.parse().ok().map(Errno::from_raw),
                Some(("remedy", remedy)) => failure.remedy = remedy.to_owned(),
                _ => {}
            }
        }
        match Code::from_number(number) {
            Some(code) => failure.code = code,
            None => failure.message = format!("error {number}: {}", failure.message),
        }
        failure
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(errno) = self.errno {
            write!(f, " ({}, errno {})", errno.desc(), errno as i32)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_the_wire() {
        let plain = Failure::new(Code::NotEmmc, "facts", "vda is not an eMMC");
        let full = Failure::new(Code::InUse, "claim", "userdata: mounted at /data")
            .errno(Errno::EBUSY)
            .remedy("umount /data");
        for failure in [plain, full] {
            let back = Failure::from_wire(failure.code as i32, &failure.to_wire());
            assert_eq!(back, failure);
        }
    }

    #[test]
    fn a_newer_service_is_not_misread() {
        let failure = Failure::from_wire(9999, "the moon is full");
        assert_eq!(failure.code, Code::DeviceFailed);
        assert_eq!(failure.message, "error 9999: the moon is full");
    }
}
