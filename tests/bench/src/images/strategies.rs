//! What others do, step by step: the floor, losetup, the classic sequence, apexd's.

use super::files::Image;
use crate::sys::{self, Window};
use anyhow::{ensure, Context, Result};
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The block size that apexd asks for.
pub const BLOCK_SIZE: u32 = 4096;
/// apexd's read-ahead, KiB.
const READ_AHEAD_KIB: &str = "128";
/// apexd gives up after this (apexd_loop.cpp, CreateAndConfigureLoopDevice), having slept between
/// two tries for …
const PATIENCE: Duration = Duration::from_secs(1);
/// … this.
const PAUSE: Duration = Duration::from_millis(5);
/// First device number of the floor's own.
const FLOOR_NUMBERS: u32 = 3000;

/// An attached device; it goes when this is dropped.
#[derive(Debug)]
pub enum Held {
    /// An open device with autoclear.
    Lease(#[allow(dead_code)] OwnedFd),
    /// A device that stays without an opener: this node is cleared.
    Node(PathBuf),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Node(node) = self {
            if let Ok(device) = File::open(&*node) {
                let _ = sys::clear(&device);
            }
        }
    }
}

/// One way to attach files.
pub trait Strategy {
    /// Its name in the rows.
    fn name(&self) -> &'static str;
    /// How it is reached, where it is a service.
    fn over(&self) -> Option<&'static str> {
        None
    }
    /// Threads that attach.
    fn threads(&self) -> usize {
        1
    }
    /// Whether a round takes seconds: then there are fewer.
    fn slow(&self) -> bool {
        true
    }
    /// Attaches every file.
    ///
    /// # Errors
    /// One of them could not be.
    fn attach(&self, images: &[Image]) -> Result<Vec<Held>>;
}

/// The machine's loop devices, by the node folder that there is.
#[derive(Debug)]
pub struct Devices {
    control: File,
    folder: &'static str,
}

impl Devices {
    /// Opens loop-control.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open() -> Result<Devices> {
        let folder = ["/dev", "/dev/block"]
            .into_iter()
            .find(|folder| PathBuf::from(folder).join("loop0").exists());
        Ok(Devices {
            control: File::open("/dev/loop-control").context("/dev/loop-control")?,
            folder: folder.unwrap_or("/dev"),
        })
    }

    /// Makes the devices that the floor takes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn prepare(&self, count: usize) -> Result<()> {
        (0..count).try_for_each(|i| Ok(sys::add(&self.control, FLOOR_NUMBERS + i as u32)?))
    }

    fn node(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}/loop{number}", self.folder))
    }

    /// A free device, open.
    fn free(&self, write: bool) -> Result<(u32, File)> {
        let number = sys::get_free(&self.control).context("LOOP_CTL_GET_FREE")?;
        let node = self.node(number);
        let device = OpenOptions::new().read(true).write(write).open(&node);
        Ok((number, device.with_context(|| node.display().to_string())?))
    }
}

/// LOOP_CONFIGURE on devices that are there already, with nothing around it. Nobody can be faster.
pub struct Floor<'a>(pub &'a Devices);

impl Strategy for Floor<'_> {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn slow(&self) -> bool {
        false
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        let one = |(number, image): (u32, &Image)| -> Result<Held> {
            let device = File::open(self.0.node(number))?;
            let file = File::open(&image.path)?;
            let flags = sys::READ_ONLY | sys::AUTOCLEAR | sys::DIRECT_IO;
            let window = window(image, flags);
            sys::configure(&device, &file, BLOCK_SIZE, window).context("LOOP_CONFIGURE")?;
            Ok(Held::Lease(device.into()))
        };
        (FLOOR_NUMBERS..).zip(images).map(one).collect()
    }
}

fn window(image: &Image, flags: u32) -> Window {
    Window {
        offset: image.offset,
        length: image.length,
        flags,
    }
}

/// util-linux' losetup, one process a file.
pub struct Losetup;

impl Losetup {
    /// Whether it is there.
    pub fn found() -> bool {
        let version = Command::new("losetup").arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }
}

