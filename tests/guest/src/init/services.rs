//! Services: start, stop, what happens when one exits.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::sys::socket::{
    bind, listen, setsockopt, socket, sockopt, AddressFamily, Backlog, SockFlag, SockType, UnixAddr,
};
use nix::unistd::Pid;

use super::log;
use crate::rc::{FileOption, Service, Socket, SocketKind};
use crate::sys::{self, ChildSetup};

/// A critical service may exit this often within its window (service.cpp).
const CRITICAL_EXITS: u32 = 4;

/// Programs find each other by this path only.
const PATH: &str = "/system/bin";

/// What every new process gets.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// A policy is loaded: labels can be applied.
    pub selinux: bool,
    /// Variables of the `export` command.
    pub environment: Vec<(String, String)>,
}

/// What init knows of one service at run time.
#[derive(Debug)]
pub struct Running {
    /// Its definition.
    pub definition: Service,
    /// Its process, while it runs.
    pub pid: Option<Pid>,
    /// Not to be started with its class, nor again after an exit.
    pub disabled: bool,
    /// What the last stop was for.
    pub stopped: Option<Stop>,
    /// When it will be started again.
    pub restart_at: Option<Instant>,
    started: Option<Instant>,
    exits: Vec<Instant>,
}

/// Why init stops a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `stop`: not started again with its class.
    Disable,
    /// `class_reset`: started again with its class.
    Reset,
    /// `restart`: started again as soon as the process is gone.
    Restart,
}

/// What follows from an exit.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterExit {
    /// It stays stopped.
    Stopped,
    /// It will be started again; its `onrestart` commands are due.
    Restarting,
    /// It was critical and exited too often.
    Fatal,
}

impl Running {
    /// A service that was not started yet.
    pub fn new(definition: Service) -> Self {
        Self {
            disabled: definition.disabled,
            definition,
            pid: None,
            stopped: None,
            restart_at: None,
            started: None,
            exits: Vec::new(),
        }
    }

    /// Whether it is in a class.
    pub fn in_class(&self, class: &str) -> bool {
        self.definition.classes.iter().any(|c| c == class)
    }

    /// Starts it unless it runs.
    pub fn start(&mut self, surroundings: &Surroundings) -> Result<()> {
        if self.pid.is_some() {
            return Ok(());
        }
        self.restart_at = None;
        self.stopped = None;
        self.disabled = false;
        let name = &self.definition.name;
        let child =
            spawn(&self.definition, surroundings).with_context(|| format!("start {name}"))?;
        let pid = Pid::from_raw(child as i32);
        log::info(&format!("started {name} (pid {pid})"));
        self.pid = Some(pid);
        self.started = Some(Instant::now());
        for file in &self.definition.writepid {
            fs::write(file, pid.to_string()).with_context(|| format!("writepid {file}"))?;
        }
        Ok(())
    }

    /// Kills it and its process group.
    pub fn stop(&mut self, why: Stop) {
        self.restart_at = None;
        self.disabled |= why == Stop::Disable;
        self.stopped = Some(why);
        self.signal(Signal::SIGKILL);
    }

    /// Stops it and starts it again, or starts it if it does not run.
    pub fn restart(&mut self, surroundings: &Surroundings) -> Result<()> {
        if self.pid.is_none() {
            return self.start(surroundings);
        }
        self.stop(Stop::Restart);
        Ok(())
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It may be gone already.
            let _ = killpg(pid, signal);
        }
    }

    /// When its `timeout_period` ends.
    pub fn timeout(&self) -> Option<Instant> {
        self.pid?;
        Some(self.started? + self.definition.timeout_period?)
    }

    /// Notes that its process is gone.
    pub fn exited(&mut self, now: Instant) -> AfterExit {
        // init kills what the service left behind.
        self.signal(Signal::SIGKILL);
        self.pid = None;
        match self.stopped.take() {
            Some(Stop::Restart) => {
                self.restart_at = Some(now);
                return AfterExit::Restarting;
            }
            Some(Stop::Reset) => return AfterExit::Stopped,
            Some(Stop::Disable) | None => {}
        }
        if self.definition.oneshot || self.disabled {
            self.disabled = true;
            return AfterExit::Stopped;
        }
        if let Some(critical) = &self.definition.critical {
            let window = Duration::from_secs(60 * u64::from(critical.window_minutes));
            self.exits.retain(|exit| now.duration_since(*exit) < window);
            self.exits.push(now);
            if self.exits.len() as u32 > CRITICAL_EXITS {
                return AfterExit::Fatal;
            }
        }
        // The period counts from the last start: one that ran longer starts at once.
        let started = self.started.unwrap_or(now);
        self.restart_at = Some(now.max(started + self.definition.restart_period));
        AfterExit::Restarting
    }
}

