//! Devices among others: leases, openers, strangers, races.

use super::support::{contents, item, sysfs, text, Bench};
use anyhow::{bail, ensure, Context, Result};
use apexgen::noise;
use blockd::device::loops::{HostLoops, NodeMode, Setup};
use blockd::device::Loops;
use blockd::error::Code;
use blockd::images::{AttachRequest, Attached, Detached, Images, Numbers};
use blockd::units::Bytes;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Nothing but the descriptor keeps the device: not the service, not the file.
pub fn the_lease_is_the_descriptor() -> Result<()> {
    let bench = Bench::new("lease", 5)?;
    let bytes = noise(8192, 6);
    let path = bench.file("file", &bytes)?;
    let attached = bench.attach(&path, bench.part("one", 0))?;
    std::fs::remove_file(&path)?;
    ensure!(
        contents(&attached)? == bytes,
        "after the file's name is gone"
    );
    let copy = attached.device.try_clone()?;
    let number = attached.number;
    drop(attached);
    ensure!(
        bench.attached()? == [number],
        "a copy of the lease holds the device"
    );
    drop(copy);
    bench.is_clean()
}

pub fn a_device_in_use_goes_with_its_last_opener() -> Result<()> {
    let bench = Bench::new("use", 6)?;
    let path = bench.file("file", &noise(8192, 7))?;
    let stays = |name| AttachRequest {
        autoclear: false,
        ..bench.part(name, 0)
    };
    let kept = bench.attach(&path, stays("kept"))?;
    ensure!(sysfs(kept.number, "loop/autoclear")? == "0");
    let (number, device) = (kept.number, kept.device);
    let deferred = bench.images.detach(number).map_err(text)?;
    ensure!(deferred == Detached::Deferred, "{deferred:?}");
    ensure!(bench.attached()? == [number], "it was open");
    drop(device);
    bench.is_clean()?;

    let idle = bench.attach(&path, stays("idle"))?;
    let number = idle.number;
    drop(idle);
    ensure!(bench.attached()? == [number], "without autoclear it stays");
    let now = bench.images.detach(number).map_err(text)?;
    ensure!(now == Detached::Now, "{now:?}");
    bench.is_clean()?;
    match bench.images.detach(number) {
        Err(failure) if failure.code == Code::NoSuchDevice => Ok(()),
        other => bail!("detached twice: {other:?}"),
    }
}

/// A device of somebody else's between ours.
struct Sentinel {
    loops: HostLoops,
    number: u32,
}

impl Sentinel {
    fn new(path: &Path, number: u32) -> Result<Sentinel> {
        let loops = HostLoops::new();
        let _ = loops.add(number);
        let device = loops.open(number, NodeMode::ReadOnly, Duration::from_secs(2))?;
        let setup = Setup {
            block_size: 512,
            offset: Bytes(0),
            size_limit: Bytes(4096),
            read_only: true,
            autoclear: false,
            direct_io: false,
            tag: format!("somebody-else-{}", std::process::id()),
        };
        device.configure(File::open(path)?.as_fd(), &setup)?;
        Ok(Sentinel { loops, number })
    }

    fn is_there(&self) -> bool {
        self.loops.is_bound(self.number)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Ok(device) = self
            .loops
            .open(self.number, NodeMode::ReadOnly, Duration::ZERO)
        {
            let _ = device.clear();
        }
    }
}

pub fn somebody_else_s_device_survives() -> Result<()> {
    let bench = Bench::new("sentinel", 7)?;
    let path = bench.file("file", &noise(8192, 8))?;
    // In the middle of the numbers that this case takes.
    let sentinel = Sentinel::new(&path, bench.base() + 1)?;
    let mut leases = Vec::new();
    for i in 0..4 {
        leases.push(bench.attach(&path, bench.part(i, 0))?);
    }
    let numbers: Vec<u32> = leases.iter().map(|l| l.number).collect();
    ensure!(!numbers.contains(&sentinel.number), "{numbers:?}");
    match bench.images.detach(sentinel.number) {
        Err(failure) if failure.code == Code::Permission => {
            ensure!(failure.message.contains("somebody-else"), "{failure}");
        }
        other => bail!("somebody else's device was detached: {other:?}"),
    }
    let listed = |all| -> Result<bool> {
        let listing = bench.images.list(all).map_err(text)?;
        Ok(listing.devices.iter().any(|d| d.number == sentinel.number))
    };
    ensure!(listed(true)? && !listed(false)?);
    drop(leases);
    bench.is_clean()?;
    ensure!(sentinel.is_there(), "it did not survive");
    Ok(())
}

/// Pools that do not know of each other, as in several processes, want the same devices at once.
pub fn four_pools_share_numbers() -> Result<()> {
    const POOLS: usize = 4;
    const EACH: usize = 12;
    let bench = Bench::new("race", 8)?;
    let path = bench.file("file", &noise(8192, 9))?;
    let attach = |pool: usize| -> Result<Vec<Attached>> {
        let images = Images::with(HostLoops::new(), Numbers::From(bench.base()));
        images.precreate(EACH).map_err(text)?;
        let items = (0..EACH).map(|i| item(&path, bench.part(format!("{pool}-{i}"), 0)));
        let items = items.collect::<Result<Vec<_>>>()?;
        let results = images.attach_all(&items).map_err(text)?;
        results.into_iter().map(|r| r.map_err(text)).collect()
    };
    let leases: Vec<Result<Vec<Attached>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..POOLS)
            .map(|pool| scope.spawn(move || attach(pool)))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect()
    });
    let leases: Vec<Vec<Attached>> = leases.into_iter().collect::<Result<_>>()?;
    let numbers: BTreeSet<u32> = leases.iter().flatten().map(|l| l.number).collect();
    ensure!(
        numbers.len() == POOLS * EACH,
        "a device was given out twice"
    );
    drop(leases);
    bench.is_clean()
}

/// AOSP once made 42 devices on top of those that were there.
pub fn existing_devices_are_used_again() -> Result<()> {
    let bench = Bench::new("again", 9)?;
    let path = bench.file("file", &noise(8192, 10))?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let images = Images::with(HostLoops::new(), Numbers::From(bench.base()));
        images.precreate(4).map_err(text)?;
        let items = (0..4).map(|i| item(&path, bench.part(i, 0)));
        let items = items.collect::<Result<Vec<_>>>()?;
        let results = images.attach_all(&items).map_err(text)?;
        let mut numbers = Vec::new();
        for result in &results {
            numbers.push(result.as_ref().ok().context("attached")?.number);
        }
        numbers.sort_unstable();
        seen.push(numbers);
        drop(results);
        bench.is_clean()?;
    }
    ensure!(seen[0] == seen[1] && seen[1] == seen[2], "{seen:?}");
    Ok(())
}
