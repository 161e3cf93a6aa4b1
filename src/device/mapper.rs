//! Device-mapper: its control node, devices by name, nodes by number.

use super::block::errno;
use super::host::node_path;
use super::sysfs::{Sysfs, Tree};
use crate::uapi::dm;
use crate::units::Sectors;
use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use dm::DM_MAX_NAME;

/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A block device by its numbers. Names and nodes may be late, or somebody else's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// Its device.
    pub minor: u32,
}

impl DeviceNumber {
    /// The device that an open node is of.
    ///
    /// # Errors
    /// The kernel's; `ENOTBLK` for anything but a block device.
    pub fn of(file: &File) -> Result<DeviceNumber, Errno> {
        let metadata = file.metadata().map_err(errno)?;
        if !metadata.file_type().is_block_device() {
            return Err(Errno::ENOTBLK);
        }
        let number = metadata.rdev();
        Ok(DeviceNumber {
            major: major(number) as u32,
            minor: minor(number) as u32,
        })
    }
}

/// As tables of device-mapper and sysfs have it.
impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// First sector in the device.
    pub start: Sectors,
    /// Number of sectors.
    pub length: Sectors,
    /// Name of the target.
    pub kind: &'static str,
    /// Its arguments.
    pub arguments: String,
}

/// As `dmsetup table` prints it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, length) = (self.start.0, self.length.0);
        write!(f, "{start} {length} {} {}", self.kind, self.arguments)
    }
}

/// What the kernel says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapperInfo {
    /// Its number.
    pub number: DeviceNumber,
    /// Nodes, mounts and other devices that have it open.
    pub openers: u32,
    /// It goes with its last opener.
    pub deferred: bool,
    /// The uuid that it was made with.
    pub uuid: String,
}

/// The machine's device-mapper. All tables are read-only.
pub trait Mapper: Send + Sync {
    /// Opens the control node where that has not been done.
    fn prepare(&self) -> Result<(), Errno>;
    /// DM_DEV_CREATE: `EBUSY` where name or uuid is taken.
    fn create(&self, name: &str, uuid: &str) -> Result<DeviceNumber, Errno>;
    /// DM_TABLE_LOAD.
    fn load(&self, name: &str, table: &[Target]) -> Result<(), Errno>;
    /// DM_DEV_SUSPEND without its flag: the table becomes live.
    fn resume(&self, name: &str) -> Result<(), Errno>;
    /// Opens the node of `number` for reading, waiting at most `wait` for it (`ENOENT` after).
    fn open(&self, number: DeviceNumber, wait: Duration) -> Result<OwnedFd, Errno>;
    /// DM_TABLE_STATUS: target and state, line by line.
    fn status(&self, name: &str) -> Result<Vec<(String, String)>, Errno>;
    /// DM_DEV_STATUS: `ENXIO` where there is no such device.
    fn info(&self, name: &str) -> Result<MapperInfo, Errno>;
    /// DM_DEV_REMOVE; with `deferred` one in use goes with its last opener.
    fn remove(&self, name: &str, deferred: bool) -> Result<(), Errno>;
    /// DM_LIST_DEVICES.
    fn list(&self) -> Result<Vec<(String, DeviceNumber)>, Errno>;
    /// When a process began, in the kernel's ticks since boot; `None` where there is none.
    fn process_start(&self, pid: u32) -> Option<u64>;
    /// Waits.
    fn pause(&self, time: Duration);
}

/// This machine's.
pub struct HostMapper {
    controls: Vec<PathBuf>,
    sysfs: Tree,
    control: OnceLock<File>,
}

impl HostMapper {
    /// The usual paths: ueventd makes `/dev/device-mapper`, devtmpfs `/dev/mapper/control`.
    pub fn new() -> HostMapper {
        HostMapper::at(["/dev/device-mapper", "/dev/mapper/control"])
    }

    /// Other paths of the control node, in the order to try them.
    pub fn at<P: Into<PathBuf>>(controls: impl IntoIterator<Item = P>) -> HostMapper {
        HostMapper {
            controls: controls.into_iter().map(Into::into).collect(),
            sysfs: Tree::system(),
            control: OnceLock::new(),
        }
    }

