//! The demonstration without a guest: the service on a Unix socket in this process, the card
//! model behind the product's device traits, images on this machine's own loop devices.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use blockd::aidl::AttachRequest::AttachRequest;
use blockd::aidl::AttachResult::AttachResult;
use blockd::aidl::Marker::Marker;
use blockd::aidl::ResetRequest::ResetRequest;
use blockd::client::{attach_all, Client, Place};
use blockd::device::loops::HostLoops;
use blockd::images::{Images, Numbers};
use blockd::reset::request::{Logical, Physical};
use blockd::service::config::{parse, Action};
use blockd::service::{error, ipc, serve};
use emmc::machine::{Machine, Partition};
use serde_json::{json, Value};

use crate::card::{self, Census};
use crate::images::{self, COUNT};
use crate::process;

/// Own loop numbers, away from everybody's: a device of somebody else is never touched.
const FIRST_NUMBER: u32 = 3000;
const BLOCK_BYTES: i32 = 4096;
const LOOP_CONTROL: &str = "/dev/loop-control";

/// Runs it; what needs the guest is null.
pub fn run() -> Result<Value> {
    let table: Vec<_> = card::PARTITIONS
        .iter()
        .map(|p| Partition::new(p.name, p.start, p.sectors))
        .collect();
    let machine = Machine::new(card::new()?, &table).map_err(|e| anyhow!("the card: {e}"))?;
    machine
        .files()
        .set("/system/etc/blockd/targets", "ragged\n");
    let directory = tempfile::Builder::new().prefix("blockd-demo-").tempdir()?;
    let socket = directory.path().join("socket");
    let uid = fs::metadata(directory.path())?.uid().to_string();
    let serve = format!("unix:{}", socket.display());
    let words = [
        "--serve",
        &serve,
        "--interfaces",
        "reset,images",
        "--allow-uid",
        &uid,
    ];
    let Ok(Action::Serve(config)) = parse(words.map(str::to_owned)) else {
        bail!("blockd does not take {words:?}");
    };
    let can_attach = File::options()
        .read(true)
        .write(true)
        .open(LOOP_CONTROL)
        .is_ok();
    let loops = Arc::new(Images::with(HostLoops::new(), Numbers::From(FIRST_NUMBER)));
    let service = serve::Machine {
        storage: Arc::new(machine.clone()),
        images: loops,
        state: None,
    };
    let _background = serve::spawn(&config, &service).map_err(|e| anyhow!(e))?;
    let nowhere = || unreachable!("the client is not local");
    let client = Client::connect(&Place::Unix(socket), Duration::ZERO, nowhere)
        .map_err(|failure| anyhow!("{failure}"))?;
    eprintln!("erasing userdata and ragged on the card model, over a Unix socket");
    let mut result = json!({
        "transport": "unix",
        "reset": reset(&client, &machine, "userdata")?,
        "ragged": reset(&client, &machine, "ragged")?,
        "kernel_blksecdiscard": null,
        "images": null,
    });
    if can_attach {
        eprintln!("attaching {COUNT} APEX files to loop devices of this machine");
        result["images"] = attach(&client)?;
    } else {
        eprintln!("no right to use {LOOP_CONTROL}: images are not attached");
    }
    Ok(result)
}

fn reset(client: &Client, machine: &Machine, target: &str) -> Result<Value> {
    let service = client.reset().map_err(|failure| anyhow!("{failure}"))?;
    let census = || machine.with_card(|card| Census::take(card));
    let before = census()?;
    machine.with_card(|card| card.log.reset());
    let ioctls = machine.journal().calls.multi_cmd_ioctls;
    let begin = Instant::now();
    let request = ResetRequest {
        partitions: vec![target.to_owned()],
        marker: Marker::NONE,
        ..ResetRequest::default()
    };
    let report = service
        .run(&request, None)
        .map_err(|status| anyhow!("reset of {target}: {}", error::failure(&status)))?;
    let seconds = begin.elapsed().as_secs_f64();
    let log = machine.log();
    let after = census()?;
    let changed = after.changed_beside(&before, &[target]);
    for name in &changed {
        eprintln!("  CHANGED BESIDE THE TARGET: {name}");
    }
    let sum = |field: fn(&blockd::aidl::TargetReport::TargetReport) -> i64| -> i64 {
        report.targets.iter().map(field).sum()
    };
    Ok(json!({
        "cmd38": log.count(38),
        "multi_cmd_ioctls": machine.journal().calls.multi_cmd_ioctls - ioctls,
        "erased_bytes": sum(|t| t.erasedBytes),
        "edge_bytes": sum(|t| t.overwrittenBytes),
        "old_data_found": after.range(target)?.pattern > 0,
        "neighbours_intact": changed.is_empty(),
        "logical": Logical::from_number(report.logical.0).map(Logical::name),
        "physical": Physical::from_number(report.physical.0).map(Physical::name),
        "seconds": seconds,
        "modelled_seconds": log.busy_of(38).as_secs_f64(),
    }))
}

fn attach(client: &Client) -> Result<Value> {
    let disk = images::disk()?;
    let list = disk.list.as_array().context("no list of images")?;
    let service = client.images().map_err(|failure| anyhow!("{failure}"))?;
    // The first call makes the devices, the second finds them made.
    let (leases, cold) = round(&*service, &disk.files, list)?;
    drop(leases);
    let (leases, warm) = round(&*service, &disk.files, list)?;
    let mut verified = 0;
    for (item, lease) in list.iter().zip(&leases) {
        let sum = process::text(Command::new("sha256sum").arg(&lease.node))?;
        verified += usize::from(sum.split(' ').next() == item["sha256"].as_str());
    }
    let numbers: Vec<_> = leases.iter().map(|lease| lease.loopNumber).collect();
    drop(leases);
    remove(&numbers)?;
    Ok(json!({
        "attached": numbers.len(),
        "verified": verified,
        "queue_freezes": null,
        "clock": "this machine's",
        "milliseconds": warm.as_secs_f64() * 1000.0,
        "milliseconds_cold": cold.as_secs_f64() * 1000.0,
        "classic_milliseconds": null,
    }))
}

fn round(
    service: &dyn blockd::aidl::IImageDevices::IImageDevices,
    directory: &Path,
    list: &[Value],
) -> Result<(Vec<AttachResult>, Duration)> {
    let mut requests = Vec::new();
    for item in list {
        let name = item["file"].as_str().context("a file without a name")?;
        let file = File::open(directory.join(name)).with_context(|| name.to_owned())?;
        requests.push(AttachRequest {
            file: Some(ipc::parcel_fd(file.into())),
            name: format!("demo-{name}"),
            blockSizeBytes: BLOCK_BYTES,
            ..AttachRequest::default()
        });
    }
    let begin = Instant::now();
    let results = attach_all(service, requests);
    let elapsed = begin.elapsed();
    let results = results.map_err(|status| anyhow!("attach: {}", error::failure(&status)))?;
    for result in &results {
        let message = result.message.as_deref().unwrap_or_default();
        ensure!(result.error.0 == 0, "attach: {message}");
    }
    Ok((results, elapsed))
}

/// Removes the devices that this run has made; each is free as soon as its lease is gone.
fn remove(numbers: &[i32]) -> Result<()> {
    let control = File::open(LOOP_CONTROL)?;
    for number in numbers.iter().filter_map(|n| u32::try_from(*n).ok()) {
        ensure!(number >= FIRST_NUMBER, "loop{number} is none of ours");
        // One that stays costs nothing: the next run uses it.
        let _ = guest::sys::loop_remove(&control, number);
    }
    Ok(())
}
