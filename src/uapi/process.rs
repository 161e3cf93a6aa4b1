//! What a process sets for itself.

use nix::fcntl::{fcntl, FcntlArg};
use std::fs::File;
use std::path::Path;

/// Descriptors that a batch of images needs at its peak, with room to spare; within the soft
/// limit of 1024 that processes start with.
const DESCRIPTORS: i32 = 512;

/// Makes room for descriptors. To be called while the process still has one thread.
///
/// The kernel grows a full table of descriptors by doubling it, and where threads share the table
/// each step waits for an RCU grace period (fs/file.c, `expand_fdtable`): tens of milliseconds,
/// as much as a queue freeze. One that never has to grow costs a few KiB.
pub fn reserve_descriptors() {
    let Ok(any) = File::open(Path::new("/")) else {
        return;
    };
    // Only speed is lost where this fails.
    if let Ok(highest) = fcntl(&any, FcntlArg::F_DUPFD_CLOEXEC(DESCRIPTORS - 1)) {
        let _ = nix::unistd::close(highest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_grown_and_nothing_stays_open() {
        reserve_descriptors();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        assert!(size.unwrap().trim().parse::<i32>().unwrap() >= DESCRIPTORS);
        let last = format!("/proc/self/fd/{}", DESCRIPTORS - 1);
        assert!(!Path::new(&last).exists());
    }
}
