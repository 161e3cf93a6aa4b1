//! The short version of `cargo xtask test soak`: the service in this process, no client killed.

use anyhow::{anyhow, ensure, Result};
use bench::soak::{self, Broken, Outcome};
use blockd::device::Host;
use blockd::images::Images;
use blockd::service::access::Interface;
use blockd::service::config::{Config, Endpoint};
use blockd::service::serve::{spawn, Machine};
use std::sync::Arc;

fn run(broken: Option<Broken>) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let config = Config {
        endpoint: Endpoint::Unix(socket.clone()),
        interfaces: vec![Interface::Images],
        allow_uids: Vec::new(),
        allow_domains: Vec::new(),
        state: None,
        apex_root: None,
    };
    let machine = Machine {
        storage: Arc::new(Host::new()),
        images: Arc::new(Images::new()),
        state: None,
    };
    let _service = spawn(&config, &machine).map_err(|e| anyhow!("{e}"))?;
    soak::run(&soak::Options {
        socket,
        pid: None,
        folder: folder.path().to_owned(),
        program: None,
        cycles: 96,
        clients: 16,
        broken,
    })
}

pub fn sixteen_clients_leave_nothing_and_touch_nothing() -> Result<()> {
    let outcome = run(None)?;
    ensure!(outcome.clean() && outcome.cycles == 96, "{outcome:?}");
    Ok(())
}

pub fn a_soak_that_does_wrong_is_found() -> Result<()> {
    let leak = run(Some(Broken::Leak))?;
    ensure!(leak.leaked_loop == 1 && !leak.clean(), "{leak:?}");
    let foreign = run(Some(Broken::Foreign))?;
    ensure!(
        foreign.foreign_touched == 1 && !foreign.clean(),
        "{foreign:?}"
    );
    Ok(())
}
