//! What the machine had before, what is left after, and devices of somebody else's between ours.

use crate::sys::{self, Window};
use anyhow::{ensure, Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel closes a killed client's descriptors, and the service those of a lost connection, in
/// their own time.
const RELEASE: Duration = Duration::from_secs(5);
/// First number that the service takes for itself: the sentinels stand among those.
const FIRST_NUMBER: u32 = 256;
/// Bytes of a sentinel's file.
const SENTINEL_BYTES: usize = 65536;

/// What there is before, as far as it is not told by the files.
#[derive(Debug)]
pub struct Machine {
    folder: PathBuf,
    pid: Option<u32>,
    descriptors: usize,
}

/// What is there of our files.
#[derive(Debug)]
pub struct Left {
    /// Loop devices.
    pub loops: Vec<String>,
    /// Device-mapper devices above them.
    pub mapped: usize,
    /// Mounts of either, or of a file itself.
    pub mounts: usize,
    /// Descriptors of the service that were not there before.
    pub descriptors: usize,
}

impl Left {
    /// Takes away what the service forgot: only the count of it is wanted.
    pub fn clear(&self) {
        for name in &self.loops {
            for folder in ["/dev/block", "/dev"] {
                if let Ok(device) = File::open(Path::new(folder).join(name)) {
                    let _ = sys::clear(&device);
                }
            }
        }
    }

    fn is_nothing(&self) -> bool {
        self.loops.is_empty() && self.mapped + self.mounts + self.descriptors == 0
    }
}

impl Machine {
    /// Looks. Ours is what is made of files in `folder`; `pid` is the service.
    ///
    /// # Errors
    /// procfs cannot be read.
    pub fn look(folder: &Path, pid: Option<u32>) -> Result<Machine> {
        Ok(Machine {
            folder: fs::canonicalize(folder)?,
            pid,
            descriptors: descriptors(pid)?,
        })
    }

    /// What is left, when the kernel had its time to let go.
    ///
    /// # Errors
    /// sysfs or procfs cannot be read.
    pub fn left(&self) -> Result<Left> {
        let begin = Instant::now();
        loop {
            let left = self.left_now()?;
            if left.is_nothing() || begin.elapsed() > RELEASE {
                return Ok(left);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn left_now(&self) -> Result<Left> {
        let (mut loops, mut mapped) = (Vec::new(), Vec::new());
        for entry in fs::read_dir("/sys/block").context("/sys/block")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("loop") && self.is_ours(&name) {
                loops.push(name);
            } else if name.starts_with("dm-") && self.is_ours(&name) {
                mapped.push(name);
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let ours = |line: &&str| {
            // `… - erofs /dev/block/dm-3 ro,…`
            let source = line
                .rsplit_once(" - ")
                .and_then(|(_, s)| s.split(' ').nth(1));
            let source = Path::new(source.unwrap_or_default());
            let name = source.file_name().unwrap_or_default().to_string_lossy();
            source.starts_with(&self.folder)
                || loops.iter().chain(&mapped).any(|device| *device == name)
        };
        let mounts = mounts.lines().filter(ours).count();
        Ok(Left {
            loops,
            mapped: mapped.len(),
            mounts,
            descriptors: descriptors(self.pid)?.saturating_sub(self.descriptors),
        })
    }

    /// Whether a block device stands on a file of ours.
    fn is_ours(&self, name: &str) -> bool {
        let sysfs = Path::new("/sys/block").join(name);
        if let Ok(file) = fs::read_to_string(sysfs.join("loop/backing_file")) {
            return Path::new(&file).starts_with(&self.folder);
        }
        let below = fs::read_dir(sysfs.join("slaves")).into_iter().flatten();
        below
            .flatten()
            .any(|entry| self.is_ours(&entry.file_name().to_string_lossy()))
    }
}

fn descriptors(pid: Option<u32>) -> Result<usize> {
    match pid {
        None => Ok(0),
        Some(pid) => Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count()),
    }
}

/// A device of somebody else's, without autoclear.
#[derive(Debug)]
pub struct Sentinel {
    number: u32,
    node: PathBuf,
    file: PathBuf,
    before: Vec<String>,
}

impl Sentinel {
    /// Binds the `place`th file in `folder` to the first free device among the service's numbers.
    ///
    /// # Errors
    /// None could be bound.
    pub fn new(folder: &Path, place: usize) -> Result<Sentinel> {
        let control = File::open("/dev/loop-control").context("/dev/loop-control")?;
        let name = format!("blockd-sentinel-{}-{place}", std::process::id());
        let file = folder.join(name);
        fs::write(&file, vec![place as u8 + 1; SENTINEL_BYTES])?;
        for number in FIRST_NUMBER.. {
            sys::add(&control, number).context("LOOP_CTL_ADD")?;
            let node = ["/dev/block", "/dev"]
                .map(|folder| PathBuf::from(format!("{folder}/loop{number}")))
                .into_iter()
                .find(|node| node.exists());
            // ueventd may be on its way.
            let Some(node) = node else { continue };
            let mut sentinel = Sentinel {
                number,
                node,
                file: file.clone(),
                before: Vec::new(),
            };
            if sentinel.bind().is_ok() {
                sentinel.before = sentinel.state();
                return Ok(sentinel);
            }
            std::mem::forget(sentinel);
            ensure!(number < FIRST_NUMBER + 1000, "no free device");
        }
        unreachable!("the numbers do not end")
    }

    fn bind(&self) -> Result<()> {
        let device = File::open(&self.node)?;
        let window = Window {
            offset: 0,
            length: SENTINEL_BYTES as u64,
            flags: sys::READ_ONLY,
        };
        sys::configure(&device, &File::open(&self.file)?, 512, window)?;
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What sysfs says of it, with the sequence number that each bind raises, and its contents.
    fn state(&self) -> Vec<String> {
        let read = |attribute: &str| {
            fs::read_to_string(format!("/sys/block/loop{}/{attribute}", self.number))
                .unwrap_or_else(|error| error.to_string())
        };
        let attributes = [
            "loop/backing_file",
            "loop/offset",
            "loop/sizelimit",
            "loop/autoclear",
            "loop/dio",
            "size",
            "ro",
            "queue/logical_block_size",
            "queue/read_ahead_kb",
            "diskseq",
        ];
        let mut state: Vec<String> = attributes.map(read).into();
        let contents = fs::read(&self.node);
        state.push(contents.map_or_else(|e| e.to_string(), |b| format!("{b:?}")));
        state
    }

    /// Whether it is what it was.
    pub fn untouched(&self) -> bool {
        self.state() == self.before
    }

    /// Does what nobody may do.
    ///
    /// # Errors
    /// It could not be.
    pub fn rebind(&self) -> Result<()> {
        sys::clear(&File::open(&self.node)?)?;
        self.bind()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Ok(device) = File::open(&self.node) {
            let _ = sys::clear(&device);
        }
        let _ = fs::remove_file(&self.file);
    }
}