    fn control(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(control) = self.control.get() {
            return Ok(control.as_fd());
        }
        let mut last = Errno::ENOENT;
        for path in &self.controls {
            match File::options().read(true).write(true).open(path) {
                Ok(control) => {
                    dm::version(control.as_fd())?;
                    return Ok(self.control.get_or_init(|| control).as_fd());
                }
                Err(error) => match errno(error) {
                    Errno::ENOENT => {}
                    errno => last = errno,
                },
            }
        }
        Err(last)
    }

    /// The node, if it is the right device's.
    fn open_now(&self, number: DeviceNumber) -> Result<OwnedFd, Errno> {
        let link = format!("/sys/dev/block/{number}");
        let name = self.sysfs.resolved_name(&link).map_err(errno)?;
        let file = File::open(node_path(&name)).map_err(errno)?;
        match DeviceNumber::of(&file)? == number {
            true => Ok(file.into()),
            // A node of an earlier device, which is about to go.
            false => Err(Errno::ENOENT),
        }
    }
}

impl Default for HostMapper {
    fn default() -> HostMapper {
        HostMapper::new()
    }
}

fn number(dev: u64) -> DeviceNumber {
    let (major, minor) = dm::split(dev);
    DeviceNumber { major, minor }
}

impl Mapper for HostMapper {
    fn prepare(&self) -> Result<(), Errno> {
        self.control().map(drop)
    }

    fn create(&self, name: &str, uuid: &str) -> Result<DeviceNumber, Errno> {
        dm::create(self.control()?, name, uuid).map(number)
    }

    fn load(&self, name: &str, table: &[Target]) -> Result<(), Errno> {
        let targets: Vec<dm::Target<'_>> = table
            .iter()
            .map(|target| dm::Target {
                start: target.start.0,
                length: target.length.0,
                kind: target.kind,
                arguments: &target.arguments,
            })
            .collect();
        dm::load(self.control()?, name, &targets)
    }

    fn resume(&self, name: &str) -> Result<(), Errno> {
        dm::resume(self.control()?, name)
    }

    fn open(&self, number: DeviceNumber, wait: Duration) -> Result<OwnedFd, Errno> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match self.open_now(number) {
                Err(Errno::ENOENT) if start.elapsed() < wait => {}
                result => return result,
            }
            self.pause(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn status(&self, name: &str) -> Result<Vec<(String, String)>, Errno> {
        let lines = dm::status(self.control()?, name, false)?;
        Ok(lines.into_iter().map(|l| (l.kind, l.text)).collect())
    }

    fn info(&self, name: &str) -> Result<MapperInfo, Errno> {
        let info = dm::info(self.control()?, name)?;
        Ok(MapperInfo {
            number: number(info.dev),
            openers: info.open_count,
            deferred: info.deferred_remove,
            uuid: info.uuid,
        })
    }

    fn remove(&self, name: &str, deferred: bool) -> Result<(), Errno> {
        dm::remove(self.control()?, name, deferred)
    }

    fn list(&self) -> Result<Vec<(String, DeviceNumber)>, Errno> {
        let devices = dm::list(self.control()?)?;
        Ok(devices
            .into_iter()
            .map(|(name, dev)| (name, number(dev)))
            .collect())
    }

    fn process_start(&self, pid: u32) -> Option<u64> {
        let stat = self.sysfs.read(&format!("/proc/{pid}/stat")).ok()?;
        start_of(&stat)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Field 22 of /proc/PID/stat. The second is the program's name in parentheses, which it may hold.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_of(&format!("42 (a) b (c) {rest}")), Some(4711));
        assert_eq!(start_of("42 (a) S 1"), None);
        let mapper = HostMapper::new();
        assert!(mapper.process_start(std::process::id()).is_some());
        assert_eq!(mapper.process_start(u32::MAX), None);
    }

    #[test]
    fn a_missing_control_node_is_told_from_one_that_is_no_such() {
        let mapper = HostMapper::at(["/nowhere/control"]);
        assert_eq!(mapper.prepare(), Err(Errno::ENOENT));
        let mapper = HostMapper::at(["/nowhere/control", "/dev/null"]);
        assert_eq!(mapper.prepare(), Err(Errno::ENOTTY));
    }
}
