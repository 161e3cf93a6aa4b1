//! A model of the kernel's loop devices for tests: counts calls, fails where it is told to.

use crate::device::loops::{LoopDevice, Loops, NodeMode, Setup, Status};
use crate::device::mapper::DeviceNumber;
use crate::units::{Bytes, Sectors};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Device {
    bound: Option<Setup>,
    openers: usize,
    /// The other ends of descriptors that were handed out.
    leases: Vec<File>,
    /// A mount or a device of device-mapper has it open.
    held: bool,
}

impl Device {
    /// Lets the device go if it may.
    fn settle(&mut self) {
        self.leases.retain(is_open);
        let used = self.openers > 0 || !self.leases.is_empty() || self.held;
        if !used && self.bound.as_ref().is_some_and(|setup| setup.autoclear) {
            self.bound = None;
        }
    }
}

/// Whether a descriptor of the pipe that `end` reads from is still open.
pub fn is_open(end: &File) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO) == Ok(0)
}

#[derive(Default)]
struct Kernel {
    devices: BTreeMap<u32, Device>,
    calls: Vec<&'static str>,
    /// Errors that a call gives, first to last, before it works.
    errors: BTreeMap<&'static str, VecDeque<Errno>>,
    /// What LOOP_CONFIGURE does to a setup before it takes it.
    distort: Option<fn(&mut Setup)>,
    /// The size of every device, where it is not its window's.
    size: Option<Bytes>,
}

impl Kernel {
    fn call(&mut self, name: &'static str) -> Result<(), Errno> {
        self.calls.push(name);
        let error = self.errors.get_mut(name).and_then(VecDeque::pop_front);
        error.map_or(Ok(()), Err)
    }
}

/// The model. Clones share it.
#[derive(Clone, Default)]
pub struct FakeLoops(Arc<Mutex<Kernel>>);

impl FakeLoops {
    /// With devices that exist; the second field says bound (by somebody else).
    pub fn with_devices(devices: &[(u32, bool)]) -> FakeLoops {
        let loops = FakeLoops::default();
        for &(number, bound) in devices {
            let device = Device {
                bound: bound.then(|| foreign(number)),
                openers: usize::from(bound),
                ..Device::default()
            };
            loops.kernel().devices.insert(number, device);
        }
        loops
    }

    fn kernel(&self) -> std::sync::MutexGuard<'_, Kernel> {
        self.0.lock().unwrap()
    }

    /// Lets the next runs of a call fail.
    pub fn fail(&self, call: &'static str, errors: &[Errno]) {
        let queue = errors.iter().copied().collect();
        self.kernel().errors.insert(call, queue);
    }

    /// Lets LOOP_CONFIGURE do something else than it was told.
    pub fn distort(&self, how: fn(&mut Setup)) {
        self.kernel().distort = Some(how);
    }

    /// Lets devices be of this size, as where the file became shorter.
    pub fn clip(&self, size: Bytes) {
        self.kernel().size = Some(size);
    }

    /// How often a call was made.
    pub fn count(&self, call: &str) -> usize {
        let kernel = self.kernel();
        kernel.calls.iter().filter(|name| **name == call).count()
    }

    /// The calls on devices that were made after the last LOOP_CONFIGURE.
    pub fn calls_after_bind(&self) -> Vec<&'static str> {
        let kernel = self.kernel();
        let bind = kernel.calls.iter().rposition(|name| *name == "configure");
        kernel.calls[bind.map_or(0, |at| at + 1)..].to_vec()
    }

    /// Says which devices something in the kernel has open.
    pub fn hold(&self, numbers: &[u32]) {
        for (number, device) in &mut self.kernel().devices {
            device.held = numbers.contains(number);
        }
    }

    /// The tags of what is bound, by number.
    pub fn bound(&self) -> Vec<(u32, String)> {
        let mut kernel = self.kernel();
        kernel.devices.values_mut().for_each(Device::settle);
        let bound = kernel.devices.iter();
        bound
            .filter_map(|(n, d)| Some((*n, d.bound.as_ref()?.tag.clone())))
            .collect()
    }
}

fn foreign(number: u32) -> Setup {
    Setup {
        block_size: 512,
        offset: Bytes(0),
        size_limit: Bytes(4096),
        read_only: false,
        autoclear: false,
        direct_io: false,
        tag: format!("/data/somebody-else-{number}"),
    }
}

impl Loops for FakeLoops {
    fn prepare(&self) -> Result<(), Errno> {
        self.kernel().call("prepare")
    }

    fn add(&self, number: u32) -> Result<(), Errno> {
        let mut kernel = self.kernel();
        kernel.call("add")?;
        if kernel.devices.contains_key(&number) {
            return Err(Errno::EEXIST);
        }
        kernel.devices.insert(number, Device::default());
        Ok(())
    }

    fn free_number(&self) -> Result<u32, Errno> {
        let mut kernel = self.kernel();
        kernel.call("free_number")?;
        let idle = kernel.devices.iter().find(|(_, d)| d.bound.is_none());
        let number = match idle {
            Some((number, _)) => *number,
            None => kernel.devices.keys().last().map_or(0, |n| n + 1),
        };
        kernel.devices.entry(number).or_default();
        Ok(number)
    }

