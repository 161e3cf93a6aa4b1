//! Ours: the library in process, and the service as clients reach it.

use super::files::Image;
use super::strategies::{Held, Strategy};
use crate::sys;
use anyhow::{anyhow, ensure, Context, Result};
use blockd::aidl::AttachRequest::AttachRequest;
use blockd::aidl::IImageDevices::IImageDevices;
use blockd::client::{self, Client, Place};
use blockd::device::loops::HostLoops;
use blockd::images::plan;
use blockd::images::{self, AttachItem, Images, Numbers, MAX_ITEMS};
use blockd::service::ipc::{self, Strong};
use nix::errno::Errno;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// First device number of the library's own here.
const LOCAL_NUMBERS: u32 = 3400;
/// The same on a kernel without LOOP_CONFIGURE.
const RESCUE_NUMBERS: u32 = 3700;
/// How long a service may take to be there.
const START: Duration = Duration::from_secs(30);

/// The library, in this process.
pub struct Local(Images);

impl Local {
    /// With `count` devices made ahead.
    ///
    /// # Errors
    /// They could not be made.
    pub fn new(count: usize) -> Result<Local> {
        Local::from(LOCAL_NUMBERS, count)
    }

    fn from(number: u32, count: usize) -> Result<Local> {
        let images = Images::with(HostLoops::new(), Numbers::From(number));
        images.precreate(count).map_err(|e| anyhow!("{e}"))?;
        Ok(Local(images))
    }

    /// Attaches them, each by the way that is measured.
    fn attach_by(&self, way: plan::Strategy, images: &[Image]) -> Result<Vec<Held>> {
        let mut held = Vec::with_capacity(images.len());
        for (call, images) in images.chunks(MAX_ITEMS).enumerate() {
            let item = |(number, image): (usize, &Image)| -> Result<AttachItem> {
                Ok(AttachItem {
                    file: File::open(&image.path)?,
                    request: images::AttachRequest::apex(&format!("bench-{call}-{number}")),
                })
            };
            let items = images.iter().enumerate().map(item);
            let items = items.collect::<Result<Vec<_>>>()?;
            for result in self.0.attach_all(&items).map_err(|e| anyhow!("{e}"))? {
                let attached = result.map_err(|e| anyhow!("{e}"))?;
                let strategy = attached.plan.strategy;
                ensure!(strategy == way, "attached by {}", strategy.name());
                held.push(Held::Lease(attached.device));
            }
        }
        Ok(held)
    }
}

/// The library where LOOP_CONFIGURE is missing.
pub struct Rescue(Local);

impl Rescue {
    /// With `count` devices made ahead.
    ///
    /// # Errors
    /// They could not be made.
    pub fn new(count: usize) -> Result<Rescue> {
        Ok(Rescue(Local::from(RESCUE_NUMBERS, count)?))
    }
}

impl Strategy for Rescue {
    fn name(&self) -> &'static str {
        "rescue"
    }

    /// The call's own, a thread for each item.
    fn threads(&self) -> usize {
        MAX_ITEMS
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        let run = || {
            sys::without_ioctls(&[(sys::LOOP_CONFIGURE, Errno::EINVAL)])?;
            self.0.attach_by(plan::Strategy::SetFd, images)
        };
        let joined = thread::scope(|scope| scope.spawn(run).join());
        joined.unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
    }
}

impl Strategy for Local {
    fn name(&self) -> &'static str {
        "blockd-local"
    }

    fn slow(&self) -> bool {
        false
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        self.attach_by(plan::Strategy::Configure, images)
    }
}

/// blockd as a process of its own, on a socket; it ends when this is dropped.
#[derive(Debug)]
pub struct Daemon(Child);

impl Daemon {
    /// Starts `program` on `socket`; what it logs goes nowhere.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path, socket: &Path) -> Result<Daemon> {
        let child = Command::new(program)
            .arg("--serve")
            .arg(format!("unix:{}", socket.display()))
            .args(["--interfaces", "images"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Daemon(
            child.with_context(|| program.display().to_string())?,
        ))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only if it ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The service.
pub struct Service {
    _client: Client,
    images: Strong<dyn IImageDevices>,
    over: &'static str,
}

impl Service {
    /// Connects, and waits until it is there.
    ///
    /// # Errors
    /// It did not come.
    pub fn connect(place: &Place) -> Result<Service> {
        let client = Client::connect(place, START, || unreachable!("not local"));
        let client = client.map_err(|e| anyhow!("{e}"))?;
        Ok(Service {
            images: client.images().map_err(|e| anyhow!("{e}"))?,
            _client: client,
            over: match place {
                Place::Binder => "binder",
                _ => "socket",
            },
        })
    }
}

impl Strategy for Service {
    fn name(&self) -> &'static str {
        "blockd-service"
    }

    fn over(&self) -> Option<&'static str> {
        Some(self.over)
    }

    fn slow(&self) -> bool {
        false
    }

    fn attach(&self, images: &[Image]) -> Result<Vec<Held>> {
        let request = |(number, image): (usize, &Image)| -> Result<AttachRequest> {
            Ok(AttachRequest {
                file: Some(ipc::parcel_fd(File::open(&image.path)?.into())),
                name: format!("bench-{number}"),
                ..AttachRequest::default()
            })
        };
        let requests = images.iter().enumerate().map(request);
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let results = client::attach_all(&*self.images, requests);
        let results = results.map_err(|e| anyhow!("{}", ipc::explain(&e).2))?;
        let lease = |result: blockd::aidl::AttachResult::AttachResult| {
            let device = result
                .device
                .ok_or_else(|| anyhow!("{}: {:?}", result.error.0, result.message))?;
            Ok(Held::Lease(device.into()))
        };
        results.into_iter().map(lease).collect()
    }
}
