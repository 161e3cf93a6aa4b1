//! The state of init and its loop: events, actions one command at a time, children, devices.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use super::devices::Uevents;
use super::log;
use super::properties::{self, Properties, Request};
use super::services::{AfterExit, Running, Surroundings};
use crate::rc::{Action, Command, Script};

/// A device that the command line names may take this long.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// Nothing tells init of a new file: `wait` looks again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Services get this long between SIGTERM and SIGKILL at shutdown.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(super) enum Event {
    Trigger(String),
    /// A property has a new value.
    Property(String),
    /// From here on property triggers act; those already true act once.
    EnableProperties,
}

/// What the next command waits for.
#[derive(Debug)]
pub(super) enum Blocked {
    No,
    Process(Pid),
    File(PathBuf, Instant),
    Property(String, String),
}

/// init's whole state.
#[derive(Debug)]
pub struct Machine {
    pub(super) services: Vec<Running>,
    actions: Vec<Action>,
    pub(super) properties: Properties,
    pub(super) property_triggers: bool,
    pub(super) events: VecDeque<Event>,
    commands: VecDeque<Command>,
    pub(super) blocked: Blocked,
    /// Processes of `exec…` commands and the scenario, with their names.
    pub(super) helpers: Vec<(Pid, String)>,
    /// Exit of the helper that `run_scenario` waits for.
    scenario: Option<(Pid, Option<WaitStatus>)>,
    fatal: Option<String>,
    pub(super) surroundings: Surroundings,
    signals: SignalFd,
    uevents: Uevents,
    clients: UnixListener,
}

