//! Numbers of loop devices.
//!
//! LOOP_CTL_GET_FREE names a device that is idle at that moment and reserves nothing: threads that
//! attach at once get the same one. Numbers of our own have no such race, and making the devices
//! ahead takes the 0.2 ms of LOOP_CTL_ADD, and the wait for ueventd, out of the boot path. Devices
//! are never removed: LOOP_CTL_REMOVE freezes the queue and costs two grace periods.

use crate::device::Loops;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First own number: above what init, apexd and vold get from LOOP_CTL_GET_FREE, which gives the
/// lowest; below the limit of a kernel with `loop.max_part=255`, 4096.
pub const FIRST_OWN_NUMBER: u32 = 256;

/// Released devices to look for where none is idle.
const AT_A_TIME: usize = 8;

/// Own numbers in a row that may turn out to be somebody else's before the search ends.
const LONGEST_SEARCH: u32 = 256;

/// Where numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// From the kernel, LOOP_CTL_GET_FREE.
    Kernel,
    /// Our own, from this one up: LOOP_CTL_ADD.
    From(u32),
}

/// Hands out numbers.
pub struct Pool {
    numbers: Numbers,
    state: Mutex<State>,
}

struct State {
    /// Made and idle when last looked at.
    idle: BTreeSet<u32>,
    /// Handed out, and not yet bound or given up.
    taken: BTreeSet<u32>,
    /// The lowest own number that nobody has asked for.
    next: u32,
}

/// A number that nobody else gets from this pool while the ticket lives.
pub struct Ticket<'a> {
    pool: &'a Pool,
    number: u32,
}

impl Ticket<'_> {
    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Where an item or [`Pool::precreate`] is overtaken between two looks at the state, the worst that
/// happens is that two items try one number: the kernel lets one of them have it.
impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.pool.state().taken.remove(&self.number);
    }
}

impl Pool {
    /// An empty pool. Makes no device.
    pub fn new(numbers: Numbers) -> Pool {
        let next = match numbers {
            Numbers::Kernel => 0,
            Numbers::From(first) => first,
        };
        let state = State {
            idle: BTreeSet::new(),
            taken: BTreeSet::new(),
            next,
        };
        Pool {
            numbers,
            state: Mutex::new(state),
        }
    }

    /// The lock is held for set operations alone, never across a call to the kernel that waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes devices until `count` are idle; own numbers only.
    ///
    /// # Errors
    /// What LOOP_CTL_ADD gave; the devices made until then stay.
    pub fn precreate(&self, loops: &dyn Loops, count: usize) -> Result<(), Errno> {
        if self.numbers == Numbers::Kernel {
            return Ok(());
        }
        while self.state().idle.len() < count {
            let ticket = self.make(loops)?;
            self.state().idle.insert(ticket.number);
        }
        Ok(())
    }

    /// Looks for devices of ours that were released since, until `count` are idle. It asks sysfs
    /// about each: once for a batch.
    pub fn reclaim(&self, loops: &dyn Loops, count: usize) {
        let Numbers::From(first) = self.numbers else {
            return;
        };
        let (candidates, missing) = {
            let state = self.state();
            let busy = |n: &u32| state.idle.contains(n) || state.taken.contains(n);
            let candidates: Vec<u32> = (first..state.next).filter(|n| !busy(n)).collect();
            (candidates, count.saturating_sub(state.idle.len()))
        };
        let released: Vec<u32> = candidates
            .into_iter()
            .filter(|&number| !loops.is_bound(number))
            .take(missing)
            .collect();
        let mut state = self.state();
        // One that was taken in between and is not bound yet comes back with its ticket.
        let free: Vec<u32> = released
            .into_iter()
            .filter(|number| !state.taken.contains(number))
            .collect();
        state.idle.extend(free);
    }

    /// A number to try. Somebody else may bind the device before us: `EBUSY` on configuring, then
    /// the next ticket has another.
    ///
    /// # Errors
    /// What loop-control gave.
    pub fn take(&self, loops: &dyn Loops) -> Result<Ticket<'_>, Errno> {
        if self.numbers == Numbers::Kernel {
            let number = loops.free_number()?;
            return Ok(Ticket { pool: self, number });
        }
        if let Some(ticket) = self.take_idle() {
            return Ok(ticket);
        }
        self.reclaim(loops, AT_A_TIME);
        match self.take_idle() {
            Some(ticket) => Ok(ticket),
            None => self.make(loops),
        }
    }

    fn take_idle(&self) -> Option<Ticket<'_>> {
        let mut state = self.state();
        let number = state.idle.pop_first()?;
        state.taken.insert(number);
        Some(Ticket { pool: self, number })
    }

    /// The next own number whose device is new, or was there and is idle.
    fn make(&self, loops: &dyn Loops) -> Result<Ticket<'_>, Errno> {
        for _ in 0..LONGEST_SEARCH {
            let number = {
                let mut state = self.state();
                let number = state.next;
                state.next += 1;
                state.taken.insert(number);
                number
            };
            let ticket = Ticket { pool: self, number };
            match loops.add(number) {
                Ok(()) => return Ok(ticket),
                Err(Errno::EEXIST) if !loops.is_bound(number) => return Ok(ticket),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EEXIST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::fake::FakeLoops;

    #[test]
    fn existing_idle_devices_are_used_and_bound_ones_left_alone() {
        let loops = FakeLoops::with_devices(&[(1000, false), (1001, true), (1003, true)]);
        let pool = Pool::new(Numbers::From(1000));
        pool.precreate(&loops, 3).unwrap();
        let numbers: Vec<u32> = pool.state().idle.iter().copied().collect();
        assert_eq!(numbers, [1000, 1002, 1004]);
        assert_eq!(loops.count("add"), 5);
    }

    #[test]
    fn a_second_call_makes_nothing() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(1000));
        pool.precreate(&loops, 4).unwrap();
        pool.precreate(&loops, 4).unwrap();
        assert_eq!(loops.count("add"), 4);
    }

    #[test]
    fn a_ticket_is_nobody_else_s_until_it_is_dropped() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(1000));
        let first = pool.take(&loops).unwrap();
        let second = pool.take(&loops).unwrap();
        assert_eq!((first.number(), second.number()), (1000, 1001));
        drop(first);
        assert_eq!(pool.take(&loops).unwrap().number(), 1000);
        assert_eq!(loops.count("add"), 2);
    }

    #[test]
    fn released_devices_are_used_before_new_ones_are_made() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(1000));
        for _ in 0..50 {
            drop(pool.take(&loops).unwrap());
        }
        assert_eq!(loops.count("add"), 1);
    }

    #[test]
    fn the_search_ends() {
        let all: Vec<(u32, bool)> = (0..2000).map(|n| (n, true)).collect();
        let loops = FakeLoops::with_devices(&all);
        let pool = Pool::new(Numbers::From(0));
        assert_eq!(pool.take(&loops).err(), Some(Errno::EEXIST));
    }

    #[test]
    fn the_kernel_s_numbers_are_asked_for_one_by_one() {
        let loops = FakeLoops::with_devices(&[(0, true), (1, false)]);
        let pool = Pool::new(Numbers::Kernel);
        pool.precreate(&loops, 8).unwrap();
        assert_eq!(pool.take(&loops).unwrap().number(), 1);
        assert_eq!((loops.count("add"), loops.count("free_number")), (0, 1));
    }
}
