//! A partition that is overwritten on purpose, behind the guards of a reset: the names that may be
//! erased, in use by nobody, writable, no update pending, and claimed by O_EXCL.

use crate::device::Storage;
use crate::error::{Code, Failure, Result};
use crate::reset::facts::{self, Disk, Facts, Partition};
use crate::reset::plan::guard::guard;
use crate::reset::request::Request;
use nix::errno::Errno;

/// Step name of the claim.
const CLAIM: &str = "claim";

/// Which partition, in the caller's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// GPT name.
    pub partition: String,
    /// Kernel name of the disk; `None` = where the partition is, if that is an eMMC.
    pub disk: Option<String>,
    /// The caller knows that no system update waits for its merge, where misc cannot tell.
    pub merges_done: bool,
}

impl Wanted {
    fn request(&self) -> Request {
        Request {
            disk: self.disk.clone(),
            merges_done: self.merges_done,
            ..Request::new(&[&self.partition])
        }
    }
}

/// A partition that may be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    wanted: Wanted,
    /// The disk.
    pub disk: Disk,
    /// The partition.
    pub partition: Partition,
}

impl Raw {
    /// Looks, and refuses what a reset would refuse. Touches nothing.
    ///
    /// # Errors
    /// Those of [`facts::gather`] and [`guard`].
    pub fn look(storage: &dyn Storage, wanted: &Wanted) -> Result<Raw> {
        let request = wanted.request();
        let facts = facts::gather(storage, &request)?;
        guard(&request, &facts)?;
        Raw::of(wanted, facts)
    }

    /// The partition, without any guard: for looking only.
    ///
    /// # Errors
    /// Those of [`facts::gather`].
    pub fn find(storage: &dyn Storage, wanted: &Wanted) -> Result<Raw> {
        Raw::of(wanted, facts::gather(storage, &wanted.request())?)
    }

    fn of(wanted: &Wanted, facts: Facts) -> Result<Raw> {
        let Some(target) = facts.targets.into_iter().next() else {
            let text = "no partition was named";
            return Err(Failure::new(Code::InvalidRequest, CLAIM, text));
        };
        Ok(Raw {
            wanted: wanted.clone(),
            disk: facts.disk,
            partition: target.partition,
        })
    }

    /// Opens the node by `open`, which must claim it (O_EXCL), and looks again: what was there before
    /// the claim is there still.
    ///
    /// # Errors
    /// `IN_USE`, `PLAN_STALE`, those of [`Raw::look`].
    pub fn claim<T>(
        &self,
        storage: &dyn Storage,
        open: impl FnOnce(&str) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let node = &self.partition.node;
        let opened = open(node).map_err(|errno| {
            let failure = match errno {
                Errno::EBUSY => Failure::new(
                    Code::InUse,
                    CLAIM,
                    format!("{node} is in use; nothing was touched"),
                )
                .remedy("unmount it, take it out of use, then try again"),
                Errno::EPERM | Errno::EACCES => Failure::new(
                    Code::Permission,
                    CLAIM,
                    format!("{node} may not be opened for writing"),
                )
                .remedy("run as root, in a domain that may write the partition"),
                _ => Failure::new(Code::DeviceFailed, CLAIM, format!("cannot open {node}"))
                    .remedy("look into dmesg for errors of this device"),
            };
            failure.errno(errno)
        })?;
        let again = Raw::look(storage, &self.wanted)?;
        if again.partition != self.partition || again.disk.cid != self.disk.cid {
            return Err(Failure::new(
                Code::PlanStale,
                CLAIM,
                "the device changed while it was being claimed; nothing was touched",
            )
            .remedy("try again"));
        }
        Ok(opened)
    }
}