/// Starts the process of a service. Returns its pid.
pub fn spawn(service: &Service, surroundings: &Surroundings) -> Result<u32> {
    let mut command = Command::new(&service.command[0]);
    command
        .args(&service.command[1..])
        .arg0(&service.command[0]);
    command.env_clear().env("PATH", PATH);
    command.envs(surroundings.environment.iter().cloned());
    command.envs(service.environment.iter().cloned());
    command.current_dir("/").stdin(Stdio::null());
    let output = || -> Result<Stdio> {
        // A device gives /dev/null; here the console shows what a failing program says.
        let target = if service.stdio_to_kmsg {
            "/dev/kmsg"
        } else {
            "/dev/console"
        };
        Ok(OpenOptions::new().write(true).open(target)?.into())
    };
    command.stdout(output()?).stderr(output()?);
    let mut setup = ChildSetup {
        ioprio: service.ioprio,
        priority: service.priority,
        rlimits: service.rlimits.clone(),
        oom_score_adjust: service.oom_score_adjust.map(|score| score.to_string()),
        gid: service.group,
        groups: service.supplementary_groups.clone(),
        uid: service.user,
        capabilities: service.capabilities,
        seclabel: None,
        inherit: Vec::new(),
    };
    match &service.seclabel {
        Some(label) if surroundings.selinux => setup.seclabel = Some(CString::new(label.as_str())?),
        Some(label) => log::info(&format!("{}: {label} not applied: no policy", service.name)),
        None => {}
    }
    if !service.task_profiles.is_empty() {
        log::info(&format!(
            "{}: task_profiles not applied: no cgroups",
            service.name
        ));
    }
    for socket in &service.sockets {
        let fd = open_socket(socket).with_context(|| format!("socket {}", socket.name))?;
        command.env(
            variable("ANDROID_SOCKET_", &socket.name),
            fd.as_raw_fd().to_string(),
        );
        setup.inherit.push(fd);
    }
    for file in &service.files {
        let fd = open_file(file).with_context(|| format!("file {}", file.path))?;
        command.env(
            variable("ANDROID_FILE_", &file.path),
            fd.as_raw_fd().to_string(),
        );
        setup.inherit.push(fd);
    }
    Ok(sys::spawn(&mut command, setup)?.id())
}

fn variable(prefix: &str, name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    prefix.to_owned() + &name.chars().map(clean).collect::<String>()
}

fn open_file(option: &FileOption) -> Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(option.read)
        .write(option.write)
        .open(&option.path)?;
    Ok(file.into())
}

fn open_socket(option: &Socket) -> Result<OwnedFd> {
    if option.label.is_some() {
        bail!("a label for a socket is not supported here");
    }
    let kind = match option.kind {
        SocketKind::Stream => SockType::Stream,
        SocketKind::Datagram => SockType::Datagram,
        SocketKind::SequencedPacket => SockType::SeqPacket,
    };
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    if option.passcred {
        setsockopt(&fd, sockopt::PassCred, &true)?;
    }
    let path = Path::new("/dev/socket").join(&option.name);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => bind(fd.as_raw_fd(), &UnixAddr::new(&path)?)?,
    }
    chown(&path, Some(option.uid), Some(option.gid))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(option.mode))?;
    if option.listen {
        listen(&fd, Backlog::new(8)?)?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::Parser;

    fn running(options: &str) -> Running {
        let mut parser = Parser::new();
        parser.file("t", &format!("service s /s\n user root\n{options}"));
        Running::new(parser.finish().unwrap().services.remove(0))
    }

    #[test]
    fn a_quick_exit_waits_for_the_restart_period() {
        let mut service = running("");
        let started = Instant::now();
        service.started = Some(started);
        let exit = started + Duration::from_secs(1);
        assert_eq!(service.exited(exit), AfterExit::Restarting);
        assert_eq!(service.restart_at, Some(started + Duration::from_secs(5)));
        let late = started + Duration::from_secs(60);
        assert_eq!(service.exited(late), AfterExit::Restarting);
        assert_eq!(service.restart_at, Some(late));
    }

    #[test]
    fn what_stops_and_what_restarts() {
        let now = Instant::now();
        assert_eq!(running(" oneshot\n").exited(now), AfterExit::Stopped);
        for (why, after, disabled) in [
            (Stop::Disable, AfterExit::Stopped, true),
            (Stop::Reset, AfterExit::Stopped, false),
            (Stop::Restart, AfterExit::Restarting, false),
        ] {
            let mut service = running("");
            service.stop(why);
            assert_eq!(service.exited(now), after, "{why:?}");
            assert_eq!(service.disabled, disabled, "{why:?}");
        }
    }

    #[test]
    fn a_critical_service_may_exit_four_times() {
        let mut service = running(" critical window=1\n");
        let now = Instant::now();
        for _ in 0..4 {
            assert_eq!(service.exited(now), AfterExit::Restarting);
        }
        assert_eq!(service.exited(now), AfterExit::Fatal);
        let mut service = running(" critical window=1\n");
        for n in 0..10 {
            let exit = now + Duration::from_secs(20 * n);
            assert_eq!(service.exited(exit), AfterExit::Restarting, "exit {n}");
        }
    }
}
