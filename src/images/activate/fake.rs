//! A model of device-mapper and of a mount namespace for tests: fails where it is told to, and
//! knows what holds what.

use crate::device::loops::Loops;
use crate::device::mapper::{DeviceNumber, MapperInfo, Target};
use crate::device::mounts::MountFlags;
use crate::device::{Mapper, Mounts};
use crate::images::fake::{is_open, FakeLoops};
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Default)]
struct Device {
    minor: u32,
    uuid: String,
    table: Vec<Target>,
    deferred: bool,
    leases: Vec<File>,
}

#[derive(Default)]
struct Kernel {
    devices: BTreeMap<String, Device>,
    next_minor: u32,
    /// Numbers of opened nodes by the inode of their pipe.
    nodes: BTreeMap<u64, DeviceNumber>,
    mounts: Vec<(PathBuf, DeviceNumber)>,
    folders: BTreeSet<PathBuf>,
    /// What every mount shows as its manifest.
    manifest: Vec<u8>,
    state: String,
    calls: Vec<String>,
    /// The call, by count, that fails, and how.
    fail: Option<(usize, Errno)>,
    /// From here on every call fails: the process is dead, what it had open is closed.
    dead: Option<usize>,
}

const ROOT: &str = "/apex";

/// The model. Clones share it.
#[derive(Clone)]
pub struct FakeMachine {
    kernel: Arc<Mutex<Kernel>>,
    pub loops: FakeLoops,
}

impl FakeMachine {
    /// Every mount shows `manifest`.
    pub fn new(manifest: &[u8]) -> FakeMachine {
        let kernel = Kernel {
            manifest: manifest.to_vec(),
            state: "V".to_owned(),
            folders: BTreeSet::from([PathBuf::from(ROOT)]),
            ..Kernel::default()
        };
        FakeMachine {
            kernel: Arc::new(Mutex::new(kernel)),
            loops: FakeLoops::default(),
        }
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap()
    }

    /// What dm-verity says of itself.
    pub fn state(&self, state: &str) {
        self.kernel().state = state.to_owned();
    }

    /// Another manifest inside.
    pub fn manifest(&self, bytes: &[u8]) {
        self.kernel().manifest = bytes.to_vec();
    }

    /// Call number `at`, from now, fails.
    pub fn fail(&self, at: usize, errno: Errno) {
        let mut kernel = self.kernel();
        kernel.calls.clear();
        kernel.fail = Some((at, errno));
    }

    /// From call number `at` on nothing has an effect: as if the process was killed.
    pub fn die(&self, at: usize) {
        let mut kernel = self.kernel();
        kernel.calls.clear();
        kernel.dead = Some(at);
    }

    /// All is well again, with a process that is another one.
    pub fn heal(&self) {
        let mut kernel = self.kernel();
        kernel.fail = None;
        kernel.dead = None;
        kernel.calls.clear();
        let own = format!("blockd-{}-", std::process::id());
        for device in kernel.devices.values_mut() {
            device.uuid = device.uuid.replace(&own, "blockd-1-");
        }
    }

    /// The calls that were made.
    pub fn calls(&self) -> Vec<String> {
        self.kernel().calls.clone()
    }

    /// Makes a device that somebody else made.
    pub fn foreign(&self, name: &str, uuid: &str) {
        self.kernel().make(name, uuid);
    }

    /// Whether all is as before anything was made: what is left, in words.
    pub fn left(&self) -> Vec<String> {
        self.settle();
        let kernel = self.kernel();
        let folders = kernel
            .folders
            .iter()
            .filter(|f| f.as_path() != Path::new(ROOT));
        let mut left: Vec<String> = folders.map(|f| format!("folder {}", f.display())).collect();
        left.extend(
            kernel
                .mounts
                .iter()
                .map(|(p, _)| format!("mount {}", p.display())),
        );
        left.extend(kernel.devices.keys().map(|name| format!("dm {name}")));
        left.extend(
            self.loops
                .bound()
                .iter()
                .map(|(n, tag)| format!("loop{n} {tag}")),
        );
        left
    }

