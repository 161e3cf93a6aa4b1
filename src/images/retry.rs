//! Trying again where somebody else was faster.

use super::Step;
use crate::device::Loops;
use crate::error::{Code, Result};
use nix::errno::Errno;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Tries in all, as systemd has it. With the pauses below that is at most about a second.
pub const TRIES: u32 = 64;
/// Tries without a pause: a race is lost to one winner, and the next number is another.
const AT_ONCE: u32 = 4;
/// Longest pause.
const LONGEST: Duration = Duration::from_millis(20);

/// Counts and paces the tries of one item.
pub(super) struct Retry<'a> {
    loops: &'a dyn Loops,
    tries: u32,
}

impl<'a> Retry<'a> {
    pub fn new(loops: &'a dyn Loops) -> Retry<'a> {
        Retry { loops, tries: 1 }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// `NO_FREE_LOOP` with the last errno when there were enough.
    pub fn again(&mut self, errno: Errno) -> Result<()> {
        if self.tries >= TRIES {
            let text = format!("{TRIES} loop devices in turn were taken by somebody else");
            let remedy = "something attaches loop devices without a pause: `losetup -a`";
            let failure = Step::Configure.fail(Code::NoFreeLoop, text);
            return Err(failure.errno(errno).remedy(remedy));
        }
        if self.tries >= AT_ONCE {
            let longest = LONGEST.min(Duration::from_millis(1) * (self.tries - AT_ONCE + 1));
            self.loops.pause(jitter(longest));
        }
        self.tries += 1;
        Ok(())
    }
}

/// A time up to `longest`: those who lost together must not come back together.
fn jitter(longest: Duration) -> Duration {
    // The standard library's only source of chance: the keys of a new hasher.
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % (longest.as_micros() as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_are_bounded() {
        let longest = Duration::from_millis(20);
        let pauses: Vec<Duration> = (0..50).map(|_| jitter(longest)).collect();
        assert!(pauses.iter().all(|pause| *pause <= longest));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
