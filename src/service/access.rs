//! Who may call what. Asked in the first line of every method.

use crate::service::ipc::{self, BinderResult, Caller};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// AOSP's uid of adb's shell and of bug reports.
const SHELL: u32 = 2000;

/// One interface: its name and who may call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// `IFactoryReset`
    Reset,
    /// `IImageDevices`
    Images,
    /// `IDiagnostics`
    Diagnostics,
}

impl Interface {
    /// Every interface.
    pub const ALL: [Interface; 3] = [Interface::Reset, Interface::Images, Interface::Diagnostics];

    /// The word of `--interfaces`.
    pub fn word(self) -> &'static str {
        match self {
            Interface::Reset => "reset",
            Interface::Images => "images",
            Interface::Diagnostics => "diagnostics",
        }
    }

    /// The name under which the service is registered.
    pub fn service_name(self) -> &'static str {
        match self {
            Interface::Reset => "dev.blockd.IFactoryReset/default",
            Interface::Images => "dev.blockd.IImageDevices/default",
            Interface::Diagnostics => "dev.blockd.IDiagnostics/default",
        }
    }

    fn uids(self) -> &'static [u32] {
        const ROOT: u32 = 0;
        const SYSTEM: u32 = 1000;
        match self {
            Interface::Reset => &[ROOT],
            Interface::Images => &[ROOT, SYSTEM],
            Interface::Diagnostics => &[ROOT, SYSTEM, SHELL],
        }
    }

    fn domains(self) -> &'static [&'static str] {
        match self {
            Interface::Reset => &["recovery"],
            Interface::Images => &["apexd", "vold"],
            Interface::Diagnostics => &["recovery", "shell", "dumpstate"],
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Decides about callers of one interface.
#[derive(Clone, Debug)]
pub struct Gate {
    interface: Interface,
    /// Added by `--allow-uid`.
    more_uids: Vec<u32>,
    /// Added by `--allow-domain`.
    more_domains: Vec<String>,
    /// Whether a loaded SELinux policy gives callers a domain.
    selinux: bool,
    /// Shared by the copies of a gate.
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    let_through: AtomicU64,
    refused: AtomicU64,
}

/// How many calls a gate has decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Let through.
    pub let_through: u64,
    /// Refused.
    pub refused: u64,
}

impl Gate {
    /// The gate of `interface`, with what the command line adds to its lists.
    pub fn new(interface: Interface, more_uids: &[u32], more_domains: &[String]) -> Gate {
        Gate {
            interface,
            more_uids: more_uids.to_vec(),
            more_domains: more_domains.to_vec(),
            selinux: has_selinux(),
            counters: Arc::default(),
        }
    }

    /// Which interface it guards.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// Lets the caller of this thread's transaction through, or not.
    ///
    /// # Errors
    /// EX_SECURITY that says who was refused and why; logged once here.
    pub fn check(&self, method: &str) -> BinderResult<()> {
        let decision = self.decide(&ipc::caller());
        let counter = match decision {
            Ok(()) => &self.counters.let_through,
            Err(_) => &self.counters.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        decision.map_err(|why| {
            let text = format!("{}.{method}: {why}", self.interface.service_name());
            log::warn!("refused: {text}");
            ipc::security(&text)
        })
    }

    /// Lets the caller of a `dump` see what the service shows of itself. A bug report is made by the
    /// shell's uid; the last report of a reset names the card by its serial number, and is root's.
    ///
    /// # Errors
    /// Who was refused.
    pub fn check_dump(&self) -> Result<(), String> {
        self.decide_dump(&ipc::caller())
    }

    fn decide_dump(&self, caller: &Caller) -> Result<(), String> {
        let (uid, pid) = match caller {
            Caller::Local => return Ok(()),
            Caller::Binder { uid, pid, .. } | Caller::Socket { uid, pid } => (*uid, *pid),
        };
        let reported = self.interface != Interface::Reset && uid == SHELL;
        if reported || self.allows_uid(uid) {
            Ok(())
        } else {
            Err(format!("from pid={pid}, uid={uid}"))
        }
    }

    /// How many calls there were.
    pub fn counts(&self) -> Counts {
        Counts {
            let_through: self.counters.let_through.load(Ordering::Relaxed),
            refused: self.counters.refused.load(Ordering::Relaxed),
        }
    }

    /// True where `uid` may connect at all.
    pub fn allows_uid(&self, uid: u32) -> bool {
        self.interface.uids().contains(&uid) || self.more_uids.contains(&uid)
    }

    fn decide(&self, caller: &Caller) -> Result<(), String> {
        let (uid, pid, sid) = match caller {
            // The process that holds the implementation has its rights already.
            Caller::Local => return Ok(()),
            Caller::Binder { uid, pid, sid } => (*uid, *pid, Some(sid)),
            Caller::Socket { uid, pid } => (*uid, *pid, None),
        };
        if !self.allows_uid(uid) {
            return Err(format!("uid {uid} (pid {pid}) is not allowed"));
        }
        let Some(sid) = sid else { return Ok(()) };
        match sid.as_deref().map(domain) {
            Some(Some(domain)) => {
                if self.interface.domains().contains(&domain)
                    || self.more_domains.iter().any(|d| d == domain)
                {
                    Ok(())
                } else {
                    Err(format!(
                        "domain {domain} (uid {uid}, pid {pid}) is not allowed"
                    ))
                }
            }
            // SELinux without a policy knows initial contexts only (`kernel`).
            Some(None) => Ok(()),
            None if self.selinux => Err(format!(
                "the kernel gave no SELinux context for uid {uid} (pid {pid})"
            )),
            None => Ok(()),
        }
    }
}

/// Only a file that is not there means "no SELinux"; one that may not be looked at means the opposite.
fn has_selinux() -> bool {
    !matches!(
        std::fs::metadata("/sys/fs/selinux/enforce"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound
    )
}

/// The type of a context `user:role:type:range`; `None` for an initial context without colons.
fn domain(sid: &str) -> Option<&str> {
    sid.split(':').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(interface: Interface, selinux: bool) -> Gate {
        Gate {
            interface,
            more_uids: vec![12345],
            more_domains: vec!["erasetool".to_owned()],
            selinux,
            counters: Arc::default(),
        }
    }

    #[test]
    fn the_shell_s_bug_report_sees_no_serial_numbers() {
        let cases = [
            (Interface::Reset, 0, true),
            (Interface::Reset, 1000, false),
            (Interface::Reset, 2000, false),
            (Interface::Images, 2000, true),
            (Interface::Diagnostics, 2000, true),
            (Interface::Images, 10_001, false),
            (Interface::Reset, 12345, true),
        ];
        for (interface, uid, allowed) in cases {
            let decision = gate(interface, true).decide_dump(&binder(uid, None));
            assert_eq!(decision.is_ok(), allowed, "{interface} {uid}");
        }
    }

    fn binder(uid: u32, sid: Option<&str>) -> Caller {
        Caller::Binder {
            uid,
            pid: 1,
            sid: sid.map(str::to_owned),
        }
    }

    #[test]
    fn uid_and_domain_must_both_be_on_the_list() {
        let cases = [
            (Interface::Reset, binder(0, Some("u:r:recovery:s0")), true),
            (Interface::Reset, binder(0, Some("u:r:erasetool:s0")), true),
            (Interface::Reset, binder(0, Some("u:r:shell:s0")), false),
            (Interface::Reset, binder(0, Some("u:r:su:s0")), false),
            (
                Interface::Reset,
                binder(2000, Some("u:r:recovery:s0")),
                false,
            ),
            (Interface::Reset, binder(0, None), false),
            (Interface::Reset, binder(0, Some("kernel")), true),
            (Interface::Images, binder(1000, Some("u:r:apexd:s0")), true),
            (Interface::Images, binder(2000, Some("u:r:apexd:s0")), false),
            (
                Interface::Images,
                binder(0, Some("u:r:untrusted_app:s0:c1,c2")),
                false,
            ),
            (
                Interface::Diagnostics,
                binder(2000, Some("u:r:shell:s0")),
                true,
            ),
            (
                Interface::Diagnostics,
                binder(10_001, Some("u:r:shell:s0")),
                false,
            ),
            (Interface::Reset, Caller::Socket { uid: 0, pid: 1 }, true),
            (
                Interface::Reset,
                Caller::Socket { uid: 12345, pid: 1 },
                true,
            ),
            (
                Interface::Reset,
                Caller::Socket { uid: 1000, pid: 1 },
                false,
            ),
            (Interface::Reset, Caller::Local, true),
        ];
        for (interface, caller, allowed) in cases {
            let decision = gate(interface, true).decide(&caller);
            assert_eq!(
                decision.is_ok(),
                allowed,
                "{interface} {caller:?} {decision:?}"
            );
        }
    }

    #[test]
    fn without_selinux_the_uid_decides() {
        assert!(gate(Interface::Reset, false)
            .decide(&binder(0, None))
            .is_ok());
        assert!(gate(Interface::Reset, false)
            .decide(&binder(2000, None))
            .is_err());
    }
}
