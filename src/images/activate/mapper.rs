//! Making a device of device-mapper so that it goes by itself, and removing one for certain.

use super::undo::{Made, Undo};
use crate::device::mapper::{DeviceNumber, Target};
use crate::device::Mapper;
use crate::error::{Code, Failure, Result};
use crate::images::{Step, Steps};
use nix::errno::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a node may be late; the same as for loop devices.
const NODE_WAIT: Duration = Duration::from_secs(2);
/// What a uuid of ours begins with; the process that makes the device follows.
const UUID_PREFIX: &str = "blockd-";
/// Looks at a device that is about to go, and the pause between two: 2 s in all.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Distinguishes the devices of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes the device `name`, read-only, and opens it; `undo` has the descriptor. From the moment of the opening it goes with
/// its last opener, whoever that is: a mount, or this process when it dies.
pub(super) fn make(
    mapper: &dyn Mapper,
    name: &str,
    table: &[Target],
    undo: &mut Undo<'_>,
    steps: &mut Steps,
) -> Result<DeviceNumber> {
    let lines = || {
        let lines: Vec<String> = table.iter().map(Target::to_string).collect();
        lines.join("; ")
    };
    steps
        .run(Step::Mapper, || mapper.prepare())
        .map_err(control_failure)?;
    let number = steps.run(Step::Mapper, || create(mapper, name))?;
    undo.made(Made::Mapper(name.to_owned()));
    steps
        .run(Step::Mapper, || mapper.load(name, table))
        .map_err(|errno| load_failure(name, &lines(), errno))?;
    // The kernel shows the node's device from the load on (Linux 5.15; before, from the creation).
    let device = steps
        .run(Step::Node, || mapper.open(number, NODE_WAIT))
        .map_err(|errno| node_failure(name, number, errno))?;
    undo.made(Made::Device(device));
    let done = steps.run(Step::Mapper, || {
        mapper.remove(name, true)?;
        mapper.resume(name)
    });
    done.map_err(|errno| load_failure(name, &lines(), errno))?;
    Ok(number)
}

/// Creates the device. One of the same name that a dead process left half-made is removed first.
fn create(mapper: &dyn Mapper, name: &str) -> Result<DeviceNumber> {
    let uuid = uuid(mapper);
    let created = match mapper.create(name, &uuid) {
        Err(Errno::EBUSY) if sweep_one(mapper, name) => mapper.create(name, &uuid),
        created => created,
    };
    created.map_err(|errno| match errno {
        Errno::EBUSY => {
            let text = format!("there is a device {name} already");
            let remedy = "it is active, or being activated: `blockctl apex list`";
            Step::Mapper
                .fail(Code::InUse, text)
                .remedy(remedy)
                .errno(errno)
        }
        _ => control_failure(errno),
    })
}