    fn open(
        &self,
        number: u32,
        mode: NodeMode,
        _wait: Duration,
    ) -> Result<Box<dyn LoopDevice>, Errno> {
        let mut kernel = self.kernel();
        kernel.call("open")?;
        let device = kernel.devices.get_mut(&number).ok_or(Errno::ENOENT)?;
        device.openers += 1;
        Ok(Box::new(FakeDevice {
            loops: self.clone(),
            number,
            mode,
            node: PathBuf::from(format!("/dev/loop{number}")),
        }))
    }

    fn configure_supported(&self, device: &dyn LoopDevice) -> Result<(), Errno> {
        device.probe_configure()
    }

    fn configure_known(&self) -> Option<bool> {
        None
    }

    fn exists(&self, number: u32) -> bool {
        self.kernel().devices.contains_key(&number)
    }

    fn is_bound(&self, number: u32) -> bool {
        let kernel = self.kernel();
        kernel
            .devices
            .get(&number)
            .is_some_and(|d| d.bound.is_some())
    }

    fn bound_numbers(&self) -> io::Result<Vec<u32>> {
        Ok(self.bound().into_iter().map(|(number, _)| number).collect())
    }

    fn device_number(&self, number: u32, _node: BorrowedFd<'_>) -> Result<DeviceNumber, Errno> {
        self.kernel().call("device_number")?;
        Ok(DeviceNumber {
            major: 7,
            minor: number,
        })
    }

    fn backing_file(&self, number: u32) -> io::Result<String> {
        Ok(format!("/data/file{number}"))
    }

    fn pause(&self, _time: Duration) {
        self.kernel().calls.push("pause");
    }
}

struct FakeDevice {
    loops: FakeLoops,
    number: u32,
    mode: NodeMode,
    node: PathBuf,
}

impl FakeDevice {
    fn setup<T>(&self, call: &'static str, read: impl Fn(&Setup) -> T) -> Result<T, Errno> {
        let mut kernel = self.loops.kernel();
        kernel.call(call)?;
        let bound = kernel.devices[&self.number].bound.as_ref();
        bound.map(read).ok_or(Errno::ENXIO)
    }

    /// LOOP_CONFIGURE, or the calls that it replaced.
    fn take(&self, call: &'static str, setup: &Setup) -> Result<(), Errno> {
        let mut kernel = self.loops.kernel();
        kernel.call(call)?;
        let mut setup = setup.clone();
        setup.read_only |= self.mode == NodeMode::ReadOnly;
        if let Some(distort) = kernel.distort {
            distort(&mut setup);
        }
        let device = kernel.devices.get_mut(&self.number).unwrap();
        if device.bound.is_some() {
            return Err(Errno::EBUSY);
        }
        device.bound = Some(setup);
        Ok(())
    }
}

impl LoopDevice for FakeDevice {
    fn node(&self) -> &Path {
        &self.node
    }

    fn probe_configure(&self) -> Result<(), Errno> {
        self.loops.kernel().call("probe")
    }

    fn configure(&self, _file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno> {
        self.take("configure", setup)
    }

    fn bind(&self, _file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno> {
        self.take("bind", setup)
    }

    fn status(&self) -> Result<Status, Errno> {
        self.setup("status", |setup| Status {
            number: self.number,
            offset: setup.offset,
            size_limit: setup.size_limit,
            read_only: setup.read_only,
            autoclear: setup.autoclear,
            direct_io: setup.direct_io,
            tag: setup.tag.clone(),
        })
    }

    fn block_size(&self) -> Result<u32, Errno> {
        self.setup("block_size", |setup| setup.block_size)
    }

    fn size(&self) -> Result<Bytes, Errno> {
        let clipped = self.loops.kernel().size;
        self.setup("size", |setup| clipped.unwrap_or(setup.size_limit))
    }

    fn set_read_ahead(&self, _length: Sectors) -> Result<(), Errno> {
        self.loops.kernel().call("set_read_ahead")
    }

    fn clear(&self) -> Result<(), Errno> {
        let mut kernel = self.loops.kernel();
        kernel.call("clear")?;
        let device = kernel.devices.get_mut(&self.number).unwrap();
        let bound = device.bound.as_mut().ok_or(Errno::ENXIO)?;
        if device.openers + device.leases.len() > 1 {
            bound.autoclear = true;
        } else {
            device.bound = None;
        }
        Ok(())
    }

    /// One end of a pipe: the model sees when it is closed.
    fn into_fd(self: Box<Self>) -> OwnedFd {
        let (ours, theirs) = nix::unistd::pipe().unwrap();
        let mut kernel = self.loops.kernel();
        let device = kernel.devices.get_mut(&self.number).unwrap();
        device.leases.push(File::from(ours));
        drop(kernel);
        theirs
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        let mut kernel = self.loops.kernel();
        let device = kernel.devices.get_mut(&self.number).unwrap();
        device.openers -= 1;
        device.settle();
    }
}