    /// Mounts and tables hold loop devices; deferred devices go.
    fn settle(&self) {
        let mut kernel = self.kernel();
        loop {
            let gone = kernel.devices.iter().find_map(|(name, device)| {
                (device.deferred && kernel.openers(device) == 0).then(|| name.clone())
            });
            match gone {
                Some(name) => kernel.devices.remove(&name),
                None => break,
            };
        }
        let held: Vec<u32> = self
            .loops
            .bound_numbers()
            .unwrap()
            .into_iter()
            .filter(|&minor| kernel.holders(DeviceNumber { major: 7, minor }) > 0)
            .collect();
        self.loops.hold(&held);
    }

    /// Counts a call, and fails where that was asked for.
    fn call(&self, name: &str) -> Result<MutexGuard<'_, Kernel>, Errno> {
        self.settle();
        let mut kernel = self.kernel();
        let at = kernel.calls.len();
        kernel.calls.push(name.to_owned());
        if kernel.dead.is_some_and(|dead| at >= dead) {
            return Err(Errno::EOWNERDEAD);
        }
        match kernel.fail {
            Some((fails, errno)) if fails == at => Err(errno),
            _ => Ok(kernel),
        }
    }
}

impl Kernel {
    fn make(&mut self, name: &str, uuid: &str) -> DeviceNumber {
        let minor = self.next_minor;
        self.next_minor += 1;
        let device = Device {
            minor,
            uuid: uuid.to_owned(),
            ..Device::default()
        };
        self.devices.insert(name.to_owned(), device);
        number(minor)
    }

    fn device(&mut self, name: &str) -> Result<&mut Device, Errno> {
        self.devices.get_mut(name).ok_or(Errno::ENXIO)
    }

    /// Mounts of a device, and tables with it.
    fn holders(&self, number: DeviceNumber) -> usize {
        let text = number.to_string();
        let tables = self.devices.values().flat_map(|device| &device.table);
        let named = tables.filter(|line| line.arguments.split(' ').any(|word| word == text));
        let mounts = self.mounts.iter().filter(|(_, device)| *device == number);
        named.count() + mounts.count()
    }

    fn openers(&self, device: &Device) -> usize {
        let leases = device.leases.iter().filter(|lease| is_open(lease)).count();
        leases + self.holders(number(device.minor))
    }
}

fn number(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 253, minor }
}

impl Mapper for FakeMachine {
    fn prepare(&self) -> Result<(), Errno> {
        self.call("prepare").map(drop)
    }

    fn create(&self, name: &str, uuid: &str) -> Result<DeviceNumber, Errno> {
        let mut kernel = self.call("create")?;
        let taken = |(n, d): (&String, &Device)| n == name || d.uuid == uuid;
        if kernel.devices.iter().any(taken) {
            return Err(Errno::EBUSY);
        }
        Ok(kernel.make(name, uuid))
    }

    fn load(&self, name: &str, table: &[Target]) -> Result<(), Errno> {
        self.call("load")?.device(name)?.table = table.to_vec();
        self.settle();
        Ok(())
    }

    fn resume(&self, name: &str) -> Result<(), Errno> {
        self.call("resume")?.device(name).map(drop)
    }

    fn open(&self, number: DeviceNumber, _wait: Duration) -> Result<OwnedFd, Errno> {
        let mut kernel = self.call("open")?;
        let (ours, theirs) = nix::unistd::pipe().unwrap();
        let ours = File::from(ours);
        kernel.nodes.insert(ours.metadata().unwrap().ino(), number);
        let device = kernel
            .devices
            .values_mut()
            .find(|d| d.minor == number.minor);
        device.ok_or(Errno::ENOENT)?.leases.push(ours);
        Ok(theirs)
    }

    fn status(&self, name: &str) -> Result<Vec<(String, String)>, Errno> {
        let mut kernel = self.call("status")?;
        let state = kernel.state.clone();
        let lines = kernel.device(name)?.table.iter();
        Ok(lines
            .map(|line| (line.kind.to_owned(), state.clone()))
            .collect())
    }

