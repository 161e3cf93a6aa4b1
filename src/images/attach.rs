//! Carries plans out: one device per item, many items at once.

use super::apex::{file_system, find_payload};
use super::facts::FileFacts;
use super::parallel::{run_all, HELPERS};
use super::plan::{check_file, plan, AttachPlan, AttachRequest, Known, Start, Strategy};
use super::pool::Ticket;
use super::retry::Retry;
use super::{FileSource, Images, Step, Steps, Window};
use crate::device::loops::{LoopDevice, Status};
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Most items of one call; the AIDL constant `IImageDevices.MAX_ITEMS`.
pub const MAX_ITEMS: usize = 32;

/// How long a node may be late. ueventd's cold boot makes them within this; apexd waits for ever
/// while it runs.
const NODE_WAIT: Duration = Duration::from_secs(2);

/// Refuses more items than one call takes.
///
/// # Errors
/// `INVALID_REQUEST` above [`MAX_ITEMS`].
pub fn check_count(count: usize) -> Result<()> {
    if count <= MAX_ITEMS {
        return Ok(());
    }
    let text = format!("{count} items in one call");
    let remedy = "split the call: at most 32 items each";
    Err(Step::Plan.fail(Code::InvalidRequest, text).remedy(remedy))
}

/// One file to attach.
pub struct AttachItem {
    /// The client's file.
    pub file: File,
    /// What is asked for.
    pub request: AttachRequest,
}

/// A device that was made.
#[derive(Debug)]
pub struct Attached {
    /// Loop device number.
    pub number: u32,
    /// Path of the node.
    pub node: PathBuf,
    /// The open device: the lease. With autoclear the device goes when the last copy of it is
    /// closed and nothing is mounted from it.
    pub device: OwnedFd,
    /// What was carried out.
    pub plan: AttachPlan,
    /// What is not had as asked: the plan's, and what turned up after.
    pub warnings: Vec<String>,
    /// Time per step.
    pub steps: Steps,
}

impl Images {
    /// Attaches every file; one result for each, in their order. Items fail one by one.
    ///
    /// # Errors
    /// `INVALID_REQUEST` for more than [`MAX_ITEMS`] items.
    pub fn attach_all(&self, items: &[AttachItem]) -> Result<Vec<Result<Attached>>> {
        check_count(items.len())?;
        // Without LOOP_CONFIGURE each item waits for a grace period, which is the same one for all
        // that wait at once.
        let helpers = || match self.has_configure() {
            true => HELPERS,
            false => MAX_ITEMS,
        };
        Ok(run_all(items, helpers, |item| self.attach(item)))
    }

    /// Attaches one file.
    ///
    /// # Errors
    /// What the step that failed says; nothing stays attached then.
    pub fn attach(&self, item: &AttachItem) -> Result<Attached> {
        let mut steps = Steps::default();
        let mut known = look(item, self.has_configure(), &mut steps)?;
        let mut plan = steps.run(Step::Plan, || plan(&item.request, &known))?;
        let (device, number) = match self.bind(&item.file, &plan, &mut steps)? {
            Some(bound) => bound,
            // Asked now, and it has not: the first item only.
            None => {
                known.configure = false;
                plan = super::plan::plan(&item.request, &known)?;
                let bound = self.bind(&item.file, &plan, &mut steps)?;
                bound.ok_or_else(no_way)?
            }
        };
        let checked = steps.run(Step::ReadBack, || read_back(&*device, number, &plan));
        let mut warnings = plan.warnings.clone();
        match checked {
            Ok(direct_io) if plan.setup.direct_io && !direct_io => warnings
                .push("no direct I/O: the file system or the offset does not allow it".to_owned()),
            Ok(_) => {}
            Err(failure) => return Err(undo(&*device, failure)),
        }
        if let Some(length) = plan.read_ahead {
            let set = steps.run(Step::ReadAhead, || device.set_read_ahead(length));
            if let Err(errno) = set {
                // The device is right in all that matters; only reading is slower.
                warnings.push(format!("read-ahead not set: {}", errno.desc()));
            }
        }
        Ok(Attached {
            number,
            node: device.node().to_owned(),
            device: device.into_fd(),
            plan,
            warnings,
            steps,
        })
    }

