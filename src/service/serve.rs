//! Getting to be reachable: waiting for the binder node and the service manager, registering,
//! serving. Or: listening on a Unix socket.

use crate::device::Storage;
use crate::images::Images;
use crate::reset::Reset;
use crate::service::access::{Gate, Interface};
use crate::service::config::{Config, Endpoint};
use crate::service::diagnostics::DiagnosticsService;
use crate::service::images::ImageService;
use crate::service::ipc::{self, SpIBinder};
use crate::service::last_report::LastReport;
use crate::service::reset::ResetService;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Threads of the binder pool: one for each interface's long call, one to ask how it goes.
const THREADS: u32 = 4;
/// Waiting begins with this …
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … and doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the service works on.
pub struct Machine {
    /// Disks.
    pub storage: Arc<dyn Storage>,
    /// Loop devices.
    pub images: Arc<Images>,
    /// The folder that keeps the last report; `None` = it ends with the process.
    pub state: Option<PathBuf>,
}

/// The binder objects that `config` asks for, each with the name that it is registered under.
pub fn objects(config: &Config, machine: &Machine) -> Vec<(&'static str, SpIBinder)> {
    config
        .interfaces
        .iter()
        .map(|interface| {
            let gate = Gate::new(*interface, &config.allow_uids, &config.allow_domains);
            (interface.service_name(), object(*interface, gate, machine))
        })
        .collect()
}

fn object(interface: Interface, gate: Gate, machine: &Machine) -> SpIBinder {
    match interface {
        Interface::Reset => {
            let reset = Arc::new(Reset::new(Arc::clone(&machine.storage)));
            crate::new_binder!(
                crate::aidl::IFactoryReset::BnFactoryReset,
                ResetService::new(gate, reset, LastReport::open(machine.state.as_deref()))
            )
            .as_binder()
        }
        Interface::Images => crate::new_binder!(
            crate::aidl::IImageDevices::BnImageDevices,
            ImageService::new(gate, Arc::clone(&machine.images))
        )
        .as_binder(),
        Interface::Diagnostics => crate::new_binder!(
            crate::aidl::IDiagnostics::BnDiagnostics,
            DiagnosticsService::new(gate, Arc::clone(&machine.storage))
        )
        .as_binder(),
    }
}

/// Serves until the process ends.
///
/// # Errors
/// Only what no waiting mends: an endpoint that this build does not have, a socket path that
/// cannot be made.
pub fn run(config: &Config, machine: &Machine) -> Result<Infallible, String> {
    match &config.endpoint {
        Endpoint::Binder => run_binder(config, machine),
        Endpoint::Unix(path) => {
            let objects = objects(config, machine);
            prepare(config, machine);
            unix::run(config, path, objects)
        }
    }
}

/// What is worth doing ahead, once clients can call.
fn prepare(config: &Config, machine: &Machine) {
    if config.interfaces.contains(&Interface::Images) {
        machine.images.prepare();
    }
}

fn run_binder(config: &Config, machine: &Machine) -> ! {
    wait("the binder driver", || ipc::init(THREADS));
    for (name, object) in objects(config, machine) {
        wait(&format!("the service manager, to register {name}"), || {
            ipc::add_service(name, object.clone())
        });
        log::info!("registered {name}");
    }
    prepare(config, machine);
    ipc::join();
    // It returns only on an error of the driver; the kernel side is gone, init starts anew.
    log::error!("the binder thread pool has ended");
    std::process::exit(1);
}