/// `blockd-PID-START-COUNT`: whoever finds the device can tell whether its maker is alive.
fn uuid(mapper: &dyn Mapper) -> String {
    let pid = std::process::id();
    let start = mapper.process_start(pid).unwrap_or(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{UUID_PREFIX}{pid}-{start}-{count}")
}

/// Whether the process that a uuid names is gone. Another uuid than ours names none.
fn orphaned(mapper: &dyn Mapper, uuid: &str) -> bool {
    let numbers: Option<Vec<u64>> = uuid
        .strip_prefix(UUID_PREFIX)
        .and_then(|rest| rest.split('-').map(|n| n.parse().ok()).collect());
    match numbers.as_deref() {
        Some([pid, start, _]) => {
            u32::try_from(*pid).is_ok_and(|pid| mapper.process_start(pid) != Some(*start))
        }
        _ => false,
    }
}

/// Whether the process that made the device is gone.
pub(super) fn made_by_the_dead(mapper: &dyn Mapper, name: &str) -> bool {
    mapper
        .info(name)
        .is_ok_and(|info| orphaned(mapper, &info.uuid))
}

/// Removes the device if nobody has it open and its maker is dead.
pub(super) fn sweep_one(mapper: &dyn Mapper, name: &str) -> bool {
    let orphan = mapper
        .info(name)
        .is_ok_and(|info| info.openers == 0 && orphaned(mapper, &info.uuid));
    orphan && mapper.remove(name, false).is_ok()
}

/// Removes a device, or waits until it has gone by itself. A loop device below is closed then.
pub(super) fn remove_and_wait(mapper: &dyn Mapper, name: &str) -> std::result::Result<(), Errno> {
    for _ in 0..LOOKS {
        match mapper.remove(name, false) {
            Ok(()) | Err(Errno::ENXIO) => return Ok(()),
            Err(Errno::EBUSY) => mapper.pause(PAUSE),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EBUSY)
}

fn control_failure(errno: Errno) -> Failure {
    match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => {
            let text = "device-mapper is missing: no /dev/device-mapper, no /dev/mapper/control";
            let remedy = "load the module (`modprobe dm-mod`) or build the kernel with \
                          CONFIG_BLK_DEV_DM and CONFIG_DM_VERITY; in a container pass the node in";
            Step::Mapper.fail(Code::Unsupported, text).remedy(remedy)
        }
        Errno::EACCES | Errno::EPERM => {
            let text = "device-mapper may not be used";
            let remedy = "run as root; on Android only apexd's domain may mount an APEX: call \
                          libblockd there, or blockctl --connect local; see `dmesg | grep avc`";
            Step::Mapper.fail(Code::Permission, text).remedy(remedy)
        }
        _ => Step::Mapper.fail(Code::DeviceFailed, "device-mapper does not answer"),
    }
    .errno(errno)
}

fn load_failure(name: &str, table: &str, errno: Errno) -> Failure {
    let text = format!("the kernel does not take the table of {name}: {table}");
    let (code, remedy) = match errno {
        Errno::EINVAL => (
            Code::Unsupported,
            "see `dmesg | grep device-mapper`: the target may be missing (`modprobe dm-verity`, \
             CONFIG_DM_VERITY), or its hash algorithm",
        ),
        Errno::EBUSY => (
            Code::InUse,
            "a device of the table is claimed: what is mounted cannot be mapped",
        ),
        _ => (Code::DeviceFailed, "see `dmesg | grep device-mapper`"),
    };
    Step::Mapper.fail(code, text).errno(errno).remedy(remedy)
}

fn node_failure(name: &str, number: DeviceNumber, errno: Errno) -> Failure {
    match errno {
        Errno::ENOENT => {
            let text = format!("the node of {name} ({number}) did not appear within 2 s");
            let remedy =
                "see why ueventd made no node (its file_contexts entry, ueventd.rc); in a \
                          container mount /dev";
            Step::Node.fail(Code::NodeMissing, text).remedy(remedy)
        }
        Errno::EACCES | Errno::EPERM => {
            let text = format!("{name} ({number}) may not be opened");
            let remedy = "run as root; see `dmesg | grep avc`";
            Step::Node.fail(Code::Permission, text).remedy(remedy)
        }
        _ => Step::Node.fail(Code::DeviceFailed, format!("cannot open {name} ({number})")),
    }
    .errno(errno)
}

/// Refuses a device whose data were found wrong ('C'), or that cannot say.
pub(super) fn check_verity(mapper: &dyn Mapper, name: &str) -> Result<()> {
    let lines = mapper.status(name).map_err(|errno| {
        let text = format!("{name} does not say whether its data are right");
        Step::VerityState.fail(Code::NotVerified, text).errno(errno)
    })?;
    match lines.as_slice() {
        // What follows the letter are counts of newer kernels.
        [(kind, state)] if kind == "verity" && state.starts_with('V') => Ok(()),
        [(kind, state)] if kind == "verity" && state.starts_with('C') => {
            let text = format!("dm-verity found {name} corrupted");
            let remedy = "the file is damaged, or its disk: `dmesg | grep verity` names the block";
            Err(Step::VerityState
                .fail(Code::BadSignature, text)
                .remedy(remedy))
        }
        other => {
            let text = format!("{name} is no dm-verity device in a known state: {other:?}");
            Err(Step::VerityState.fail(Code::NotVerified, text))
        }
    }
}
