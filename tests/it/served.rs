//! A service in this process, on a Unix socket, over a card of the model.

use blockd::aidl::IFactoryReset::IFactoryReset;
use blockd::aidl::Marker::Marker;
use blockd::aidl::ResetRequest::ResetRequest;
use blockd::client::{Client, Place};
use blockd::device::Storage;
use blockd::images::Images;
use blockd::service::access::Interface;
use blockd::service::config::{Config, Endpoint};
use blockd::service::ipc::Strong;
use blockd::service::serve::{spawn, Background, Machine};
use emmc::machine::Machine as Card;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The service; it ends when this is dropped.
pub struct Served {
    /// Where the socket lies.
    pub folder: TempDir,
    /// What it works on.
    pub card: Card,
    _background: Background,
}

impl Served {
    /// All interfaces over `card`; `state` keeps the last report.
    pub fn new(card: Card, allow_uids: &[u32], state: Option<&Path>) -> Result<Served, String> {
        let storage = Arc::new(card.clone());
        Served::over(storage, card, allow_uids, state)
    }

    /// The same, with `storage` between it and `card`.
    pub fn over(
        storage: Arc<dyn Storage>,
        card: Card,
        allow_uids: &[u32],
        state: Option<&Path>,
    ) -> Result<Served, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let config = Config {
            endpoint: Endpoint::Unix(folder.path().join("socket")),
            interfaces: Interface::ALL.to_vec(),
            allow_uids: allow_uids.to_vec(),
            allow_domains: Vec::new(),
            state: None,
            apex_root: None,
        };
        let machine = Machine {
            storage,
            images: Arc::new(Images::new()),
            state: state.map(Path::to_owned),
        };
        Ok(Served {
            _background: spawn(&config, &machine)?,
            folder,
            card,
        })
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A client of it.
    pub fn client(&self) -> Result<Client, String> {
        Client::connect(&Place::Unix(self.socket()), Duration::ZERO, || {
            unreachable!("not local")
        })
        .map_err(|e| e.to_string())
    }

    /// Its `IFactoryReset`.
    pub fn reset(&self) -> Result<Strong<dyn IFactoryReset>, String> {
        self.client()?.reset().map_err(|e| e.to_string())
    }

    /// Runs the real blockctl against it.
    pub fn blockctl(&self, arguments: &[&str]) -> Result<Output, String> {
        blockctl_at(&self.socket(), arguments)
    }
}

/// Runs the real blockctl against the service on a socket.
pub fn blockctl_at(socket: &Path, arguments: &[&str]) -> Result<Output, String> {
    Command::new(env!("CARGO_BIN_EXE_blockctl"))
        .arg("--connect")
        .arg(format!("unix:{}", socket.display()))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())
}

/// The whole of a partition, without a restart marker.
pub fn request(name: &str) -> ResetRequest {
    ResetRequest {
        partitions: vec![name.to_owned()],
        marker: Marker::NONE,
        ..ResetRequest::default()
    }
}

/// The only line of stdout as JSON.
pub fn json_of(output: &Output) -> Result<Value, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let line = lines
        .next()
        .ok_or(format!("nothing on stdout: {output:?}"))?;
    if lines.next().is_some() {
        return Err(format!("more than one line: {text}"));
    }
    serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))
}
