//! What is attached, and taking it away.

use super::plan::TAG_PREFIX;
use super::{Images, Step};
use crate::device::loops::{LoopDevice, NodeMode};
use crate::device::mapper::DeviceNumber;
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// Waits for other openers of a device that is detached: 15 ms in all.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
];

/// A device that something is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDevice {
    /// Loop device number.
    pub number: u32,
    /// Path of the node.
    pub node: PathBuf,
    /// The name from the request; the whole tag where the device is somebody else's.
    pub name: String,
    /// Path of the backing file as the kernel shows it.
    pub backing_file: String,
    /// First byte of the window in the backing file.
    pub offset: Bytes,
    /// Size of the device.
    pub size: Bytes,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// The backing file is read by direct I/O.
    pub direct_io: bool,
    /// The device goes with its last opener.
    pub autoclear: bool,
    /// blockd made it.
    pub ours: bool,
}

/// The devices, and those that could not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Ascending by number.
    pub devices: Vec<ImageDevice>,
    /// One line for each device that was skipped.
    pub skipped: Vec<String>,
}

/// What became of a detachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// The device is idle.
    Now,
    /// Somebody has it open, or mounted: it goes with the last of them.
    Deferred,
}

impl Images {
    /// The devices that blockd has made, or all. One that does not answer hides no other.
    ///
    /// # Errors
    /// `DEVICE_FAILED` where sysfs cannot be read.
    pub fn list(&self, all: bool) -> Result<Listing> {
        let numbers = self.loops.bound_numbers().map_err(|error| {
            let text = format!("cannot list /sys/block: {error}");
            Step::List.fail(Code::DeviceFailed, text)
        })?;
        let mut listing = Listing::default();
        for number in numbers {
            match self.look(number) {
                Ok(device) if all || device.ours => listing.devices.push(device),
                Ok(_) => {}
                // Released since sysfs was read: no news.
                Err(Errno::ENXIO) => {}
                Err(errno) => listing
                    .skipped
                    .push(format!("loop{number}: {}", errno.desc())),
            }
        }
        Ok(listing)
    }

    fn look(&self, number: u32) -> std::result::Result<ImageDevice, Errno> {
        let device = self.open(number)?;
        let status = device.status()?;
        let name = status.tag.strip_prefix(TAG_PREFIX);
        Ok(ImageDevice {
            number,
            node: device.node().to_owned(),
            ours: name.is_some(),
            name: name.unwrap_or(&status.tag).to_owned(),
            backing_file: self.loops.backing_file(number).unwrap_or_default(),
            offset: status.offset,
            size: device.size()?,
            block_size: device.block_size()?,
            read_only: status.read_only,
            direct_io: status.direct_io,
            autoclear: status.autoclear,
        })
    }

    /// Major and minor number of a loop device; `None` where it has gone.
    pub(super) fn loop_number(&self, number: u32) -> Option<DeviceNumber> {
        let device = self.open(number).ok()?.into_fd();
        self.loops.device_number(number, device.as_fd()).ok()
    }

    /// Without a wait: a device that is bound has long had its node.
    fn open(&self, number: u32) -> std::result::Result<Box<dyn LoopDevice>, Errno> {
        self.loops.open(number, NodeMode::ReadOnly, Duration::ZERO)
    }

    /// Detaches a device that blockd has made.
    ///
    /// # Errors
    /// `NO_SUCH_DEVICE` where nothing is attached; `PERMISSION` where it is somebody else's.
    pub fn detach(&self, number: u32) -> Result<Detached> {
        let failed = |errno: Errno| match errno {
            Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => {
                let text = format!("nothing is attached to loop{number}");
                let remedy = "`blockctl image list` shows what is";
                Step::Detach.fail(Code::NoSuchDevice, text).remedy(remedy)
            }
            Errno::EACCES | Errno::EPERM => {
                let text = format!("loop{number} may not be opened or cleared");
                let remedy = "run as root; under SELinux see `dmesg | grep avc`";
                Step::Detach.fail(Code::Permission, text).remedy(remedy)
            }
            _ => Step::Detach.fail(Code::DeviceFailed, format!("cannot detach loop{number}")),
        };
        let failed = |errno: Errno| -> Failure { failed(errno).errno(errno) };
        let device = self.open(number).map_err(failed)?;
        // While we have it open nobody can bind another file to it.
        let status = device.status().map_err(failed)?;
        if !status.tag.starts_with(TAG_PREFIX) {
            let text = format!("loop{number} belongs to {:?}, not to blockd", status.tag);
            let remedy = format!("who made it detaches it, or `losetup -d /dev/loop{number}`");
            return Err(Step::Detach.fail(Code::Permission, text).remedy(remedy));
        }
        device.clear().map_err(failed)?;
        match device.status() {
            Err(Errno::ENXIO) => Ok(Detached::Now),
            // The kernel has turned it into autoclear.
            Ok(_) => {
                drop(device);
                Ok(self.deferred(number))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whoever only looks at the device (udev, blkid, an attachment that tries it) is gone soon.
    fn deferred(&self, number: u32) -> Detached {
        for pause in LOOKS {
            if !self.loops.is_bound(number) {
                return Detached::Now;
            }
            self.loops.pause(pause);
        }
        Detached::Deferred
    }
}
