//! Images: block devices of APEX payloads and of windows of other files.
//!
//! `facts` looks at the client's file, `apex` finds the payload in it, `plan` decides without I/O,
//! `attach` does it with numbers from the `pool`, `list` shows and detaches. `activate` goes on to a
//! mount: `avb` verifies, `verity` and `linear` plan the devices of device-mapper.

pub mod activate;
pub mod apex;
pub mod attach;
pub mod avb;
pub mod facts;
#[cfg(test)]
mod fake;
pub mod linear;
pub mod list;
mod parallel;
pub mod plan;
pub mod pool;
mod retry;
pub mod source;
mod step;
pub mod verity;
mod zip;

pub use activate::{ActivateItem, ActivateRequest, Activated, ActiveApex};
pub use attach::{check_count, AttachItem, Attached, MAX_ITEMS};
pub use list::{Detached, ImageDevice, Listing};
pub use plan::{AttachPlan, AttachRequest, Start, Strategy};
pub use pool::Numbers;
pub use source::{FileSource, Source};
pub use step::{Step, Steps};

use crate::device::loops::HostLoops;
use crate::device::mapper::HostMapper;
use crate::device::mounts::HostMounts;
use crate::device::{Loops, Mapper, Mounts};
use crate::error::Result;
use crate::units::Bytes;
use pool::{Pool, FIRST_OWN_NUMBER};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Devices that a service makes ahead: a boot's worth of APEX files.
const PREPARED: usize = 40;
/// Where APEXes are mounted.
pub const APEX_ROOT: &str = "/apex";

/// The use case. Calls run side by side; no lock is held across one.
pub struct Images {
    loops: Box<dyn Loops>,
    mapper: Box<dyn Mapper>,
    mounts: Box<dyn Mounts>,
    pool: Pool,
    /// The folder of all mounts.
    root: PathBuf,
    /// Names of APEXes that are being worked on.
    busy: Mutex<BTreeSet<String>>,
}

impl Images {
    /// On this machine, with numbers of its own: for a service.
    pub fn new() -> Images {
        Images::with(HostLoops::new(), Numbers::From(FIRST_OWN_NUMBER))
    }

    /// On the loop devices of `loops`, with numbers from where `numbers` says.
    pub fn with(loops: impl Loops + 'static, numbers: Numbers) -> Images {
        Images::over(loops, HostMapper::new(), HostMounts, numbers)
    }

    /// On any machine.
    pub fn over(
        loops: impl Loops + 'static,
        mapper: impl Mapper + 'static,
        mounts: impl Mounts + 'static,
        numbers: Numbers,
    ) -> Images {
        Images {
            loops: Box::new(loops),
            mapper: Box::new(mapper),
            mounts: Box::new(mounts),
            pool: Pool::new(numbers),
            root: PathBuf::from(APEX_ROOT),
            busy: Mutex::default(),
        }
    }

    /// What is worth doing ahead of the first call: makes loop devices, in the background.
    pub fn prepare(self: &Arc<Self>) {
        let images = Arc::clone(self);
        let work = move || {
            match images.precreate(PREPARED) {
                Ok(()) => log::debug!("{PREPARED} loop devices are made ahead"),
                // Nothing is lost yet: each attachment makes its device, or says the same.
                Err(failure) => log::warn!("no loop devices made ahead: {failure}"),
            }
            images.sweep();
        };
        let thread = std::thread::Builder::new().name("precreate".to_owned());
        if let Err(error) = thread.spawn(work) {
            log::warn!("no loop devices made ahead: {error}");
        }
    }

    /// Makes devices until `count` are idle, where the numbers are our own. Takes some 0.2 ms for
    /// each.
    ///
    /// # Errors
    /// `NO_LOOP_CONTROL`, `PERMISSION`, `NO_FREE_LOOP`; what was made stays.
    pub fn precreate(&self, count: usize) -> Result<()> {
        self.loops.prepare().map_err(attach::control_failure)?;
        self.pool
            .precreate(&*self.loops, count)
            .map_err(|errno| attach::number_failure(errno, Step::Number))
    }

    /// What would be done with a file; makes nothing.
    ///
    /// # Errors
    /// As [`Images::attach`] up to the plan.
    pub fn plan(&self, item: &AttachItem) -> Result<AttachPlan> {
        let known = attach::look(item, self.has_configure(), &mut Steps::default())?;
        plan::plan(&item.request, &known)
    }

    /// Whether the kernel has LOOP_CONFIGURE; so it is taken until a device was asked.
    fn has_configure(&self) -> bool {
        self.loops.configure_known().unwrap_or(true)
    }
}

impl Default for Images {
    fn default() -> Images {
        Images::new()
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First byte.
    pub offset: Bytes,
    /// Number of bytes.
    pub length: Bytes,
}

impl Window {
    /// First byte behind it, or `None` where that does not fit.
    pub fn end(self) -> Option<Bytes> {
        self.offset.checked_add(self.length)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from byte {}", self.length.0, self.offset.0)
    }
}
