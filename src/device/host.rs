//! The machine: everything the reset use case reaches, behind one trait.

use super::block::{Access, Block, Node};
use super::mmc::{Card, Mmc};
use super::sysfs::{Sysfs, Tree};
use nix::errno::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Disks and time. Names are the kernel's: `mmcblk0`, `mmcblk0p3`.
pub trait Storage: Send + Sync {
    /// /sys and /proc.
    fn sysfs(&self) -> &dyn Sysfs;
    /// The card behind a whole disk.
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno>;
    /// A disk or a partition.
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno>;
    /// Monotonic time since some fixed point.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// This machine.
pub struct Host {
    sysfs: Tree,
    start: Instant,
}

impl Host {
    /// The machine that the process runs on.
    pub fn new() -> Host {
        Host {
            sysfs: Tree::system(),
            start: Instant::now(),
        }
    }
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

/// Where the node of a block device is: ueventd makes `/dev/block/NAME`, devtmpfs `/dev/NAME`.
pub fn node_path(name: &str) -> PathBuf {
    let android = Path::new("/dev/block").join(name);
    if android.exists() {
        android
    } else {
        Path::new("/dev").join(name)
    }
}

impl Storage for Host {
    fn sysfs(&self) -> &dyn Sysfs {
        &self.sysfs
    }

    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        Ok(Box::new(Card::open(&node_path(disk))?))
    }

    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        Ok(Box::new(Node::open(&node_path(name), access)?))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