    fn info(&self, name: &str) -> Result<MapperInfo, Errno> {
        let kernel = self.call("info")?;
        let device = kernel.devices.get(name).ok_or(Errno::ENXIO)?;
        Ok(MapperInfo {
            number: number(device.minor),
            openers: kernel.openers(device) as u32,
            deferred: device.deferred,
            uuid: device.uuid.clone(),
        })
    }

    fn remove(&self, name: &str, deferred: bool) -> Result<(), Errno> {
        let mut kernel = self.call(if deferred { "defer" } else { "remove" })?;
        let device = kernel.devices.get(name).ok_or(Errno::ENXIO)?;
        match (kernel.openers(device), deferred) {
            (0, _) => drop(kernel.devices.remove(name)),
            (_, true) => kernel.device(name)?.deferred = true,
            (_, false) => return Err(Errno::EBUSY),
        }
        drop(kernel);
        self.settle();
        Ok(())
    }

    fn list(&self) -> Result<Vec<(String, DeviceNumber)>, Errno> {
        let kernel = self.call("list")?;
        let devices = kernel.devices.iter();
        Ok(devices
            .map(|(name, d)| (name.clone(), number(d.minor)))
            .collect())
    }

    fn process_start(&self, pid: u32) -> Option<u64> {
        (pid == std::process::id()).then_some(7)
    }

    fn pause(&self, _time: Duration) {
        self.settle();
    }
}

impl Mounts for FakeMachine {
    fn make_folder(&self, path: &Path) -> Result<(), Errno> {
        let mut kernel = self.call("make_folder")?;
        match kernel.folders.insert(path.to_owned()) {
            true => Ok(()),
            false => Err(Errno::EEXIST),
        }
    }

    fn remove_folder(&self, path: &Path) -> Result<(), Errno> {
        let mut kernel = self.call("remove_folder")?;
        if kernel.mounts.iter().any(|(point, _)| point == path) {
            return Err(Errno::EBUSY);
        }
        match kernel.folders.remove(path) {
            true => Ok(()),
            false => Err(Errno::ENOENT),
        }
    }

    fn mount(
        &self,
        device: BorrowedFd<'_>,
        target: &Path,
        _file_system: &str,
        _flags: MountFlags,
    ) -> Result<(), Errno> {
        let mut kernel = self.call("mount")?;
        let file = File::from(device.try_clone_to_owned().unwrap());
        let inode = file.metadata().unwrap().ino();
        // A descriptor that is none of device-mapper's is the only loop device's.
        let number = kernel.nodes.get(&inode).copied().unwrap_or_else(|| {
            let bound = self.loops.bound_numbers().unwrap();
            DeviceNumber {
                major: 7,
                minor: bound[0],
            }
        });
        kernel.mounts.push((target.to_owned(), number));
        drop(kernel);
        self.settle();
        Ok(())
    }

    fn bind(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        let mut kernel = self.call("bind")?;
        let mounted = kernel.mounts.iter().find(|(point, _)| point == source);
        let number = mounted.ok_or(Errno::EINVAL)?.1;
        kernel.mounts.push((target.to_owned(), number));
        Ok(())
    }

    fn unmount(&self, target: &Path) -> Result<(), Errno> {
        let mut kernel = self.call("unmount")?;
        let at = kernel.mounts.iter().rposition(|(point, _)| point == target);
        kernel.mounts.remove(at.ok_or(Errno::EINVAL)?);
        drop(kernel);
        self.settle();
        Ok(())
    }

    fn read(&self, _path: &Path, _limit: u64) -> Result<Vec<u8>, Errno> {
        Ok(self.call("read")?.manifest.clone())
    }

    fn table(&self) -> Result<String, Errno> {
        let kernel = self.call("table")?;
        let lines = kernel
            .mounts
            .iter()
            .map(|(point, number)| format!("1 1 {number} / {} ro - ext4 x ro\n", point.display()));
        Ok(lines.collect())
    }
}
