//! Numbers of loop devices.
//!
//! LOOP_CTL_GET_FREE names a device that is idle at that moment and reserves nothing: threads that
//! attach at once get the same one. Numbers of our own have no such race, and making the devices
//! ahead takes the 0.2 ms of LOOP_CTL_ADD, and the wait for ueventd, out of the boot path. Devices
//! are never removed: LOOP_CTL_REMOVE freezes the queue and costs two grace periods.

use crate::device::Loops;
use nix::errno::Errno;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First own number: above what init, apexd and vold get from LOOP_CTL_GET_FREE, which gives the
/// lowest; below the limit of a kernel with `loop.max_part=255`, 4096.
pub const FIRST_OWN_NUMBER: u32 = 256;

/// Devices of ours that may be tried for one number although they were bound when last seen, before
/// a new one is made. A try costs 6 µs, looking at sysfs 13, making a device 200.
const GUESSES: usize = 8;

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
    /// Made and idle when last seen.
    idle: BTreeSet<u32>,
    /// Bound when last seen, the longest time ago first. Nobody tells when a client closes a lease.
    bound: VecDeque<u32>,
    /// Guesses in a row that were wrong.
    wrong: usize,
    /// The lowest own number that nobody has asked for.
    next: u32,
}

/// How sure it is that a device is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Idle,
    /// It was bound when last seen.
    Guess,
}

/// A number that nobody else gets from this pool while the ticket lives.
pub struct Ticket<'a> {
    pool: &'a Pool,
    number: u32,
    known: Known,
    bound: Cell<bool>,
}

