//! Kernels without LOOP_CONFIGURE: the ioctl is taken away by a seccomp filter, the kernel below is
//! the real one.

use super::support::{check_sysfs, contents, item, sysfs, text, Bench};
use anyhow::{anyhow, bail, ensure, Result};
use apexgen::noise;
use bench::sys;
use blockd::error::Code;
use blockd::images::{AttachItem, AttachRequest, Strategy};
use nix::errno::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Runs `work` in a thread that lacks `missing`.
fn without<T: Send>(
    missing: &[(u64, Errno)],
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let run = || {
        sys::without_ioctls(missing)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .map_err(|_| anyhow!("the thread panicked"))?
}

/// The two answers of kernels that do not know the call.
pub fn without_loop_configure_images_are_attached() -> Result<()> {
    const COUNT: usize = 12;
    for (place, errno) in [(20, Errno::EINVAL), (21, Errno::ENOTTY)] {
        let bench = Bench::new(&format!("rescue-{errno}"), place)?;
        let payload = |i: usize| noise(65536 + i * 4096, i as u64);
        let mut items = Vec::new();
        let mut windows = Vec::new();
        for i in 0..COUNT {
            let path = bench.path(&format!("{i}.apex"));
            let builder = apexgen::ApexBuilder::new("com.example", i as u64);
            windows.push(builder.payload(payload(i)).write(&path)?);
            items.push(item(&path, bench.apex(i))?);
        }
        let results = without(&[(sys::LOOP_CONFIGURE, errno)], || {
            bench.images.attach_all(&items).map_err(text)
        })?;
        let attached = results.into_iter().map(|r| r.map_err(text));
        let attached = attached.collect::<Result<Vec<_>>>()?;
        ensure!(attached.len() == COUNT);
        for (i, (attached, window)) in attached.iter().zip(&windows).enumerate() {
            ensure!(attached.plan.strategy == Strategy::SetFd);
            ensure!(attached.plan.reason.contains("no LOOP_CONFIGURE"));
            check_sysfs(
                attached,
                &[
                    ("loop/offset", &window.offset.to_string()),
                    ("loop/sizelimit", &window.length.to_string()),
                    ("loop/autoclear", "1"),
                    ("ro", "1"),
                ],
            )?;
            ensure!(contents(attached)? == payload(i), "contents of item {i}");
        }
        ensure!(bench.attached()?.len() == COUNT, "all have their tags");
        drop(attached);
        bench.is_clean()?;
    }
    Ok(())
}

/// What is asked for by number is had, at the price of another freeze.
pub fn without_loop_configure_options_hold() -> Result<()> {
    let bench = Bench::new("rescue-options", 22)?;
    let path = bench.file("file", &[0; 65536])?;
    let request = AttachRequest {
        read_only: false,
        block_size: Some(2048),
        autoclear: false,
        ..bench.part("rw", 4096)
    };
    let file = File::options().read(true).write(true).open(&path)?;
    let item = AttachItem { file, request };
    let attached = without(&[(sys::LOOP_CONFIGURE, Errno::EINVAL)], || {
        bench.images.attach(&item).map_err(text)
    })?;
    let number = attached.number;
    check_sysfs(
        &attached,
        &[
            ("queue/logical_block_size", "2048"),
            ("loop/autoclear", "0"),
            ("loop/dio", "0"),
            ("ro", "0"),
        ],
    )?;
    let device = File::from(attached.device);
    device.write_all_at(b"through the device", 8192)?;
    device.sync_all()?;
    drop(device);
    ensure!(std::fs::read(&path)?[12288..].starts_with(b"through the device"));
    ensure!(sysfs(number, "loop/offset")? == "4096", "it stays");
    bench.images.detach(number).map_err(text)?;
    bench.is_clean()
}

/// A bind that fails half-way is undone, whichever of its calls fails.
pub fn a_half_made_device_is_undone() -> Result<()> {
    let bench = Bench::new("rescue-half", 23)?;
    let path = bench.file("file", &noise(65536, 3))?;
    let request = AttachRequest {
        block_size: Some(4096),
        ..bench.part("half", 4096)
    };
    for call in [sys::LOOP_SET_STATUS64, sys::LOOP_SET_BLOCK_SIZE] {
        let missing = [(sys::LOOP_CONFIGURE, Errno::EINVAL), (call, Errno::EIO)];
        let item = item(&path, request.clone())?;
        let result = without(&missing, || Ok(bench.images.attach(&item)))?;
        match result {
            Err(failure) if failure.code == Code::DeviceFailed => {
                ensure!(failure.errno == Some(Errno::EIO), "{failure}");
            }
            other => bail!("without {call:#x}: {other:?}"),
        }
        // Not by its tag alone: that may not have been set yet.
        for number in bench.base()..bench.base() + 8 {
            let bound = sysfs(number, "loop/backing_file");
            ensure!(bound.is_err(), "loop{number} is bound to {bound:?}");
        }
    }
    bench.is_clean()
}
