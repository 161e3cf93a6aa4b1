//! What this machine has.

use blockd::device::mapper::{HostMapper, Mapper};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Not the guest: sources, compilers, host tools.
    Host,
    /// The guest: real binder, the card behind a real MMC stack.
    Guest,
    /// uid 0.
    Root,
    /// A loop driver with LOOP_CONFIGURE.
    Loop,
    /// Device-mapper.
    Mapper,
    /// A file system in the kernel.
    FileSystem(&'static str),
    /// The real APEX files.
    ApexFiles,
    /// A program on PATH.
    Program(&'static str),
}

/// What was found.
pub struct Needs {
    guest: bool,
    require_all: bool,
}

impl Needs {
    /// Looks.
    pub fn probe(guest: bool) -> Needs {
        Needs {
            guest,
            require_all: std::env::var("BLOCKD_REQUIRE").is_ok_and(|v| v == "all"),
        }
    }

    /// True where missing one of `needs` is a failure: `BLOCKD_REQUIRE=all`, and the case does not
    /// belong to the other kind of machine. What the kernel of a build machine has is its owner's
    /// choice; the guest's has all of it.
    pub fn must_have(&self, needs: &[Need]) -> bool {
        let elsewhere = if self.guest { Need::Host } else { Need::Guest };
        let of_kernel = |need: &Need| matches!(need, Need::Mapper | Need::FileSystem(_));
        let guest_does_it = !self.guest && needs.iter().any(of_kernel);
        self.require_all && !needs.contains(&elsewhere) && !guest_does_it
    }

    /// Why `needs` are not met, or `None` where they are.
    pub fn missing(&self, needs: &[Need]) -> Option<String> {
        needs.iter().find_map(|need| self.why_missing(*need))
    }

    fn why_missing(&self, need: Need) -> Option<String> {
        let (met, reason) = match need {
            Need::Host => (!self.guest, "runs on the build machine only".to_owned()),
            Need::Guest => (self.guest, "runs in the guest only".to_owned()),
            Need::Root => (nix::unistd::geteuid().is_root(), "needs root".to_owned()),
            Need::Loop => (
                has_loop_configure(),
                "needs /dev/loop-control and LOOP_CONFIGURE (Linux 5.8)".to_owned(),
            ),
            Need::Mapper => (
                HostMapper::new().prepare().is_ok(),
                "needs device-mapper (dm-mod, dm-verity)".to_owned(),
            ),
            Need::FileSystem(name) => (
                has_file_system(name),
                format!("needs the file system {name} in the kernel"),
            ),
            Need::ApexFiles => (
                apex_files().is_some(),
                "needs the real APEX files (BLOCKD_APEX_DIR)".to_owned(),
            ),
            Need::Program(name) => (has_program(name), format!("needs the program {name}")),
        };
        (!met).then_some(reason)
    }
}

/// The folder of the real APEX files.
pub fn apex_files() -> Option<PathBuf> {
    let named = std::env::var_os("BLOCKD_APEX_DIR").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/apex");
    named
        .into_iter()
        .chain([beside])
        .find(|dir| dir.join("sharedlibs.apex").exists())
}

/// Asks one free device, which stays free.
fn has_loop_configure() -> bool {
    use blockd::device::loops::{HostLoops, Loops, NodeMode};
    let loops = HostLoops::new();
    let Ok(number) = loops.free_number() else {
        return false;
    };
    let limit = std::time::Duration::from_secs(2);
    loops
        .open(number, NodeMode::ReadOnly, limit)
        .is_ok_and(|device| loops.configure_supported(device.as_ref()).is_ok())
}

fn has_file_system(name: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|line| line.split('\t').nth(1) == Some(name))
}

fn has_program(name: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {name}")])
        .output()
        .is_ok_and(|output| output.status.success())
}