impl Strategy for Losetup {
    fn name(&self) -> &'static str {
        "losetup"
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        let one = |image: &Image| -> Result<Held> {
            let output = Command::new("losetup")
                .args(["--show", "-f", "-r", "--direct-io=on", "-b", "4096"])
                .args(["-o", &image.offset.to_string()])
                .args(["--sizelimit", &image.length.to_string()])
                .arg(&image.path)
                .stdin(Stdio::null())
                .output()?;
            let node = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                output.status.success() && !node.is_empty(),
                "losetup: {why}"
            );
            Ok(Held::Node(node.into()))
        };
        images.iter().map(one).collect()
    }
}

/// Runs `one` for each image on `threads` threads, from a shared queue as apexd does.
fn on_threads<F>(threads: usize, images: &[Image], one: F) -> Result<Vec<Held>>
where
    F: Fn(&Image) -> Result<Held> + Sync,
{
    let next = AtomicUsize::new(0);
    let held = Mutex::new(Vec::with_capacity(images.len()));
    let work = || -> Result<()> {
        while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
            let device = one(image)?;
            held.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(device);
        }
        Ok(())
    };
    if threads == 1 {
        work()?;
    } else {
        thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let results = all.into_iter().map(|thread| thread.join());
            results
                .map(|result| result.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
                .collect::<Result<Vec<()>>>()
        })?;
    }
    Ok(held.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Before LOOP_CONFIGURE: one call to bind, then one for each attribute.
pub struct Classic<'a> {
    /// The devices.
    pub devices: &'a Devices,
    /// Threads.
    pub threads: usize,
}

impl Classic<'_> {
    fn bind(&self, image: &Image) -> Result<Held> {
        let file = File::open(&image.path)?;
        let begin = Instant::now();
        let device = loop {
            let (_, device) = self.devices.free(true)?;
            match sys::set_fd(&device, &file) {
                Ok(()) => break device,
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
                // Another thread was faster.
                Err(_) => {}
            }
        };
        let window = window(image, sys::READ_ONLY | sys::AUTOCLEAR);
        sys::set_status(&device, window).context("LOOP_SET_STATUS64")?;
        sys::set_block_size(&device, BLOCK_SIZE).context("LOOP_SET_BLOCK_SIZE")?;
        // tmpfs and the like refuse it, and are attached without.
        let _ = sys::set_direct_io(&device);
        Ok(Held::Lease(device.into()))
    }
}

impl Strategy for Classic<'_> {
    fn name(&self) -> &'static str {
        "classic"
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        on_threads(self.threads, images, |image| self.bind(image))
    }
}

/// What Android 16's apexd does: LOOP_CONFIGURE under a mutex, then three writes to sysfs.
pub struct Apexd<'a> {
    /// The devices.
    pub devices: &'a Devices,
    /// Threads; apexd has one for each APEX.
    pub threads: usize,
    /// Around getting a number and configuring.
    pub mutex: Mutex<()>,
}

impl Apexd<'_> {
    fn bind(&self, image: &Image) -> Result<Held> {
        let begin = Instant::now();
        let (number, device) = loop {
            match self.configure(image) {
                Ok(done) => break done,
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(PAUSE),
            }
        };
        let queue = PathBuf::from(format!("/sys/block/loop{number}/queue"));
        let depth = fs::read_to_string(queue.join("nr_requests"))?;
        // apexd writes the depth of the disk below; here what is there already, which costs the
        // same: the kernel freezes the queue before it looks.
        fs::write(queue.join("scheduler"), "none").context("scheduler")?;
        fs::write(queue.join("nr_requests"), depth.trim()).context("nr_requests")?;
        fs::write(queue.join("read_ahead_kb"), READ_AHEAD_KIB).context("read_ahead_kb")?;
        Ok(Held::Lease(device.into()))
    }

    fn configure(&self, image: &Image) -> Result<(u32, File)> {
        let _guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, device) = self.devices.free(true)?;
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&image.path);
        let file = direct.or_else(|_| File::open(&image.path))?;
        let window = window(image, sys::AUTOCLEAR);
        sys::configure(&device, &file, BLOCK_SIZE, window)?;
        Ok((number, device))
    }
}

impl Strategy for Apexd<'_> {
    fn name(&self) -> &'static str {
        "apexd"
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        on_threads(self.threads, images, |image| self.bind(image))
    }
}
