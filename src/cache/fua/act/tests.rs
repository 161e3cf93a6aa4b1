use super::*;
use crate::cache::fua::{Measurements, Pattern};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// What the fake was asked for: its one fault is a flush that does not return until it is let go.
#[derive(Default)]
struct Asked {
    reads: u64,
    plain: u64,
    durable: u64,
    syncs: u64,
    beyond: bool,
}

struct Fake {
    start: Instant,
    length: u64,
    asked: Mutex<Asked>,
    /// The fdatasync that hangs, from 1; 0 = none.
    hang_at: u64,
    /// Writes fail with this once so many were made.
    fail: Option<(u64, Errno)>,
    free: Mutex<bool>,
    freed: Condvar,
}

impl Fake {
    fn new() -> Fake {
        Fake {
            start: Instant::now(),
            length: 64 << 10,
            asked: Mutex::default(),
            hang_at: 0,
            fail: None,
            free: Mutex::new(false),
            freed: Condvar::new(),
        }
    }

    fn let_go(&self) {
        *self.free.lock().expect("a lock") = true;
        self.freed.notify_all();
    }

    fn write(&self, offset: Bytes, data: &[u8], durable: bool) -> std::result::Result<(), Errno> {
        let mut asked = self.asked.lock().expect("a lock");
        asked.beyond |= offset.0 + data.len() as u64 > self.length;
        match durable {
            true => asked.durable += 1,
            false => asked.plain += 1,
        }
        match self.fail {
            Some((after, errno)) if asked.plain > after => Err(errno),
            _ => Ok(()),
        }
    }
}

impl Medium for Fake {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> std::result::Result<(), Errno> {
        let mut asked = self.asked.lock().expect("a lock");
        asked.beyond |= offset.0 + buffer.len() as u64 > self.length;
        asked.reads += 1;
        Ok(())
    }

    fn write_at(&self, offset: Bytes, data: &[u8]) -> std::result::Result<(), Errno> {
        self.write(offset, data, false)
    }

    fn write_durable(&self, offset: Bytes, data: &[u8]) -> std::result::Result<(), Errno> {
        self.write(offset, data, true)
    }

