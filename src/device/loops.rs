//! Loop devices: loop-control, the nodes, and what is bound to them.

mod classic;

use super::block::errno;
use super::mapper::DeviceNumber;
use super::sysfs::{Sysfs, Tree};
use crate::uapi;
use crate::uapi::loops::{LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY};
use crate::units::{Bytes, Sectors};
use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How a node is opened. Never O_EXCL: a mount of the device could not claim it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMode {
    /// O_RDONLY. The kernel makes a device read-only that is bound through such a node.
    ReadOnly,
    /// O_RDWR.
    ReadWrite,
}

/// What a loop device is to be: all of LOOP_CONFIGURE's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Logical block size in bytes; 0 = the kernel's choice.
    pub block_size: u32,
    /// First byte of the window in the backing file.
    pub offset: Bytes,
    /// Length of the window.
    pub size_limit: Bytes,
    /// Refuse writes.
    pub read_only: bool,
    /// Unbind when the last opener has closed it.
    pub autoclear: bool,
    /// Read the backing file by direct I/O. The kernel drops this silently where it cannot.
    pub direct_io: bool,
    /// For `lo_file_name`, at most 63 bytes.
    pub tag: String,
}

impl Setup {
    fn request(&self) -> uapi::loops::Setup<'_> {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        uapi::loops::Setup {
            block_size: self.block_size,
            offset: self.offset.0,
            size_limit: self.size_limit.0,
            flags: flag(self.read_only, LO_FLAGS_READ_ONLY)
                | flag(self.autoclear, LO_FLAGS_AUTOCLEAR)
                | flag(self.direct_io, LO_FLAGS_DIRECT_IO),
            name: &self.tag,
        }
    }
}

/// What the kernel says of a bound device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The device's own number.
    pub number: u32,
    /// First byte of the window in the backing file.
    pub offset: Bytes,
    /// Length of the window; 0 = to the end of the file.
    pub size_limit: Bytes,
    /// Writes are refused.
    pub read_only: bool,
    /// Unbinds with its last opener.
    pub autoclear: bool,
    /// The backing file is read by direct I/O.
    pub direct_io: bool,
    /// `lo_file_name`.
    pub tag: String,
}