/// Tries until it works. A line is logged when the waiting begins, when its reason changes and when
/// it ends; between two tries a change in /dev wakes at once.
fn wait(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut pause = FIRST_PAUSE;
    let mut last = String::new();
    loop {
        match attempt() {
            Ok(()) => {
                if !last.is_empty() {
                    log::info!("{what}: there now");
                }
                return;
            }
            Err(reason) => {
                if reason != last {
                    log::warn!("waiting for {what}: {reason}");
                    last = reason;
                }
                wait_for_change(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Sleeps for `pause`, or until something is created in /dev or /dev/binderfs.
fn wait_for_change(pause: Duration) {
    let woken = Inotify::init(InitFlags::IN_CLOEXEC).and_then(|inotify| {
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB;
        inotify.add_watch("/dev", flags)?;
        // Not there before binderfs is mounted.
        let _ = inotify.add_watch("/dev/binderfs", flags);
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        let millis = u16::try_from(pause.as_millis()).unwrap_or(u16::MAX);
        poll(&mut fds, PollTimeout::from(millis))
    });
    if woken.is_err() {
        std::thread::sleep(pause);
    }
}

/// The Unix socket: rsbinder's RPC, which libbinder_rs has no twin of.
#[cfg(not(soong))]
mod unix {
    use super::{Config, Gate, SpIBinder, THREADS};
    use nix::sys::stat::{umask, Mode};
    use rsbinder::rpc::{FileDescriptorTransportMode, PeerIdentity};
    use std::convert::Infallible;
    use std::path::Path;
    use std::time::Duration;

    /// A client that does not take a callback in this time loses its session.
    const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

    pub(super) fn server(
        config: &Config,
        path: &Path,
        objects: Vec<(&'static str, SpIBinder)>,
    ) -> Result<rsbinder::ServerGuard, String> {
        let fail = |error: rsbinder::StatusCode| format!("unix:{}: {error}", path.display());
        // Only this profile has callbacks outside of handlers, which progress needs.
        let uri = format!("unix://{}?profile=android13plus", path.display());
        let uri: rsbinder::Uri = uri
            .parse()
            .map_err(|e| format!("unix:{}: {e}", path.display()))?;
        let mut server = rsbinder::serve(uri).map_err(fail)?;
        for (name, object) in objects {
            server = server.add(name, object).map_err(fail)?;
        }
        let gates: Vec<Gate> = config
            .interfaces
            .iter()
            .map(|i| Gate::new(*i, &config.allow_uids, &config.allow_domains))
            .collect();
        // No window in which others could connect: the socket is made with mode 0600.
        let before = umask(Mode::from_bits_truncate(0o177));
        let guard = server
            .with(|options| {
                options.threads = Some(THREADS);
                options.reply_timeout = Some(REPLY_TIMEOUT);
                options.fd_modes = Some(vec![FileDescriptorTransportMode::Unix]);
                options.authorizer = Some(Box::new(move |peer| match peer {
                    PeerIdentity::Local { uid, .. } => gates.iter().any(|g| g.allows_uid(*uid)),
                    _ => false,
                }));
            })
            .spawn()
            .map_err(fail);
        umask(before);
        guard
    }

    pub(super) fn run(
        config: &Config,
        path: &Path,
        objects: Vec<(&'static str, SpIBinder)>,
    ) -> Result<Infallible, String> {
        let _guard = server(config, path, objects)?;
        log::info!("serving on {}", path.display());
        loop {
            std::thread::park();
        }
    }
}

/// A service on a Unix socket in threads of this process; it ends when this is dropped.
#[cfg(not(soong))]
pub struct Background {
    _guard: rsbinder::ServerGuard,
}

/// Serves on the socket of `config` in the background.
///
/// # Errors
/// An endpoint that is no socket, a path that cannot be made.
#[cfg(not(soong))]
pub fn spawn(config: &Config, machine: &Machine) -> Result<Background, String> {
    let Endpoint::Unix(path) = &config.endpoint else {
        return Err("only a Unix socket can be served in the background".to_owned());
    };
    let guard = unix::server(config, path, objects(config, machine))?;
    prepare(config, machine);
    Ok(Background { _guard: guard })
}

#[cfg(soong)]
mod unix {
    use super::{Config, SpIBinder};
    use std::convert::Infallible;
    use std::path::Path;

    pub(super) fn run(
        _config: &Config,
        _path: &Path,
        _objects: Vec<(&'static str, SpIBinder)>,
    ) -> Result<Infallible, String> {
        Err("--serve unix:PATH is not in builds by Soong; use --serve binder".to_owned())
    }
}
