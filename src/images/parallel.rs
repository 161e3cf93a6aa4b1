//! Doing a batch: in one thread as long as that is fastest.
//!
//! Attaching takes some 20 µs of CPU, less than making a thread. But Linux 6.18 writes back the
//! backing file inside LOOP_CONFIGURE (drivers/block/loop.c, `vfs_fsync`): on a file system that is
//! written to, an item then waits for the disk, and many can wait at once.

use nix::time::{clock_gettime, ClockId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Threads that help where items wait for a disk. More brought nothing.
pub(super) const HELPERS: usize = 7;
/// A wait of one item that pays for the helpers.
const LONG_WAIT: Duration = Duration::from_micros(100);

/// Runs `work` on each item; the results are in the items' order. `helpers` is asked after an item
/// that waited, and says how many threads are worth their making.
pub(super) fn run_all<I: Sync, R: Send>(
    items: &[I],
    helpers: impl Fn() -> usize,
    work: impl Fn(&I) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let one = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let result = work(items.get(index)?);
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push((index, result));
        Some(())
    };
    let help = || while one().is_some() {};
    std::thread::scope(|scope| {
        let mut helped = false;
        loop {
            let before = times();
            if one().is_none() {
                break;
            }
            if helped || waited(before, times()) < LONG_WAIT {
                continue;
            }
            helped = true;
            let left = items.len().saturating_sub(next.load(Ordering::Relaxed));
            for _ in 0..helpers().min(left) {
                // Where no thread can be had this one does it all.
                if std::thread::Builder::new()
                    .spawn_scoped(scope, help)
                    .is_err()
                {
                    break;
                }
            }
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The clock, and the CPU time that this thread has used.
fn times() -> (Instant, Duration) {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    (Instant::now(), used.map_or(Duration::ZERO, Duration::from))
}

/// Time that passed without work.
fn waited(before: (Instant, Duration), after: (Instant, Duration)) -> Duration {
    let used = after.1.saturating_sub(before.1);
    after.0.duration_since(before.0).saturating_sub(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn threads(items: &[u64], work: impl Fn(&u64) + Sync) -> usize {
        let seen = Mutex::new(BTreeSet::new());
        let results = run_all(
            items,
            || HELPERS,
            |item| {
                let id = format!("{:?}", std::thread::current().id());
                seen.lock().unwrap().insert(id);
                work(item);
                *item
            },
        );
        assert_eq!(results, items, "in order, each once");
        seen.into_inner().unwrap().len()
    }

    #[test]
    fn items_that_wait_are_done_side_by_side() {
        let items: Vec<u64> = (0..32).collect();
        let wait = |_: &u64| std::thread::sleep(Duration::from_millis(5));
        let threads = threads(&items, wait);
        assert!((2..=1 + HELPERS).contains(&threads), "{threads}");
    }

    #[test]
    fn nothing_and_one_item_are_batches_too() {
        assert_eq!(threads(&[], |_| ()), 0);
        assert_eq!(threads(&[7], |_| ()), 1);
    }
}
