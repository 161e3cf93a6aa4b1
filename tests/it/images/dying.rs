//! A process that activates an APEX and dies at a given call: this test's own program, started
//! again. Everything is real but the moment of its death.

use super::place::opened;
use anyhow::{Context, Result};
use blockd::device::loops::HostLoops;
use blockd::device::mapper::{DeviceNumber, HostMapper, Mapper, MapperInfo, Target};
use blockd::device::mounts::{HostMounts, MountFlags, Mounts};
use blockd::images::{Images, Numbers};
use nix::errno::Errno;
use nix::sys::signal::{raise, Signal};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The first argument of the program that dies.
pub const ARGUMENT: &str = "--activate-and-die";

/// Runs it: killed before call number `at`, or through.
pub fn run(at: usize, root: &Path, file: &Path, name: &str) -> Result<ExitStatus> {
    Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .arg(at.to_string())
        .args([root, file])
        .arg(name)
        .status()
        .context("cannot start this program again")
}

/// The program.
pub fn main(arguments: &[String]) -> Result<()> {
    let [at, root, file, _name] = arguments else {
        anyhow::bail!("{ARGUMENT} AT ROOT FILE NAME");
    };
    let death = Death {
        left: Arc::new(AtomicUsize::new(at.parse()?)),
    };
    let images = Images::over(
        HostLoops::new(),
        Dying(HostMapper::new(), death.clone()),
        Dying(HostMounts, death),
        Numbers::From(6500),
    );
    let images = images.with_apex_root(Path::new(root));
    let activated = images.activate(&opened(Path::new(file))?);
    activated.map(drop).map_err(super::support::text)
}

#[derive(Clone)]
struct Death {
    left: Arc<AtomicUsize>,
}

impl Death {
    fn call(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let _ = raise(Signal::SIGKILL);
        }
    }
}

struct Dying<T>(T, Death);

impl<T> Dying<T> {
    fn it(&self) -> &T {
        self.1.call();
        &self.0
    }
}

impl Mapper for Dying<HostMapper> {
    fn prepare(&self) -> Result<(), Errno> {
        self.it().prepare()
    }
    fn create(&self, name: &str, uuid: &str) -> Result<DeviceNumber, Errno> {
        self.it().create(name, uuid)
    }
    fn load(&self, name: &str, table: &[Target]) -> Result<(), Errno> {
        self.it().load(name, table)
    }
    fn resume(&self, name: &str) -> Result<(), Errno> {
        self.it().resume(name)
    }
    fn open(&self, number: DeviceNumber, wait: Duration) -> Result<OwnedFd, Errno> {
        self.it().open(number, wait)
    }
    fn status(&self, name: &str) -> Result<Vec<(String, String)>, Errno> {
        self.it().status(name)
    }
    fn info(&self, name: &str) -> Result<MapperInfo, Errno> {
        self.it().info(name)
    }
    fn remove(&self, name: &str, deferred: bool) -> Result<(), Errno> {
        self.it().remove(name, deferred)
    }
    fn list(&self) -> Result<Vec<(String, DeviceNumber)>, Errno> {
        self.it().list()
    }
    fn process_start(&self, pid: u32) -> Option<u64> {
        self.0.process_start(pid)
    }
    fn pause(&self, time: Duration) {
        self.0.pause(time);
    }
}

impl Mounts for Dying<HostMounts> {
    fn make_folder(&self, path: &Path) -> Result<(), Errno> {
        self.it().make_folder(path)
    }
    fn remove_folder(&self, path: &Path) -> Result<(), Errno> {
        self.it().remove_folder(path)
    }
    fn mount(
        &self,
        device: BorrowedFd<'_>,
        target: &Path,
        file_system: &str,
        flags: MountFlags,
    ) -> Result<(), Errno> {
        self.it().mount(device, target, file_system, flags)
    }
    fn bind(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        self.it().bind(source, target)
    }
    fn unmount(&self, target: &Path) -> Result<(), Errno> {
        self.it().unmount(target)
    }
    fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, Errno> {
        self.it().read(path, limit)
    }
    fn table(&self) -> Result<String, Errno> {
        self.it().table()
    }
}