    fn sync(&self) -> std::result::Result<(), Errno> {
        let number = {
            let mut asked = self.asked.lock().expect("a lock");
            asked.syncs += 1;
            asked.syncs
        };
        if number == self.hang_at {
            let free = self.free.lock().expect("a lock");
            let _free = self.freed.wait_while(free, |free| !*free).expect("a lock");
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

fn plan() -> Plan {
    let row = |pattern, path| Row {
        pattern,
        path,
        block: Bytes(4096),
        operations: 7,
    };
    Plan {
        length: Bytes(64 << 10),
        fill_block: Bytes(24 << 10),
        rows: vec![
            row(Pattern::RandomWrite, Path::Direct),
            row(Pattern::RandomWrite, Path::Fua),
            row(Pattern::RandomWrite, Path::Flush),
            row(Pattern::SequentialRead, Path::Direct),
        ],
        runs: 3,
        limit: Duration::from_secs(600),
        notes: Vec::new(),
    }
}

#[test]
fn every_operation_of_the_plan_is_done_and_no_other() {
    let fake = Arc::new(Fake::new());
    let report = Measurements::new()
        .carry_out(fake.clone(), plan(), None)
        .expect("a report");
    assert_eq!(report.rows.len(), 4);
    for figures in &report.rows {
        assert_eq!(figures.bytes_per_second.len(), 3);
        assert!(figures.mean() > 0.0);
        let [p50, p95, p99, longest] = figures.latency_nanos;
        assert!(p50 <= p95 && p95 <= p99 && p99 <= longest);
    }
    let asked = fake.asked.lock().expect("a lock");
    assert_eq!((asked.reads, asked.durable), (3 * 7, 3 * 7));
    // 64 KiB are filled by 24 + 24 + 16.
    assert_eq!(asked.plain, 3 + 2 * 3 * 7);
    // After the filling, after each of 3 × 4 runs, and after each write of the path flush.
    assert_eq!(asked.syncs, 1 + 3 * 4 + 3 * 7);
    assert!(!asked.beyond);
}

#[test]
fn a_flush_that_hangs_is_told_of_and_keeps_others_out() {
    let mut fake = Fake::new();
    // The third fdatasync of the path flush.
    fake.hang_at = 1 + 2 + 3;
    let fake = Arc::new(fake);
    let measurements = Measurements::new();
    let short = Plan {
        limit: Duration::from_millis(50),
        ..plan()
    };
    let failure = measurements
        .carry_out(fake.clone(), short, None)
        .expect_err("a hang");
    assert_eq!(failure.code, Code::DeviceFailed);
    assert_eq!(failure.step, "rand-write flush");
    assert!(failure.message.starts_with("flush stuck, "), "{failure}");
    assert!(failure.remedy.contains("dmesg"));
    let other = Arc::new(Fake::new());
    let refused = measurements.carry_out(other.clone(), plan(), None);
    assert_eq!(refused.expect_err("busy").code, Code::Busy);
    assert_eq!(other.asked.lock().expect("a lock").plain, 0);
    fake.let_go();
    // The thread ends by itself, without another operation.
    while measurements.busy.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fake.asked.lock().expect("a lock").syncs, fake.hang_at);
    assert!(measurements.carry_out(other, plan(), None).is_ok());
}

#[test]
fn what_fails_is_named() {
    for (errno, code, words) in [
        (Errno::ENOSPC, Code::OutOfRange, "full"),
        (Errno::EROFS, Code::ReadOnly, "read-only"),
        (Errno::EINVAL, Code::Unsupported, "block size"),
        (Errno::EIO, Code::DeviceFailed, "I/O"),
    ] {
        let mut fake = Fake::new();
        fake.fail = Some((4, errno));
        let failure = Measurements::new()
            .carry_out(Arc::new(fake), plan(), None)
            .expect_err("a failure");
        assert_eq!((failure.code, failure.errno), (code, Some(errno)));
        assert!(failure.to_string().contains(words), "{failure}");
        assert_eq!(failure.step, "rand-write direct");
    }
}

#[test]
fn an_observer_that_blocks_delays_nothing_and_one_that_leaves_ends_it() {
    let (entered, in_observer) = mpsc::channel::<()>();
    let (release, released) = mpsc::channel::<()>();
    let observer: Observer = Box::new(move |progress| {
        assert!(progress.done <= progress.total);
        let _ = entered.send(());
        let _ = released.recv();
        true
    });
    let report = Measurements::new().carry_out(Arc::new(Fake::new()), plan(), Some(observer));
    assert!(report.is_ok());
    drop(release);
    drop(in_observer);

    // One that wants no more: the flush that hangs is let go when the observer is dropped, which is
    // after its wish was noted.
    struct LetGo(Arc<Fake>);
    impl Drop for LetGo {
        fn drop(&mut self) {
            self.0.let_go();
        }
    }
    let mut fake = Fake::new();
    fake.hang_at = 1;
    let fake = Arc::new(fake);
    let guard = LetGo(Arc::clone(&fake));
    let observer: Observer = Box::new(move |_| {
        let _guard = &guard;
        false
    });
    let cancelled = Measurements::new().carry_out(fake.clone(), plan(), Some(observer));
    assert_eq!(cancelled.expect_err("a cancel").code, Code::Cancelled);
    assert_eq!(fake.asked.lock().expect("a lock").syncs, 1);
}

#[test]
fn seeded_blocks_are_inside_and_repeat() {
    let draw = |seed| {
        let mut dice = Dice(seed);
        (0..100).map(|_| dice.below(16)).collect::<Vec<u64>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    assert!(draw(3).iter().all(|n| *n < 16));
}

#[test]
fn one_after_the_other_is_not_busy() {
    let measurements = Measurements::new();
    let fake = Arc::new(Fake::new());
    for n in 0..500 {
        let next = measurements.carry_out(fake.clone(), plan(), None);
        assert!(next.is_ok(), "{n}: {next:?}");
    }
}
