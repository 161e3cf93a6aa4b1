//! A mount namespace of a case's own, with a folder of all mounts; nothing in it outlives the case.

use anyhow::{ensure, Context, Result};
use apexgen::{ApexBuilder, Key, Signing};
use blockd::device::loops::HostLoops;
use blockd::device::mapper::{HostMapper, Mapper};
use blockd::images::apex::Contents;
use blockd::images::facts::FileFacts;
use blockd::images::{
    ActivateItem, ActivateRequest, AttachItem, AttachRequest, FileSource, Images, Numbers, Start,
};
use blockd::units::Bytes;
use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use super::support::text;

/// Numbers of loop devices, above those of the other cases.
static NUMBERS: AtomicU32 = AtomicU32::new(5000);
/// How long the kernel may take to let devices go.
const RELEASE: Duration = Duration::from_secs(10);

/// The case's surroundings.
pub struct Place {
    prefix: String,
    first: u32,
    folder: TempDir,
    pub root: PathBuf,
    pub images: Images,
}

/// A loop device that plays a disk.
pub struct Disk {
    pub node: PathBuf,
    _lease: OwnedFd,
}

impl Place {
    /// Runs `case` in a thread with a mount namespace of its own.
    pub fn run(name: &'static str, case: fn(&Place) -> Result<()>) -> Result<()> {
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none = None::<&str>;
            let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, flags, none)?;
            let place = Place::new(name)?;
            case(&place)
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the case panicked; see above")))
    }

    fn new(name: &str) -> Result<Place> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().canonicalize()?.join("apex");
        std::fs::create_dir(&root)?;
        let first = NUMBERS.fetch_add(64, Ordering::Relaxed);
        let place = Place {
            prefix: format!("test{}.{name}", std::process::id()),
            first,
            images: Images::with(HostLoops::new(), Numbers::From(first)).with_apex_root(&root),
            folder,
            root,
        };
        place.tmpfs(&place.root)?;
        Ok(place)
    }

    /// Mounts a tmpfs.
    pub fn tmpfs(&self, path: &Path) -> Result<()> {
        let flags = MsFlags::empty();
        Ok(mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            flags,
            None::<&str>,
        )?)
    }

    /// Another process's view: it knows only the folder.
    pub fn another(&self) -> Images {
        Images::with(HostLoops::new(), Numbers::From(self.first)).with_apex_root(&self.root)
    }

    /// A package name that is this case's.
    pub fn name(&self, short: &str) -> String {
        format!("{}.{short}", self.prefix)
    }

    /// A path outside the folder of all mounts.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an archive.
    pub fn archive(&self, file: &str, builder: ApexBuilder) -> Result<PathBuf> {
        let path = self.path(file);
        builder.write(&path)?;
        Ok(path)
    }

    /// Writes an APEX with an EROFS payload of these files.
    pub fn apex(
        &self,
        short: &str,
        version: u64,
        files: &[(&str, &[u8])],
        signing: &Signing,
    ) -> Result<PathBuf> {
        let builder = ApexBuilder::new(&self.name(short), version).mountable(files, signing);
        self.archive(&format!("{short}.apex"), builder)
    }

    /// The same, of whole sectors: its comment is as long as that takes.
    pub fn apex_of_sectors(
        &self,
        short: &str,
        version: u64,
        files: &[(&str, &[u8])],
        signing: &Signing,
    ) -> Result<PathBuf> {
        let make = || ApexBuilder::new(&self.name(short), version).mountable(files, signing);
        let length = make().build()?.0.len();
        let comment = vec![b' '; length.next_multiple_of(512) - length];
        self.archive(&format!("{short}.disk"), make().comment(comment))
    }

    /// A disk with the contents of a file.
    pub fn disk(&self, path: &Path) -> Result<Disk> {
        let request = AttachRequest {
            start: Start::At(Bytes(0)),
            block_size: Some(512),
            ..AttachRequest::apex(&self.name("disk"))
        };
        let file = File::open(path)?;
        let attached = self
            .images
            .attach(&AttachItem { file, request })
            .map_err(text)?;
        Ok(Disk {
            node: attached.node,
            _lease: attached.device,
        })
    }

    /// An item that trusts the test key and is checked.
    pub fn item(&self, path: &Path, name: &str) -> Result<ActivateItem> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(ActivateItem {
            file,
            request: ActivateRequest {
                name: name.to_owned(),
                trusted_key: Some(Key::Rsa2048.blob()),
                verity: true,
            },
            hash_tree: None,
        })
    }

    /// Neither loop devices nor devices of device-mapper of this case are left.
    pub fn no_devices(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = self.devices()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < RELEASE, "left: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// No mount, folder or device of this case is left.
    pub fn is_clean(&self) -> Result<()> {
        let folders: Vec<PathBuf> = std::fs::read_dir(&self.root)?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<std::io::Result<_>>()?;
        ensure!(folders.is_empty(), "left: {folders:?}");
        self.no_devices()
    }

    fn devices(&self) -> Result<Vec<String>> {
        let loops = self.images.list(false).map_err(text)?.devices;
        let mut left: Vec<String> = loops
            .into_iter()
            .filter(|device| device.name.contains(&self.prefix))
            .map(|device| format!("loop{} {}", device.number, device.name))
            .collect();
        let mapper = HostMapper::new();
        if mapper.prepare().is_ok() {
            let mapped = mapper.list()?.into_iter().map(|(name, _)| name);
            left.extend(mapped.filter(|name| name.contains(&self.prefix)));
        }
        Ok(left)
    }
}

/// An item of a file by its own name and key.
pub fn opened(path: &Path) -> Result<ActivateItem> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let size = FileFacts::read(&file).map_err(text)?.size;
    let contents = Contents::read(&FileSource::new(&file, size)).map_err(text)?;
    Ok(ActivateItem {
        file,
        request: ActivateRequest {
            name: contents.manifest.name,
            trusted_key: contents.public_key,
            verity: true,
        },
        hash_tree: None,
    })
}
