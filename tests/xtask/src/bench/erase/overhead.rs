//! What the product itself takes of a reset's wall time, on the card model in process: all but the
//! steps that wait for the card.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Context, Result};
use blockd::device::{Access, Block, Mmc, Storage, Sysfs};
use blockd::reset::report::Report;
use blockd::reset::request::Request;
use blockd::reset::step::Step;
use blockd::reset::Reset;
use emmc::machine::Machine;
use nix::errno::Errno;

use super::table;

/// The median of so many resets counts.
const ROUNDS: usize = 9;
/// Steps that are the card's: ioctls, canaries, read-back, flushes, marker.
const OF_THE_CARD: &[Step] = &[
    Step::Flush,
    Step::Marker,
    Step::Canaries,
    Step::Edges,
    Step::Erase,
    Step::Sanitize,
    Step::CardCache,
    Step::DropCaches,
    Step::Verify,
];

/// The model under this machine's clock, so that steps are timed by it.
struct WallClock {
    machine: Machine,
    start: Instant,
}

impl Storage for WallClock {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.machine.open_mmc(disk)
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        self.machine.open_block(name, access)
    }
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

/// Wall times, medians.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// The product's own, milliseconds.
    pub own_ms: f64,
    /// Reading back, milliseconds.
    pub verify_ms: f64,
}

/// Erases the table's range as one command, again and again.
pub fn measure() -> Result<Overhead> {
    let (mut own, mut verify) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let storage = WallClock {
            machine: table::machine()?,
            start: Instant::now(),
        };
        let begin = Instant::now();
        let report = Arc::new(Reset::new(Arc::new(storage)))
            .run(&Request::new(&["userdata"]), None)
            .map_err(|failure| anyhow!("{failure}"))?;
        let wall = begin.elapsed();
        own.push(wall.saturating_sub(time_of(&report, OF_THE_CARD)));
        verify.push(time_of(&report, &[Step::Verify]));
    }
    Ok(Overhead {
        own_ms: median(own)?,
        verify_ms: median(verify)?,
    })
}

fn time_of(report: &Report, steps: &[Step]) -> Duration {
    let wanted = report.steps.iter().filter(|(step, _)| steps.contains(step));
    wanted.map(|(_, time)| *time).sum()
}

/// Milliseconds.
fn median(mut times: Vec<Duration>) -> Result<f64> {
    times.sort();
    let middle = times.get(times.len() / 2).context("no time")?;
    Ok(middle.as_secs_f64() * 1000.0)
}