impl Ticket<'_> {
    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the device may well be bound: `EBUSY` is then no lost race.
    pub fn is_guess(&self) -> bool {
        self.known == Known::Guess
    }

    /// The device has our file now.
    pub fn bound(&self) {
        self.bound.set(true);
        if self.is_guess() {
            self.pool.state().wrong = 0;
        }
    }

    /// The device has a file of somebody's, or is about to lose it.
    pub fn busy(&self) {
        self.bound.set(true);
        if self.is_guess() {
            self.pool.state().wrong += 1;
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.pool.numbers == Numbers::Kernel {
            return;
        }
        let mut state = self.pool.state();
        if self.bound.get() {
            state.bound.push_back(self.number);
        } else {
            state.idle.insert(self.number);
        }
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
            bound: VecDeque::new(),
            wrong: 0,
            next,
        };
        Pool {
            numbers,
            state: Mutex::new(state),
        }
    }

    /// The lock is held for set operations alone, never across a call to the kernel.
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
            drop(self.make(loops)?);
        }
        Ok(())
    }

    /// A number to try; `guesses` counts those of this item that were bound when last seen.
    /// Somebody else may bind the device before us: `EBUSY` on configuring, then the next ticket
    /// has another.
    ///
    /// # Errors
    /// What loop-control gave.
    pub fn take(&self, loops: &dyn Loops, guesses: &mut usize) -> Result<Ticket<'_>, Errno> {
        if self.numbers == Numbers::Kernel {
            return Ok(self.ticket(loops.free_number()?, Known::Idle));
        }
        let mut state = self.state();
        if let Some(number) = state.idle.pop_first() {
            return Ok(self.ticket(number, Known::Idle));
        }
        // Where all of them were looked at in vain, one tells whether that has changed.
        let all_bound = state.wrong >= state.bound.len();
        if *guesses < if all_bound { 1 } else { GUESSES } {
            if let Some(number) = state.bound.pop_front() {
                *guesses += 1;
                return Ok(self.ticket(number, Known::Guess));
            }
        }
        drop(state);
        self.make(loops)
    }

    fn ticket(&self, number: u32, known: Known) -> Ticket<'_> {
        Ticket {
            pool: self,
            number,
            known,
            bound: Cell::new(false),
        }
    }

    /// The next own number whose device is new, or was there and is idle.
    fn make(&self, loops: &dyn Loops) -> Result<Ticket<'_>, Errno> {
        for _ in 0..LONGEST_SEARCH {
            let number = {
                let mut state = self.state();
                state.next += 1;
                state.next - 1
            };
            let ticket = self.ticket(number, Known::Idle);
            match loops.add(number) {
                Ok(()) => return Ok(ticket),
                Err(Errno::EEXIST) if !loops.is_bound(number) => return Ok(ticket),
                // Somebody else's, for now.
                Err(Errno::EEXIST) => ticket.busy(),
                Err(errno) => {
                    // There is no such device to be had back.
                    std::mem::forget(ticket);
                    let mut state = self.state();
                    if state.next == number + 1 {
                        state.next = number;
                    }
                    return Err(errno);
                }
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

    /// Takes a number and says what became of it.
    fn take<'a>(pool: &'a Pool, loops: &FakeLoops) -> Ticket<'a> {
        pool.take(loops, &mut 0).unwrap()
    }

    #[test]
    fn a_ticket_is_nobody_else_s_until_it_is_dropped() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(1000));
        let first = take(&pool, &loops);
        let second = take(&pool, &loops);
        assert_eq!((first.number(), second.number()), (1000, 1001));
        drop(first);
        assert_eq!(take(&pool, &loops).number(), 1000);
        assert_eq!(loops.count("add"), 2);
    }

    #[test]
    fn devices_that_were_bound_are_guessed_before_new_ones_are_made() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(1000));
        for _ in 0..50 {
            take(&pool, &loops).bound();
        }
        assert_eq!(loops.count("add"), 1);
    }

    #[test]
    fn guessing_wrong_makes_it_rare() {
        let loops = FakeLoops::default();
        let pool = Pool::new(Numbers::From(0));
        pool.precreate(&loops, 100).unwrap();
        for _ in 0..100 {
            take(&pool, &loops).bound();
        }
        // All bound still: the items look at each of them once, then at one each.
        let mut tries = Vec::new();
        for _ in 0..20 {
            let (mut guesses, mut lost) = (0, Vec::new());
            loop {
                let ticket = pool.take(&loops, &mut guesses).unwrap();
                if !ticket.is_guess() {
                    ticket.bound();
                    break;
                }
                ticket.busy();
                lost.push(ticket);
            }
            tries.push(guesses);
        }
        assert_eq!(tries[0], GUESSES);
        assert_eq!(tries[19], 1, "{tries:?}");
        // One that is free again is found, and the others are asked for once more.
        take(&pool, &loops).bound();
        assert_eq!(pool.state().wrong, 0);
        assert_eq!(loops.count("add"), 120);
    }

    #[test]
    fn a_number_that_could_not_be_made_is_tried_again() {
        let loops = FakeLoops::default();
        loops.fail("add", &[Errno::ENOMEM]);
        let pool = Pool::new(Numbers::From(1000));
        assert_eq!(pool.take(&loops, &mut 0).err(), Some(Errno::ENOMEM));
        assert_eq!(take(&pool, &loops).number(), 1000);
    }

    #[test]
    fn the_search_ends() {
        let all: Vec<(u32, bool)> = (0..2000).map(|n| (n, true)).collect();
        let loops = FakeLoops::with_devices(&all);
        let pool = Pool::new(Numbers::From(0));
        assert_eq!(pool.take(&loops, &mut 0).err(), Some(Errno::EEXIST));
    }

    #[test]
    fn the_kernel_s_numbers_are_asked_for_one_by_one() {
        let loops = FakeLoops::with_devices(&[(0, true), (1, false)]);
        let pool = Pool::new(Numbers::Kernel);
        pool.precreate(&loops, 8).unwrap();
        assert_eq!(take(&pool, &loops).number(), 1);
        assert_eq!((loops.count("add"), loops.count("free_number")), (0, 1));
    }
}
