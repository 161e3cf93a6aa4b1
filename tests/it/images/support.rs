//! What the cases share: names, numbers, and the check that nothing stays behind.

use anyhow::{ensure, Context, Result};
use blockd::device::loops::HostLoops;
use blockd::images::{AttachItem, AttachRequest, Attached, Images, Numbers, Start};
use blockd::units::Bytes;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Own numbers begin here: what is below belongs to the machine.
const FIRST_NUMBER: u32 = 1000;
/// Numbers of one case.
const NUMBERS_PER_CASE: u32 = 64;
/// How long the kernel may take to let a device go: another process may hold a copy of the
/// descriptor between fork and exec.
const RELEASE: Duration = Duration::from_secs(5);

/// One case's surroundings. What it attached and left is detached when it is dropped.
pub struct Bench {
    name: String,
    base: u32,
    folder: TempDir,
    pub images: Images,
}

impl Bench {
    /// For the case called `name`; `place` keeps the numbers of the cases apart.
    pub fn new(name: &str, place: u32) -> Result<Bench> {
        let base = FIRST_NUMBER + place * NUMBERS_PER_CASE;
        Ok(Bench {
            name: format!("blockd-test-{}-{name}", std::process::id()),
            base,
            folder: tempfile::tempdir()?,
            images: Images::with(HostLoops::new(), Numbers::From(base)),
        })
    }

    /// The first number of this case.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// A path in the case's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The name to attach under; it marks the device as this case's.
    pub fn tag(&self, item: impl std::fmt::Display) -> String {
        format!("{}-{item}", self.name)
    }

    /// A request for an APEX payload.
    pub fn apex(&self, item: impl std::fmt::Display) -> AttachRequest {
        AttachRequest::apex(&self.tag(item))
    }

    /// A request for a file from `offset`.
    pub fn part(&self, item: impl std::fmt::Display, offset: u64) -> AttachRequest {
        AttachRequest {
            start: Start::At(Bytes(offset)),
            ..self.apex(item)
        }
    }

    /// A file with contents.
    pub fn file(&self, name: &str, contents: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, contents)?;
        Ok(path)
    }

    /// Attaches one file. Only the lease is kept.
    pub fn attach(&self, path: &Path, request: AttachRequest) -> Result<Attached> {
        self.images.attach(&item(path, request)?).map_err(text)
    }

    /// The numbers of what this case has attached.
    pub fn attached(&self) -> Result<Vec<u32>> {
        let listing = self.images.list(false).map_err(text)?;
        let ours = listing.devices.iter();
        let ours = ours.filter(|d| d.name.starts_with(&self.name));
        Ok(ours.map(|d| d.number).collect())
    }

    /// Fails where something of this case is still attached.
    pub fn is_clean(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = self.attached()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < RELEASE, "still attached: loops {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for number in self.attached().unwrap_or_default() {
            let _ = self.images.detach(number);
        }
    }
}

/// An item of a file that is opened for reading.
pub fn item(path: &Path, request: AttachRequest) -> Result<AttachItem> {
    let file = File::open(path).with_context(|| format!("{}", path.display()))?;
    Ok(AttachItem { file, request })
}

/// A failure with all that it says.
pub fn text(failure: blockd::error::Failure) -> anyhow::Error {
    anyhow::anyhow!("{} at {}: {failure}", failure.code, failure.step)
}

/// A number or text that sysfs shows of a loop device: another witness than the ioctls.
pub fn sysfs(number: u32, attribute: &str) -> Result<String> {
    let path = format!("/sys/block/loop{number}/{attribute}");
    let value = fs::read_to_string(&path).with_context(|| path.clone())?;
    Ok(value.trim().to_owned())
}

/// Compares what sysfs shows with what was asked for.
pub fn check_sysfs(attached: &Attached, want: &[(&str, &str)]) -> Result<()> {
    for (attribute, want) in want {
        let value = sysfs(attached.number, attribute)?;
        ensure!(value == *want, "{attribute} is {value}, not {want}");
    }
    Ok(())
}

/// All bytes of the device, read through the lease.
pub fn contents(attached: &Attached) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let device = File::from(attached.device.try_clone()?);
    let mut bytes = vec![0; attached.plan.setup.size_limit.0 as usize];
    device.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
