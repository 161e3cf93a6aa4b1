//! A `service` section as a value.

use std::time::Duration;

use super::{CapabilitySet, Command, Place};

/// A service that exits is started again no sooner than this after its last start (AOSP's default).
pub const DEFAULT_RESTART_PERIOD: Duration = Duration::from_secs(5);

/// I/O scheduling class (linux/ioprio.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// `rt`
    RealTime = 1,
    /// `be`
    BestEffort = 2,
    /// `idle`
    Idle = 3,
}

/// The `ioprio` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPriority {
    /// Class.
    pub class: IoClass,
    /// Level in the class, 0 (highest) to 7.
    pub level: u8,
}

/// The `rlimit` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// RLIMIT_… number.
    pub resource: i32,
    /// Soft limit; `u64::MAX` = unlimited.
    pub soft: u64,
    /// Hard limit; `u64::MAX` = unlimited.
    pub hard: u64,
}

impl Rlimit {
    /// Parses `RESOURCE SOFT HARD`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        super::options::rlimit(words)
    }
}

/// Type of a socket that init makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// `stream`
    Stream,
    /// `dgram`
    Datagram,
    /// `seqpacket`
    SequencedPacket,
}

/// The `socket` option: /dev/socket/NAME, passed as the variable ANDROID_SOCKET_NAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Name below /dev/socket.
    pub name: String,
    /// Type.
    pub kind: SocketKind,
    /// SO_PASSCRED was asked for (`+passcred`).
    pub passcred: bool,
    /// init listens on it (`+listen`).
    pub listen: bool,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// SELinux label of the socket.
    pub label: Option<String>,
}

/// The `file` option: an open descriptor, passed as the variable ANDROID_FILE_PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOption {
    /// Absolute path.
    pub path: String,
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
}

/// The `critical` option: more than 4 exits within the window reboot the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Critical {
    /// Length of the window, minutes.
    pub window_minutes: u32,
    /// Where to reboot to.
    pub target: String,
}

/// A service with all its options.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where its header stands.
    pub at: Place,
    /// `class`, or the class `default`.
    pub classes: Vec<String>,
    /// `disabled`: not started with its class.
    pub disabled: bool,
    /// `oneshot`: not started again.
    pub oneshot: bool,
    /// `override`: replaces an earlier definition.
    pub overrides: bool,
    /// `user`
    pub user: Option<u32>,
    /// First of `group`.
    pub group: Option<u32>,
    /// Rest of `group`.
    pub supplementary_groups: Vec<u32>,
    /// `capabilities`; `Some` of an empty set = the option without arguments.
    pub capabilities: Option<CapabilitySet>,
    /// `interface`: kind (aidl or a HIDL package) and name.
    pub interfaces: Vec<(String, String)>,
    /// `ioprio`
    pub ioprio: Option<IoPriority>,
    /// `priority` (nice value)
    pub priority: Option<i32>,
    /// `rlimit`
    pub rlimits: Vec<Rlimit>,
    /// `oom_score_adjust`
    pub oom_score_adjust: Option<i32>,
    /// `task_profiles`
    pub task_profiles: Vec<String>,
    /// `seclabel`
    pub seclabel: Option<String>,
    /// `setenv`
    pub environment: Vec<(String, String)>,
    /// `onrestart`
    pub onrestart: Vec<Command>,
    /// `socket`
    pub sockets: Vec<Socket>,
    /// `file`
    pub files: Vec<FileOption>,
    /// `critical`
    pub critical: Option<Critical>,
    /// `shutdown critical`: not killed at shutdown.
    pub shutdown_critical: bool,
    /// `restart_period`
    pub restart_period: Duration,
    /// `timeout_period`: killed after this time.
    pub timeout_period: Option<Duration>,
    /// `stdio_to_kmsg`
    pub stdio_to_kmsg: bool,
    /// `writepid`
    pub writepid: Vec<String>,
    /// Options that this project's own init cannot apply, with their place: known to the
    /// grammar, harmless to a checker, an error for the guest.
    pub unapplied: Vec<(Place, String)>,
}

impl Service {
    /// Parses `service NAME PATH [ARG…]`.
    pub(super) fn header(words: &[String], at: &Place) -> Result<Self, String> {
        let [_, name, program, ..] = words else {
            return Err("a service needs a name and a program".to_owned());
        };
        if name.contains('/') || name.is_empty() {
            return Err(format!("`{name}` is no service name"));
        }
        if !program.starts_with('/') {
            return Err(format!("the program `{program}` is no absolute path"));
        }
        Ok(Self {
            name: name.clone(),
            command: words[2..].to_vec(),
            at: at.clone(),
            classes: vec!["default".to_owned()],
            disabled: false,
            oneshot: false,
            overrides: false,
            user: None,
            group: None,
            supplementary_groups: Vec::new(),
            capabilities: None,
            interfaces: Vec::new(),
            ioprio: None,
            priority: None,
            rlimits: Vec::new(),
            oom_score_adjust: None,
            task_profiles: Vec::new(),
            seclabel: None,
            environment: Vec::new(),
            onrestart: Vec::new(),
            sockets: Vec::new(),
            files: Vec::new(),
            critical: None,
            shutdown_critical: false,
            restart_period: DEFAULT_RESTART_PERIOD,
            timeout_period: None,
            stdio_to_kmsg: false,
            writepid: Vec::new(),
            unapplied: Vec::new(),
        })
    }

    /// What is wrong with the section as a whole.
    pub(super) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.user.is_none() {
            // An error since ro.vendor.api_level 202404; older ones run it as root.
            wrong.push(format!("service {} names no user", self.name));
        }
        if self.critical.is_some() && self.oneshot {
            wrong.push(format!(
                "service {} is both critical and oneshot",
                self.name
            ));
        }
        wrong
    }
}
