//! `soak`: many clients attach and detach, let go, fail and are killed; then nothing of theirs is
//! left, and nothing of anybody else's was touched.

mod client;
mod machine;

use crate::images::Files;
use anyhow::{anyhow, bail, ensure, Context, Result};
use client::{Client, Victim};
use machine::{Machine, Sentinel};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use client::victim;

/// Files that the clients share.
const FILES: usize = 8;
/// Devices of somebody else's.
const SENTINELS: usize = 3;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The service's socket.
    pub socket: PathBuf,
    /// The service's process: then its descriptors are counted too.
    pub pid: Option<u32>,
    /// Where the files are made.
    pub folder: PathBuf,
    /// This program, which is run as a client to be killed; `None` = no client is killed.
    pub program: Option<PathBuf>,
    /// Attachments in all.
    pub cycles: usize,
    /// Clients at once.
    pub clients: usize,
    /// What goes wrong on purpose.
    pub broken: Option<Broken>,
}

/// A fault that the suite must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A device is not detached.
    Leak,
    /// Somebody else's device is bound anew.
    Foreign,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Attachments that were made and undone.
    pub cycles: usize,
    /// Clients at once.
    pub clients: usize,
    /// Loop devices left.
    pub leaked_loop: usize,
    /// Device-mapper devices left.
    pub leaked_dm: usize,
    /// Mounts left.
    pub leaked_mounts: usize,
    /// Descriptors that the service holds more than at first.
    pub leaked_fds: usize,
    /// Devices of somebody else's that are not what they were.
    pub foreign_touched: usize,
    /// Clients that were killed.
    pub killed: usize,
}

impl Outcome {
    /// Whether all is as it was.
    pub fn clean(&self) -> bool {
        let left = self.leaked_loop + self.leaked_dm + self.leaked_mounts + self.leaked_fds;
        left + self.foreign_touched == 0
    }

    /// The last line for programs.
    pub fn json(&self) -> Value {
        json!({
            "cycles": self.cycles,
            "clients": self.clients,
            "leaked_loop": self.leaked_loop,
            "leaked_dm": self.leaked_dm,
            "leaked_mounts": self.leaked_mounts,
            "leaked_fds": self.leaked_fds,
            "foreign_touched": self.foreign_touched,
            "killed": self.killed,
        })
    }
}

/// Runs it.
///
/// # Errors
/// A client got an answer that it must not get. What is left behind is no error here.
pub fn run(options: &Options) -> Result<Outcome> {
    ensure!(options.clients > 0, "no clients");
    let files = Files::new(&options.folder, FILES)?;
    let mark = format!("soak-{}", std::process::id());
    let sentinels = (0..SENTINELS)
        .map(|n| Sentinel::new(&options.folder, n))
        .collect::<Result<Vec<_>>>()?;
    let foreign: Vec<u32> = sentinels.iter().map(Sentinel::number).collect();
    let next = AtomicUsize::new(0);
    let killed = AtomicUsize::new(0);
    let work = |client: &mut Client<'_>| -> Result<usize> {
        let mut done = 0;
        loop {
            let cycle = next.fetch_add(1, Ordering::Relaxed);
            if cycle >= options.cycles {
                return Ok(done);
            }
            let kill = options.program.as_ref().filter(|_| Victim::is_due(cycle));
            match kill {
                Some(program) => {
                    Victim::kill(program, &options.socket, &files, &mark, cycle)?;
                    killed.fetch_add(1, Ordering::Relaxed);
                }
                None => client
                    .cycle(cycle, foreign[cycle % SENTINELS])
                    .with_context(|| format!("cycle {cycle}"))?,
            }
            done += 1;
        }
    };
    // The first clients make the service's threads and buffers; what it holds then is no leak.
    let mut first = Client::new(&options.socket, &files, &mark)?;
    (0..client::KINDS).try_for_each(|kind| first.cycle(kind, foreign[0]))?;
    drop(first);
    let machine = Machine::look(files.folder(), options.pid)?;

    let cycles = thread::scope(|scope| {
        let one = || work(&mut Client::new(&options.socket, &files, &mark)?);
        let all: Vec<_> = (0..options.clients).map(|_| scope.spawn(one)).collect();
        let results = all.into_iter().map(|t| t.join());
        let results = results.map(|r| r.unwrap_or_else(|_| Err(anyhow!("a client panicked"))));
        results.sum::<Result<usize>>()
    })?;
    match options.broken {
        Some(Broken::Leak) => Client::new(&options.socket, &files, &mark)?.leak()?,
        Some(Broken::Foreign) => sentinels[0].rebind()?,
        None => {}
    }
    if cycles != options.cycles {
        bail!("{cycles} cycles were done of {}", options.cycles);
    }
    let left = machine.left()?;
    left.clear();
    Ok(Outcome {
        cycles,
        clients: options.clients,
        leaked_loop: left.loops.len(),
        leaked_dm: left.mapped,
        leaked_mounts: left.mounts,
        leaked_fds: left.descriptors,
        foreign_touched: sentinels.iter().filter(|s| !s.untouched()).count(),
        killed: killed.into_inner(),
    })
}