impl Machine {
    /// A machine at rest.
    pub fn new(script: Script, uevents: Uevents, selinux: bool) -> Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        Ok(Self {
            services: script.services.into_iter().map(Running::new).collect(),
            actions: script.actions,
            properties: Properties::default(),
            property_triggers: false,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            blocked: Blocked::No,
            helpers: Vec::new(),
            scenario: None,
            fatal: None,
            surroundings: Surroundings {
                selinux,
                environment: Vec::new(),
            },
            signals: SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            uevents,
            clients: properties::listen()?,
        })
    }

    /// Queues an event.
    pub fn queue(&mut self, event: &str) {
        self.events.push_back(Event::Trigger(event.to_owned()));
        if event == "late-init" {
            self.events.push_back(Event::EnableProperties);
        }
    }

    /// Waits until a device node is there.
    pub fn wait_for_device(&mut self, node: &Path) -> Result<()> {
        let end = Instant::now() + DEVICE_TIMEOUT;
        while !node.exists() {
            if Instant::now() > end {
                bail!("{} did not appear", node.display());
            }
            self.sleep(LOOK_AGAIN)?;
        }
        Ok(())
    }

    /// Runs until no event and no command is left.
    pub fn run_until_idle(&mut self) -> Result<()> {
        while !(self.events.is_empty()
            && self.commands.is_empty()
            && matches!(self.blocked, Blocked::No))
        {
            self.turn(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Runs `/system/bin/guest scenario NAME` to its end.
    pub fn run_scenario(&mut self, name: &str) -> Result<()> {
        let program = ["/system/bin/guest", "scenario", name].map(str::to_owned);
        let pid = self.exec(&program)?;
        self.scenario = Some((pid, None));
        loop {
            if let Some((_, Some(status))) = self.scenario {
                return match status {
                    WaitStatus::Exited(_, 0) => Ok(()),
                    other => bail!("scenario {name} ended with {other:?}"),
                };
            }
            self.turn(Duration::from_secs(1))?;
        }
    }

    /// Ends all services, politely first.
    pub fn shut_down(&mut self) {
        for service in &mut self.services {
            service.disabled = true;
            service.restart_at = None;
            service.signal(Signal::SIGTERM);
        }
        let end = Instant::now() + SHUTDOWN_PATIENCE;
        while self.services.iter().any(|s| s.pid.is_some()) && Instant::now() < end {
            if let Err(e) = self.sleep(Duration::from_millis(100)) {
                return log::error(&format!("shutdown: {e:#}"));
            }
        }
        for service in self
            .services
            .iter()
            .filter(|s| !s.definition.shutdown_critical)
        {
            if service.pid.is_some() {
                log::error(&format!(
                    "{} did not end by SIGTERM",
                    service.definition.name
                ));
                service.signal(Signal::SIGKILL);
            }
        }
    }

    /// One turn: at most one command, then whatever happened outside.
    fn turn(&mut self, longest: Duration) -> Result<()> {
        self.unblock();
        if matches!(self.blocked, Blocked::No) {
            if self.commands.is_empty() {
                self.next_event();
            }
            if let Some(command) = self.commands.pop_front() {
                if let Err(e) = self.execute(&command) {
                    // init goes on after a failed command, and so does this one.
                    log::error(&format!(
                        "{}: {}: {e:#}",
                        command.at,
                        command.words.join(" ")
                    ));
                }
            }
        }
        let busy = !(self.events.is_empty() && self.commands.is_empty());
        let pause = match self.blocked {
            Blocked::No if busy => Duration::ZERO,
            Blocked::File(..) => LOOK_AGAIN,
            _ => longest,
        };
        self.sleep(pause)
    }

    /// Handles children, devices and clients; waits for them up to `longest`.
    fn sleep(&mut self, longest: Duration) -> Result<()> {
        let now = Instant::now();
        let due = |s: &Running| [s.restart_at, s.timeout()].into_iter().flatten().min();
        let next = self.services.iter().filter_map(due).min();
        let pause = next.map_or(longest, |at| longest.min(at.saturating_duration_since(now)));
        let mut fds = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.uevents.fd().as_fd(), PollFlags::POLLIN),
            PollFd::new(self.clients.as_fd(), PollFlags::POLLIN),
        ];
        // Rounded up, so that a due time is over when poll returns.
        let pause = PollTimeout::try_from(pause.as_millis() + u128::from(!pause.is_zero()))?;
        match poll(&mut fds, pause) {
            Err(Errno::EINTR) => {}
            result => drop(result?),
        }
        while self.signals.read_signal()?.is_some() {}
        self.uevents.handle();
        while let Some((request, stream)) = properties::accept(&self.clients) {
            self.answer(request, stream);
        }
        self.reap()?;
        self.act_on_time();
        match self.fatal.take() {
            Some(message) => bail!(message),
            None => Ok(()),
        }
    }

    fn answer(&mut self, request: Request, mut stream: impl Write) {
        let answer = match request {
            Request::Get(name) => format!("ok {}", self.properties.get(&name)),
            Request::Set(name, value) => match self.set_property(&name, &value) {
                Ok(()) => "ok ".to_owned(),
                Err(e) => format!("error {e:#}"),
            },
        };
        // A client that left needs no answer.
        let _ = writeln!(stream, "{answer}");
    }

    fn reap(&mut self) -> Result<()> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) | Ok(WaitStatus::StillAlive) => return Ok(()),
                other => other?,
            };
            let Some(pid) = status.pid() else { continue };
            if let Some(index) = self.helpers.iter().position(|(p, _)| *p == pid) {
                let (_, name) = self.helpers.remove(index);
                self.helper_exited(pid, &name, status);
            } else if let Some(index) = self.services.iter().position(|s| s.pid == Some(pid)) {
                self.service_exited(index, status)?;
            }
        }
    }

    fn helper_exited(&mut self, pid: Pid, name: &str, status: WaitStatus) {
        if matches!(self.blocked, Blocked::Process(p) if p == pid) {
            self.blocked = Blocked::No;
        }
        if let Some((_, result)) = self.scenario.as_mut().filter(|(p, _)| *p == pid) {
            *result = Some(status);
        }
        log::info(&format!("{name} (pid {pid}) ended: {status:?}"));
    }

    fn service_exited(&mut self, index: usize, status: WaitStatus) -> Result<()> {
        let service = &mut self.services[index];
        let name = service.definition.name.clone();
        log::info(&format!("service {name} ended: {status:?}"));
        if let (Blocked::Process(p), Some(pid)) = (&self.blocked, service.pid) {
            if *p == pid {
                self.blocked = Blocked::No;
            }
        }
        let state = match service.exited(Instant::now()) {
            AfterExit::Stopped => "stopped",
            AfterExit::Restarting => {
                self.commands
                    .extend(service.definition.onrestart.iter().cloned());
                "restarting"
            }
            AfterExit::Fatal => {
                self.fatal = Some(format!("critical service {name} exited too often"));
                "stopped"
            }
        };
        self.set_property(&format!("init.svc.{name}"), state)
    }

    /// Starts and kills services whose time has come.
    fn act_on_time(&mut self) {
        let now = Instant::now();
        for index in 0..self.services.len() {
            let service = &mut self.services[index];
            if service.timeout().is_some_and(|end| end <= now) {
                log::error(&format!("service {} ran too long", service.definition.name));
                service.signal(Signal::SIGKILL);
            }
            if service.restart_at.is_some_and(|at| at <= now) {
                let name = service.definition.name.clone();
                if let Err(e) = self.start(&name) {
                    log::error(&format!("{e:#}"));
                }
            }
        }
    }

    /// Takes the commands of the actions that the next event matches.
    fn next_event(&mut self) {
        let Some(event) = self.events.pop_front() else {
            return;
        };
        if let Event::Trigger(name) = &event {
            log::info(&format!("event {name}"));
        }
        if matches!(event, Event::EnableProperties) {
            self.property_triggers = true;
        }
        let holds = |(name, value): &(String, String)| {
            let now = self.properties.get(name);
            !now.is_empty() && value == "*" || now == value
        };
        for action in &self.actions {
            let wanted = match &event {
                Event::Trigger(name) => action.event.as_ref() == Some(name),
                Event::EnableProperties => action.event.is_none(),
                Event::Property(changed) => {
                    action.event.is_none() && action.properties.iter().any(|(n, _)| n == changed)
                }
            };
            if wanted && action.properties.iter().all(holds) {
                self.commands.extend(action.commands.iter().cloned());
            }
        }
    }

    fn unblock(&mut self) {
        let done = match &self.blocked {
            Blocked::File(path, end) => {
                let late = Instant::now() > *end;
                if late {
                    log::error(&format!("wait: {} did not appear", path.display()));
                }
                late || path.exists()
            }
            Blocked::Property(name, value) => {
                let now = self.properties.get(name);
                now == value || value == "*" && !now.is_empty()
            }
            Blocked::No | Blocked::Process(_) => false,
        };
        if done {
            self.blocked = Blocked::No;
        }
    }
}
