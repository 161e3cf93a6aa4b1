//! The client's side: one way to reach the three interfaces, wherever they are served.

use crate::aidl::ActivateRequest::ActivateRequest;
use crate::aidl::ActivateResult::ActivateResult;
use crate::aidl::AttachRequest::AttachRequest;
use crate::aidl::AttachResult::AttachResult;
use crate::aidl::IDiagnostics::IDiagnostics;
use crate::aidl::IFactoryReset::IFactoryReset;
use crate::aidl::IImageDevices::{IImageDevices, MAX_ITEMS};
use crate::error::{Code, Failure, Result};
use crate::service::access::Interface;
use crate::service::config::{parse_endpoint, Config, Endpoint};
use crate::service::ipc::{self, BinderResult, FromIBinder, SpIBinder, Strong};
use crate::service::serve::{self, Machine};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Threads that take progress while a call waits for its answer.
const CALLBACK_THREADS: u32 = 1;
/// Between two looks for a service that is waited for.
const WAIT_PERIOD: Duration = Duration::from_millis(100);

/// Where the service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the service manager.
    Binder,
    /// On a Unix socket.
    Unix(PathBuf),
    /// In this process: the same code, with this process's rights.
    Local,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Place, String> {
        if text == "local" {
            return Ok(Place::Local);
        }
        match parse_endpoint(text) {
            Ok(Endpoint::Binder) => Ok(Place::Binder),
            Ok(Endpoint::Unix(path)) => Ok(Place::Unix(path)),
            Err(_) => Err("use binder, unix:/PATH or local".to_owned()),
        }
    }
}

/// A connection. What it gave stays usable when it is dropped, and a Unix socket's threads and
/// descriptors then stay for it: a process that goes on calls [`Client::close`].
pub struct Client {
    inner: Inner,
    wait: Duration,
}