    /// Opens a device and binds the file to it; another one where somebody was faster. `None` where
    /// the kernel turns out not to have the plan's call.
    fn bind(
        &self,
        file: &File,
        plan: &AttachPlan,
        steps: &mut Steps,
    ) -> Result<Option<(Box<dyn LoopDevice>, u32)>> {
        let loops = &*self.loops;
        steps
            .run(Step::Control, || loops.prepare())
            .map_err(control_failure)?;
        let mut retry = Retry::new(loops);
        let mut guesses = 0;
        // Kept until the end, so that the pool does not give the same number again: a device that
        // somebody has claimed without binding it is busy and looks idle.
        let mut lost = Vec::new();
        loop {
            let ticket = steps
                .run(Step::Number, || self.pool.take(loops, &mut guesses))
                .map_err(|errno| number_failure(errno, Step::Number))?;
            match self.try_bind(&ticket, file, plan, steps)? {
                Tried::Bound(device) => {
                    ticket.bound();
                    return Ok(Some((device, ticket.number())));
                }
                Tried::Unsupported => return Ok(None),
                Tried::Busy(errno) => {
                    ticket.busy();
                    if !ticket.is_guess() {
                        retry.again(errno)?;
                    }
                }
            }
            lost.push(ticket);
        }
    }

    fn try_bind(
        &self,
        ticket: &Ticket<'_>,
        file: &File,
        plan: &AttachPlan,
        steps: &mut Steps,
    ) -> Result<Tried> {
        let loops = &*self.loops;
        let number = ticket.number();
        let opened = steps.run(Step::Open, || loops.open(number, plan.mode, NODE_WAIT));
        let device = match opened {
            Ok(device) => device,
            // ENXIO: the last opener is unbinding it right now.
            Err(errno @ (Errno::ENXIO | Errno::EBUSY)) => return Ok(Tried::Busy(errno)),
            Err(errno) => return Err(self.open_failure(number, errno)),
        };
        let bound = match plan.strategy {
            Strategy::Configure => {
                match steps.run(Step::Probe, || loops.configure_supported(&*device)) {
                    Ok(()) => {}
                    Err(Errno::EINVAL | Errno::ENOTTY) => return Ok(Tried::Unsupported),
                    Err(errno) => return Err(probe_failure(errno)),
                }
                steps.run(Step::Configure, || {
                    device.configure(file.as_fd(), &plan.setup)
                })
            }
            Strategy::SetFd => {
                steps.run(Step::Configure, || device.bind(file.as_fd(), &plan.setup))
            }
        };
        match bound {
            Ok(()) => Ok(Tried::Bound(device)),
            Err(errno @ (Errno::EBUSY | Errno::EAGAIN)) => Ok(Tried::Busy(errno)),
            Err(errno) => Err(configure_failure(number, errno)),
        }
    }

    fn open_failure(&self, number: u32, errno: Errno) -> Failure {
        match errno {
            Errno::ENOENT if self.loops.exists(number) => {
                let text = format!("the node of loop{number} did not appear within 2 s");
                let remedy = "the kernel has the device: see why ueventd made no node (its \
                              file_contexts entry, the rules in ueventd.rc); in a container mount /dev";
                Step::Open.fail(Code::NodeMissing, text).remedy(remedy)
            }
            Errno::ENOENT => number_failure(errno, Step::Open),
            Errno::EACCES | Errno::EPERM => {
                permission(Step::Open, format!("loop{number} may not be opened"))
            }
            _ => Step::Open.fail(Code::DeviceFailed, format!("cannot open loop{number}")),
        }
        .errno(errno)
    }
}

/// One try with one device.
enum Tried {
    Bound(Box<dyn LoopDevice>),
    /// Another device, or another moment, can cure it.
    Busy(Errno),
    /// The kernel has no LOOP_CONFIGURE.
    Unsupported,
}

/// All that the plan is made of.
pub(super) fn look(item: &AttachItem, configure: bool, steps: &mut Steps) -> Result<Known> {
    let file = steps.run(Step::Facts, || FileFacts::read(&item.file))?;
    check_file(&item.request, &file)?;
    let source = FileSource::new(&item.file, file.size);
    let (payload, window) = match item.request.start {
        Start::Payload => {
            let payload = steps.run(Step::Apex, || find_payload(&source))?;
            (Some(payload), payload)
        }
        // One that lies outside is the plan's to refuse.
        Start::At(offset) => {
            let length = Bytes(file.size.0.saturating_sub(offset.0));
            (None, Window { offset, length })
        }
    };
    let inside = window.end().is_some_and(|end| end <= file.size);
    let file_system = match inside {
        true => steps.run(Step::Facts, || file_system(&source, window))?,
        false => None,
    };
    Ok(Known {
        file,
        payload,
        file_system,
        configure,
    })
}

