//! What cannot be is refused by name, and leaves nothing behind.

use super::support::{item, text, Bench};
use anyhow::{bail, ensure, Result};
use apexgen::{noise, ApexBuilder, Method};
use blockd::device::loops::HostLoops;
use blockd::error::Code;
use blockd::images::{AttachItem, AttachRequest, Images, Numbers, Start};
use blockd::units::Bytes;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

fn opened(path: &Path, flags: OFlag) -> Result<File> {
    Ok(File::from(open(
        path,
        flags | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?))
}

pub fn what_cannot_be_attached_is_refused() -> Result<()> {
    let bench = Bench::new("refuse", 10)?;
    let good = || ApexBuilder::new("com.example", 1);
    let archive = |name: &str, builder: ApexBuilder| -> Result<std::path::PathBuf> {
        let path = bench.path(name);
        builder.write(&path)?;
        Ok(path)
    };
    let apex = archive("good.apex", good())?;
    let text_file = bench.file("text", b"this is no archive")?;
    let deflated = archive("deflated.apex", good().method(Method::Deflated))?;
    let capex = archive("a.capex", good().entry_name("original_apex"))?;
    let unaligned = archive("unaligned.apex", good().alignment(0))?;
    let read = OFlag::O_RDONLY;
    let whole = |change: fn(&mut AttachRequest)| {
        let mut request = bench.part("x", 0);
        change(&mut request);
        request
    };
    let null = Path::new("/dev/null");
    let folder = bench.path("");
    let table: [(&str, &Path, OFlag, AttachRequest, Code); 13] = [
        (
            "no archive",
            &text_file,
            read,
            bench.apex("x"),
            Code::NotAnApex,
        ),
        (
            "deflated",
            &deflated,
            read,
            bench.apex("x"),
            Code::PayloadCompressed,
        ),
        (
            "capex",
            &capex,
            read,
            bench.apex("x"),
            Code::PayloadCompressed,
        ),
        (
            "unaligned",
            &unaligned,
            read,
            bench.apex("x"),
            Code::PayloadUnaligned,
        ),
        (
            "a name alone",
            &apex,
            OFlag::O_PATH,
            bench.apex("x"),
            Code::InvalidRequest,
        ),
        (
            "write-only",
            &apex,
            OFlag::O_WRONLY,
            bench.apex("x"),
            Code::InvalidRequest,
        ),
        (
            "a folder",
            &folder,
            read,
            bench.apex("x"),
            Code::InvalidRequest,
        ),
        (
            "a character device",
            null,
            read,
            bench.part("x", 0),
            Code::InvalidRequest,
        ),
        (
            "writable from read-only",
            &apex,
            read,
            whole(|r| r.read_only = false),
            Code::ReadOnly,
        ),
        (
            "offset outside",
            &apex,
            read,
            bench.part("x", 1 << 40),
            Code::OutOfRange,
        ),
        (
            "offset 100",
            &apex,
            read,
            bench.part("x", 100),
            Code::OutOfRange,
        ),
        (
            "block size",
            &apex,
            read,
            whole(|r| r.block_size = Some(3000)),
            Code::InvalidRequest,
        ),
        (
            "length",
            &apex,
            read,
            whole(|r| r.length = Some(Bytes(1 << 30))),
            Code::OutOfRange,
        ),
    ];
    for (name, path, flags, request, want) in table {
        let file = opened(path, flags)?;
        match bench.images.attach(&AttachItem { file, request }) {
            Err(failure) => {
                ensure!(failure.code == want, "{name}: {failure}");
                ensure!(!failure.remedy.is_empty(), "{name}: no remedy");
            }
            Ok(_) => bail!("{name} was attached"),
        }
        ensure!(bench.attached()?.is_empty(), "{name} left a device");
    }
    // The good one shows that the refusals are not for another reason.
    drop(bench.attach(&apex, bench.apex("x"))?);
    bench.is_clean()
}

pub fn one_bad_item_spoils_no_other() -> Result<()> {
    let bench = Bench::new("spoil", 11)?;
    let path = bench.file("file", &noise(65536, 2))?;
    let mut items = Vec::new();
    for i in 0..12 {
        let mut request = bench.part(i, 0);
        if i % 3 == 1 {
            request.start = Start::Payload;
        }
        items.push(item(&path, request)?);
    }
    let results = bench.images.attach_all(&items).map_err(text)?;
    for (i, result) in results.iter().enumerate() {
        match result {
            Ok(_) => ensure!(i % 3 != 1, "item {i}"),
            Err(failure) => ensure!(i % 3 == 1 && failure.code == Code::NotAnApex, "{failure}"),
        }
    }
    ensure!(bench.attached()?.len() == 8);
    drop(results);
    bench.is_clean()
}

pub fn without_loop_control_it_is_said() -> Result<()> {
    let bench = Bench::new("control", 12)?;
    let path = bench.file("file", &noise(8192, 3))?;
    let loops = HostLoops::at(bench.path("loop-control"), ["/dev/block", "/dev"]);
    let images = Images::with(loops, Numbers::From(bench.base()));
    for result in [
        images.precreate(1),
        images.attach(&item(&path, bench.part("x", 0))?).map(drop),
    ] {
        match result {
            Err(failure) => {
                ensure!(failure.code == Code::NoLoopControl, "{failure}");
                ensure!(
                    failure.remedy.contains("modprobe loop"),
                    "{}",
                    failure.remedy
                );
            }
            Ok(()) => bail!("it worked without loop-control"),
        }
    }
    bench.is_clean()
}

/// Folders without nodes, as in a container or before ueventd.
pub fn a_missing_node_is_told_from_a_late_one() -> Result<()> {
    let bench = Bench::new("node", 13)?;
    let path = bench.file("file", &noise(8192, 4))?;
    let nodes = bench.path("nodes");
    std::fs::create_dir(&nodes)?;
    let images = || {
        let loops = HostLoops::at("/dev/loop-control", [&nodes]);
        Images::with(loops, Numbers::From(bench.base()))
    };
    match images().attach(&item(&path, bench.part("missing", 0))?) {
        Err(failure) => ensure!(failure.code == Code::NodeMissing, "{failure}"),
        Ok(_) => bail!("attached without a node"),
    }
    // ueventd comes while it waits.
    let base = bench.base();
    let ueventd = std::thread::spawn({
        let nodes = nodes.clone();
        move || -> std::io::Result<()> {
            std::thread::sleep(Duration::from_millis(100));
            for number in base..base + 64 {
                symlink(
                    format!("/dev/loop{number}"),
                    nodes.join(format!("loop{number}")),
                )?;
            }
            Ok(())
        }
    });
    let late = images().attach(&item(&path, bench.part("late", 0))?);
    ueventd.join().expect("no panic")?;
    let late = late.map_err(text)?;
    ensure!(late.node.starts_with(&nodes), "{}", late.node.display());
    drop(late);
    bench.is_clean()
}
