//! What is attached is what was asked for.

use super::support::{check_sysfs, contents, item, text, Bench};
use anyhow::{ensure, Result};
use apexgen::noise;
use blockd::images::{AttachItem, AttachRequest, Attached, MAX_ITEMS};
use blockd::units::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Forty APEX files of different contents: 32 and 8, as a client splits them.
pub fn forty_apexes_in_two_calls() -> Result<()> {
    const COUNT: usize = 40;
    let bench = Bench::new("forty", 0)?;
    bench.images.precreate(COUNT).map_err(text)?;
    let mut items = Vec::new();
    let mut windows = Vec::new();
    let payload = |i: usize| noise(64 * 1024 + i * 4096, i as u64);
    for i in 0..COUNT {
        let path = bench.path(&format!("{i}.apex"));
        let window = apexgen::ApexBuilder::new("com.example", i as u64)
            .payload(payload(i))
            .write(&path)?;
        let mut request = bench.apex(i);
        request.read_ahead = Some(Bytes(128 << 10));
        items.push(item(&path, request)?);
        windows.push(window);
    }
    let mut attached: Vec<Attached> = Vec::new();
    for call in items.chunks(MAX_ITEMS) {
        for result in bench.images.attach_all(call).map_err(text)? {
            attached.push(result.map_err(text)?);
        }
    }
    ensure!(attached.len() == COUNT);
    for (i, (attached, window)) in attached.iter().zip(&windows).enumerate() {
        let limit = window.length.to_string();
        check_sysfs(
            attached,
            &[
                ("loop/offset", &window.offset.to_string()),
                ("loop/sizelimit", &limit),
                ("loop/autoclear", "1"),
                ("size", &(window.length / 512).to_string()),
                ("ro", "1"),
                ("queue/logical_block_size", "4096"),
                ("queue/read_ahead_kb", "128"),
            ],
        )?;
        // Where the folder is on a file system without direct I/O there is a warning instead.
        let direct = if attached.warnings.is_empty() {
            "1"
        } else {
            "0"
        };
        check_sysfs(attached, &[("loop/dio", direct)])?;
        ensure!(contents(attached)? == payload(i), "contents of item {i}");
        ensure!(
            attached.number >= bench.base(),
            "number {}",
            attached.number
        );
    }
    ensure!(bench.attached()?.len() == COUNT);
    drop(attached);
    bench.is_clean()
}

/// A part of an ordinary file, in the smallest blocks, where direct I/O cannot be.
pub fn a_window_of_any_file() -> Result<()> {
    let bench = Bench::new("window", 1)?;
    let bytes = noise(100_000, 1);
    let path = bench.file("file", &bytes)?;
    let request = AttachRequest {
        length: Some(Bytes(1024)),
        block_size: Some(512),
        ..bench.part("part", 1536)
    };
    let part = bench.attach(&path, request)?;
    ensure!(contents(&part)? == bytes[1536..2560]);
    check_sysfs(
        &part,
        &[("loop/dio", "0"), ("queue/logical_block_size", "512")],
    )?;
    ensure!(part.warnings.len() == 1, "{:?}", part.warnings);

    let whole = bench.attach(&path, bench.part("whole", 0))?;
    ensure!(
        contents(&whole)? == bytes[..98_304],
        "up to the last whole block"
    );
    ensure!(
        whole.warnings.iter().any(|w| w.contains("1696 bytes")),
        "{:?}",
        whole.warnings
    );
    drop((part, whole));
    bench.is_clean()
}

pub fn a_writable_device_writes_to_its_file() -> Result<()> {
    let bench = Bench::new("write", 2)?;
    let path = bench.file("file", &[0; 65536])?;
    let file = || File::options().read(true).write(true).open(&path);
    let request = AttachRequest {
        read_only: false,
        ..bench.part("rw", 4096)
    };
    let item = AttachItem {
        file: file()?,
        request,
    };
    let attached = bench.images.attach(&item).map_err(text)?;
    let device = File::from(attached.device.try_clone()?);
    device.write_all_at(b"through the device", 8192)?;
    device.sync_all()?;
    let mut read = [0; 18];
    file()?.read_exact_at(&mut read, 4096 + 8192)?;
    ensure!(&read == b"through the device");

    // The same file read-only: the kernel refuses the write.
    let request = bench.part("ro", 0);
    let item = AttachItem {
        file: file()?,
        request,
    };
    let read_only = bench.images.attach(&item).map_err(text)?;
    let node = File::options().read(true).write(true).open(&read_only.node);
    let written = node.and_then(|node| node.write_all_at(&[1; 4096], 0));
    ensure!(written.is_err(), "a read-only device was written to");
    drop((attached, device, read_only));
    bench.is_clean()
}

pub fn a_block_device_backs_another() -> Result<()> {
    let bench = Bench::new("block", 3)?;
    let bytes = noise(65536, 4);
    let path = bench.file("file", &bytes)?;
    let lower = bench.attach(&path, bench.part("lower", 0))?;
    let upper = bench.attach(&lower.node, bench.part("upper", 4096))?;
    ensure!(contents(&upper)? == bytes[4096..]);
    // The upper one holds the lower one, lease or not.
    let number = lower.number;
    drop(lower);
    ensure!(bench.attached()?.contains(&number));
    drop(upper);
    bench.is_clean()
}

/// A memfd lies on tmpfs.
pub fn memory_is_read_without_direct_io() -> Result<()> {
    use nix::sys::memfd::{memfd_create, MFdFlags};
    let bench = Bench::new("memory", 4)?;
    let file = File::from(memfd_create("image", MFdFlags::MFD_CLOEXEC)?);
    let bytes = noise(32768, 5);
    file.write_all_at(&bytes, 0)?;
    let request = bench.part("memfd", 0);
    let attached = bench
        .images
        .attach(&AttachItem { file, request })
        .map_err(text)?;
    ensure!(
        attached.warnings == ["no direct I/O: the file lies on tmpfs"],
        "{:?}",
        attached.warnings
    );
    ensure!(contents(&attached)? == bytes);
    drop(attached);
    bench.is_clean()
}