/// Compares what the kernel made with what was planned. Says whether direct I/O is on.
fn read_back(device: &dyn LoopDevice, number: u32, plan: &AttachPlan) -> Result<bool> {
    let asked = |errno: Errno| {
        let text = format!("cannot read loop{number} back");
        Step::ReadBack.fail(Code::NotVerified, text).errno(errno)
    };
    let status = device.status().map_err(asked)?;
    let block_size = device.block_size().map_err(asked)?;
    let size = device.size().map_err(asked)?;
    let setup = &plan.setup;
    let want = Status {
        number,
        offset: setup.offset,
        size_limit: setup.size_limit,
        read_only: setup.read_only,
        autoclear: setup.autoclear,
        // Dropped by the kernel where it cannot be: no failure.
        direct_io: status.direct_io,
        tag: setup.tag.clone(),
    };
    let blocks = setup.block_size == 0 || block_size == setup.block_size;
    if status == want && blocks && size == setup.size_limit {
        return Ok(status.direct_io);
    }
    let text = format!(
        "loop{number} is not as planned: {status:?}, blocks of {block_size}, {size}; \
         planned {want:?}, blocks of {}, {}",
        setup.block_size, setup.size_limit
    );
    let remedy = "report this kernel with the text; attach by hand with losetup meanwhile";
    Err(Step::ReadBack.fail(Code::NotVerified, text).remedy(remedy))
}

/// Autoclear is not relied on: it may be what the kernel did not do.
fn undo(device: &dyn LoopDevice, mut failure: Failure) -> Failure {
    match device.clear() {
        Ok(()) | Err(Errno::ENXIO) => {}
        Err(errno) => {
            let node = device.node().display();
            failure.message += &format!("; and {node} stays attached: {}", errno.desc());
        }
    }
    failure
}

fn permission(step: Step, message: String) -> Failure {
    let remedy = "run as root; under SELinux the domain needs loop_control_device:chr_file and \
                  loop_device:blk_file with their ioctls (see sepolicy/), `dmesg | grep avc`";
    step.fail(Code::Permission, message).remedy(remedy)
}

pub(super) fn control_failure(errno: Errno) -> Failure {
    match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => {
            let text = "/dev/loop-control is missing";
            let remedy = "load the module (`modprobe loop`) or build the kernel with \
                          CONFIG_BLK_DEV_LOOP; in a container pass the node in";
            Step::Control.fail(Code::NoLoopControl, text).remedy(remedy)
        }
        Errno::EACCES | Errno::EPERM => permission(
            Step::Control,
            "/dev/loop-control may not be opened".to_owned(),
        ),
        _ => Step::Control.fail(Code::DeviceFailed, "cannot open /dev/loop-control"),
    }
    .errno(errno)
}

pub(super) fn number_failure(errno: Errno, step: Step) -> Failure {
    match errno {
        Errno::EACCES | Errno::EPERM => {
            permission(step, "loop-control refuses to add a device".to_owned())
        }
        _ => {
            let text = "no loop device is free and none can be added";
            let remedy = "detach some (`losetup -a` lists them); do not set loop.max_loop on the \
                          kernel's command line";
            step.fail(Code::NoFreeLoop, text).remedy(remedy)
        }
    }
    .errno(errno)
}

fn no_way() -> Failure {
    let text = "the kernel can bind no file to a loop device";
    Step::Probe.fail(Code::Unsupported, text)
}

fn probe_failure(errno: Errno) -> Failure {
    match errno {
        Errno::EACCES | Errno::EPERM => {
            permission(Step::Probe, "LOOP_CONFIGURE is not allowed".to_owned())
        }
        _ => Step::Probe.fail(Code::DeviceFailed, "cannot ask for LOOP_CONFIGURE"),
    }
    .errno(errno)
}

fn configure_failure(number: u32, errno: Errno) -> Failure {
    match errno {
        Errno::EACCES | Errno::EPERM => permission(
            Step::Configure,
            format!("loop{number} may not be configured"),
        ),
        _ => {
            let text = format!("the kernel does not bind the file to loop{number}");
            let remedy = "see the kernel log; a file on a file system without read_iter, or the \
                          device itself, cannot be bound";
            Step::Configure
                .fail(Code::DeviceFailed, text)
                .remedy(remedy)
        }
    }
    .errno(errno)
}

#[cfg(test)]
mod tests;