/// The machine's loop devices.
pub trait Loops: Send + Sync {
    /// Opens loop-control where that has not been done.
    fn prepare(&self) -> Result<(), Errno>;
    /// LOOP_CTL_ADD.
    fn add(&self, number: u32) -> Result<(), Errno>;
    /// LOOP_CTL_GET_FREE: a number that was idle a moment ago.
    fn free_number(&self) -> Result<u32, Errno>;
    /// Opens the node, waiting at most `wait` for one that does not exist yet (`ENOENT` after).
    fn open(
        &self,
        number: u32,
        mode: NodeMode,
        wait: Duration,
    ) -> Result<Box<dyn LoopDevice>, Errno>;
    /// Whether the kernel has LOOP_CONFIGURE, asked once through any open device: `EINVAL` or
    /// `ENOTTY` where it has not.
    fn configure_supported(&self, device: &dyn LoopDevice) -> Result<(), Errno>;
    /// The same, where it was asked already.
    fn configure_known(&self) -> Option<bool>;
    /// Whether the kernel has the device, with or without a node.
    fn exists(&self, number: u32) -> bool;
    /// Whether something is bound to the device, by sysfs.
    fn is_bound(&self, number: u32) -> bool;
    /// The numbers of all devices that something is bound to, ascending.
    fn bound_numbers(&self) -> io::Result<Vec<u32>>;
    /// Major and minor number of device `number`, whose open node is `node`: the minor number is
    /// another one where the driver keeps room for partitions (loop.max_part).
    fn device_number(&self, number: u32, node: BorrowedFd<'_>) -> Result<DeviceNumber, Errno>;
    /// Path of the backing file as sysfs shows it.
    fn backing_file(&self, number: u32) -> io::Result<String>;
    /// Waits between two tries.
    fn pause(&self, time: Duration);
}

/// An open loop device.
pub trait LoopDevice: Send {
    /// Path of the node that was opened.
    fn node(&self) -> &Path;
    /// LOOP_CONFIGURE with a descriptor that cannot be: `Ok` where the kernel has the call.
    fn probe_configure(&self) -> Result<(), Errno>;
    /// LOOP_CONFIGURE.
    fn configure(&self, file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno>;
    /// The same by LOOP_SET_FD and what follows it, for kernels without LOOP_CONFIGURE; direct I/O
    /// is not asked for. Where a part fails nothing stays bound.
    fn bind(&self, file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno>;
    /// LOOP_GET_STATUS64; `ENXIO` where nothing is bound.
    fn status(&self) -> Result<Status, Errno>;
    /// BLKSSZGET, in bytes.
    fn block_size(&self) -> Result<u32, Errno>;
    /// BLKGETSIZE64.
    fn size(&self) -> Result<Bytes, Errno>;
    /// BLKRASET.
    fn set_read_ahead(&self, length: Sectors) -> Result<(), Errno>;
    /// LOOP_CLR_FD: unbinds, or marks to go with the last opener where there are others.
    fn clear(&self) -> Result<(), Errno>;
    /// The open node.
    fn into_fd(self: Box<Self>) -> OwnedFd;
}

/// Longest step of the wait for a node. ueventd needs 1–20 ms for one.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// This machine's.
pub struct HostLoops {
    control_path: PathBuf,
    folders: Vec<PathBuf>,
    /// The one that had the last node: tried first.
    folder: AtomicUsize,
    sysfs: Tree,
    control: OnceLock<File>,
    supported: OnceLock<Result<(), Errno>>,
}

impl HostLoops {
    /// The usual paths: ueventd makes `/dev/block/loopN`, devtmpfs `/dev/loopN`.
    pub fn new() -> HostLoops {
        HostLoops::at("/dev/loop-control", ["/dev/block", "/dev"])
    }

    /// Other paths: of loop-control, and of the folders with nodes in the order to try them.
    pub fn at<P: Into<PathBuf>>(
        control: impl Into<PathBuf>,
        folders: impl IntoIterator<Item = P>,
    ) -> HostLoops {
        HostLoops {
            control_path: control.into(),
            folders: folders.into_iter().map(Into::into).collect(),
            folder: AtomicUsize::new(0),
            sysfs: Tree::system(),
            control: OnceLock::new(),
            supported: OnceLock::new(),
        }
    }

    fn control(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(control) = self.control.get() {
            return Ok(control.as_fd());
        }
        let control = open_node(&self.control_path, OFlag::O_RDWR)?;
        // Where two threads open it at once the second one's is closed again.
        Ok(self.control.get_or_init(|| control).as_fd())
    }

    fn open_now(&self, name: &str, flags: OFlag) -> Result<Node, Errno> {
        let count = self.folders.len();
        let last = self.folder.load(Ordering::Relaxed);
        for index in (last..count).chain(0..last) {
            let path = self.folders[index].join(name);
            match open_node(&path, flags) {
                Ok(file) => {
                    self.folder.store(index, Ordering::Relaxed);
                    return Ok(Node { file, path });
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::ENOENT)
    }
}

impl Default for HostLoops {
    fn default() -> HostLoops {
        HostLoops::new()
    }
}

fn open_node(path: &Path, flags: OFlag) -> Result<File, Errno> {
    // An OwnedFd with nix 0.31, a descriptor number that is ours with 0.29.
    Ok(File::from(open(
        path,
        flags | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?))
}

impl Loops for HostLoops {
    fn prepare(&self) -> Result<(), Errno> {
        self.control().map(drop)
    }

    fn add(&self, number: u32) -> Result<(), Errno> {
        uapi::loops::add(self.control()?, number)
    }

    fn free_number(&self) -> Result<u32, Errno> {
        uapi::loops::free_number(self.control()?)
    }

    fn open(
        &self,
        number: u32,
        mode: NodeMode,
        wait: Duration,
    ) -> Result<Box<dyn LoopDevice>, Errno> {
        let flags = match mode {
            NodeMode::ReadOnly => OFlag::O_RDONLY,
            NodeMode::ReadWrite => OFlag::O_RDWR,
        };
        let name = format!("loop{number}");
        let mut pause = Duration::from_millis(1);
        let start = Instant::now();
        loop {
            match self.open_now(&name, flags) {
                Err(Errno::ENOENT) if start.elapsed() < wait => {}
                result => return Ok(Box::new(result?)),
            }
            self.pause(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn configure_supported(&self, device: &dyn LoopDevice) -> Result<(), Errno> {
        if let Some(known) = self.supported.get() {
            return *known;
        }
        let answer = device.probe_configure();
        if matches!(answer, Ok(()) | Err(Errno::EINVAL | Errno::ENOTTY)) {
            // Anything else says nothing of the kernel.
            let _ = self.supported.set(answer);
        }
        answer
    }

    fn configure_known(&self) -> Option<bool> {
        self.supported.get().map(Result::is_ok)
    }

    fn exists(&self, number: u32) -> bool {
        self.sysfs.exists(&format!("/sys/block/loop{number}"))
    }

    fn is_bound(&self, number: u32) -> bool {
        // The folder is there from bind to unbind (loop_sysfs_init, loop_sysfs_exit). Not by
        // /sys/block: following its link doubles the time.
        self.sysfs
            .exists(&format!("/sys/devices/virtual/block/loop{number}/loop"))
    }

    fn bound_numbers(&self) -> io::Result<Vec<u32>> {
        let mut numbers: Vec<u32> = self
            .sysfs
            .list("/sys/block")?
            .iter()
            .filter_map(|name| name.strip_prefix("loop")?.parse().ok())
            .filter(|&number| self.is_bound(number))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn device_number(&self, _number: u32, node: BorrowedFd<'_>) -> Result<DeviceNumber, Errno> {
        let node = node.try_clone_to_owned().map_err(errno)?;
        DeviceNumber::of(&File::from(node))
    }

    fn backing_file(&self, number: u32) -> io::Result<String> {
        let path = format!("/sys/block/loop{number}/loop/backing_file");
        self.sysfs.read(&path)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// An open node.
struct Node {
    file: File,
    path: PathBuf,
}

impl LoopDevice for Node {
    fn node(&self) -> &Path {
        &self.path
    }

    fn probe_configure(&self) -> Result<(), Errno> {
        uapi::loops::probe_configure(self.file.as_fd())
    }

    fn configure(&self, file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno> {
        uapi::loops::configure(self.file.as_fd(), file, &setup.request())
    }

    fn bind(&self, file: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno> {
        classic::bind(self.file.as_fd(), file, setup)
    }

    fn status(&self) -> Result<Status, Errno> {
        let info = uapi::loops::status(self.file.as_fd())?;
        Ok(Status {
            number: info.lo_number,
            offset: Bytes(info.lo_offset),
            size_limit: Bytes(info.lo_sizelimit),
            read_only: info.lo_flags & LO_FLAGS_READ_ONLY != 0,
            autoclear: info.lo_flags & LO_FLAGS_AUTOCLEAR != 0,
            direct_io: info.lo_flags & LO_FLAGS_DIRECT_IO != 0,
            tag: info.file_name(),
        })
    }

    fn block_size(&self) -> Result<u32, Errno> {
        uapi::block::logical_block_size(self.file.as_fd())
    }

    fn size(&self) -> Result<Bytes, Errno> {
        uapi::block::size(self.file.as_fd()).map(Bytes)
    }

    fn set_read_ahead(&self, length: Sectors) -> Result<(), Errno> {
        let sectors = u32::try_from(length.0).map_err(|_| Errno::EINVAL)?;
        uapi::block::set_read_ahead(self.file.as_fd(), sectors)
    }

    fn clear(&self) -> Result<(), Errno> {
        uapi::loops::clear(self.file.as_fd())
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        self.file.into()
    }
}