enum Inner {
    Binder,
    #[cfg(not(soong))]
    Unix(Box<rsbinder::Client>, PathBuf),
    Local(Vec<(&'static str, SpIBinder)>),
}

fn no_service(message: String, remedy: &str) -> Failure {
    Failure::new(Code::NoService, "connect", message).remedy(remedy)
}

impl Client {
    /// Connects to `place`, waiting at most `wait` for it; `machine` is what [`Place::Local`]
    /// works on.
    ///
    /// # Errors
    /// `NO_SERVICE`, `UNSUPPORTED` where this build has no such connection.
    pub fn connect(
        place: &Place,
        wait: Duration,
        machine: impl FnOnce() -> Machine,
    ) -> Result<Client> {
        let inner = match place {
            Place::Binder => {
                retry(wait, || {
                    ipc::init(CALLBACK_THREADS).map_err(|why| {
                        no_service(
                            format!("cannot use binder: {why}"),
                            "is binderfs mounted and the module loaded? without binder use \
                             --connect unix:PATH or --connect local",
                        )
                    })
                })?;
                Inner::Binder
            }
            Place::Unix(path) => retry(wait, || Client::unix(path.clone()))?,
            Place::Local => {
                let config = Config {
                    endpoint: Endpoint::Binder,
                    interfaces: Interface::ALL.to_vec(),
                    allow_uids: Vec::new(),
                    allow_domains: Vec::new(),
                    state: None,
                    apex_root: None,
                };
                Inner::Local(serve::objects(&config, &machine()))
            }
        };
        Ok(Client { inner, wait })
    }

    #[cfg(not(soong))]
    fn unix(path: PathBuf) -> Result<Inner> {
        use rsbinder::rpc::FileDescriptorTransportMode;
        let shown = path.display().to_string();
        let fail = |why: String| {
            no_service(
                format!("cannot connect to {shown}: {why}"),
                "is `blockd --serve unix:PATH` running, and may this uid call it (--allow-uid)?",
            )
        };
        if !path.exists() {
            return Err(fail("there is no such socket".to_owned()));
        }
        let uri: rsbinder::Uri = format!("unix://{shown}?profile=android13plus")
            .parse()
            .map_err(|e| fail(format!("{e}")))?;
        let client = rsbinder::Client::open_with(uri, |options, _| {
            options.fd_mode = Some(FileDescriptorTransportMode::Unix);
            // One that the service calls back on. No time-out: an erase may take an hour.
            options.incoming_connections = Some(1);
        })
        .map_err(|e| fail(format!("{e}")))?;
        Ok(Inner::Unix(Box::new(client), path))
    }

    #[cfg(soong)]
    fn unix(path: PathBuf) -> Result<Inner> {
        Err(Failure::new(
            Code::Unsupported,
            "connect",
            format!(
                "unix:{}: builds by Soong have no socket client",
                path.display()
            ),
        )
        .remedy("use --connect binder or --connect local"))
    }

    fn get<T>(&self, interface: Interface) -> Result<Strong<T>>
    where
        T: FromIBinder + ?Sized,
    {
        retry(self.wait, || self.try_get(interface))
    }

    fn try_get<T>(&self, interface: Interface) -> Result<Strong<T>>
    where
        T: FromIBinder + ?Sized,
    {
        let name = interface.service_name();
        let missing = |place: &str, why: String| {
            no_service(
                format!("{name} is not {place} ({why})"),
                "start blockd with this interface, wait for it (--wait SECONDS), or use --connect \
                 local; a call that SELinux denies looks the same",
            )
        };
        match &self.inner {
            Inner::Binder => ipc::get_interface(name)
                .map_err(|e| missing("registered with the service manager", e)),
            #[cfg(not(soong))]
            Inner::Unix(client, path) => client
                .get(name)
                .map_err(|e| missing(&format!("served on {}", path.display()), format!("{e}"))),
            Inner::Local(objects) => objects
                .iter()
                .find(|(n, _)| *n == name)
                .and_then(|(_, object)| object.clone().into_interface().ok())
                .ok_or_else(|| missing("in this process", "internal".to_owned())),
        }
    }

    /// Ends the connection. What it gave answers `DEAD_OBJECT` from then on.
    pub fn close(self) {
        #[cfg(not(soong))]
        if let Inner::Unix(client, _) = &self.inner {
            if let Some(session) = client.session() {
                session.close_session();
            }
        }
    }

    /// `IFactoryReset`.
    ///
    /// # Errors
    /// `NO_SERVICE`.
    pub fn reset(&self) -> Result<Strong<dyn IFactoryReset>> {
        self.get(Interface::Reset)
    }

    /// `IImageDevices`.
    ///
    /// # Errors
    /// `NO_SERVICE`.
    pub fn images(&self) -> Result<Strong<dyn IImageDevices>> {
        self.get(Interface::Images)
    }

    /// `IDiagnostics`.
    ///
    /// # Errors
    /// `NO_SERVICE`.
    pub fn diagnostics(&self) -> Result<Strong<dyn IDiagnostics>> {
        self.get(Interface::Diagnostics)
    }
}

/// `IImageDevices.attachAll` for any number of requests, in calls of at most MAX_ITEMS.
///
/// # Errors
/// The first call that fails as a whole; the devices of earlier calls go with their leases.
pub fn attach_all(
    images: &dyn IImageDevices,
    requests: Vec<AttachRequest>,
) -> BinderResult<Vec<AttachResult>> {
    let mut results = Vec::with_capacity(requests.len());
    let mut rest = requests;
    while !rest.is_empty() {
        let next = rest.split_off(rest.len().min(MAX_ITEMS as usize));
        results.extend(images.attachAll(&rest)?);
        rest = next;
    }
    Ok(results)
}

/// `IImageDevices.activateAll` for any number of requests, in calls of at most MAX_ITEMS.
///
/// # Errors
/// The first call that fails as a whole; what earlier calls have activated stays active.
pub fn activate_all(
    images: &dyn IImageDevices,
    requests: Vec<ActivateRequest>,
) -> BinderResult<Vec<ActivateResult>> {
    let mut results = Vec::with_capacity(requests.len());
    let mut rest = requests;
    while !rest.is_empty() {
        let next = rest.split_off(rest.len().min(MAX_ITEMS as usize));
        results.extend(images.activateAll(&rest)?);
        rest = next;
    }
    Ok(results)
}

/// Tries until it works or `wait` is over.
fn retry<T>(wait: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(failure) if failure.code == Code::NoService && start.elapsed() < wait => {
                std::thread::sleep(WAIT_PERIOD);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!("binder".parse(), Ok(Place::Binder));
        assert_eq!("local".parse(), Ok(Place::Local));
        assert_eq!("unix:/run/x".parse(), Ok(Place::Unix("/run/x".into())));
        assert!("tcp:1".parse::<Place>().is_err());
        assert!("unix:x".parse::<Place>().is_err());
    }
}
