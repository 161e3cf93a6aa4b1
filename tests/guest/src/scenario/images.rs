//! Forty APEX files: attached by the product over binder with warm and cold devices, every
//! device read whole, queue freezes counted; then the classic sequence for comparison.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use nix::mount::{mount, MsFlags};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

use super::{tool, Port};
use crate::init::properties::{ask, Request};
use crate::sys;
use crate::trace::FunctionTrace;

/// The disk with the files, and where it is mounted: /data is where updated APEXes lie.
const DISK: &str = "/dev/block/vda";
const DIRECTORY: &str = "/data/apex";
/// What the host expects of every file.
const EXPECTED: &str = "/images.json";
/// The rc service that attaches.
const SERVICE: &str = "blockd_images";
const BLOCK_BYTES: u32 = 4096;
/// Rounds with warm devices; the host takes the median.
const ROUNDS: usize = 5;
/// Every wait for a queue freeze calls one of these once (block/blk-mq.c).
const FREEZE: &[&str] = &["blk_mq_freeze_queue*", "blk_freeze_queue*"];
/// Every wait for a grace period begins in one of these (kernel/rcu).
const WAITS: &[&str] = &[
    "synchronize_rcu",
    "synchronize_rcu_expedited",
    "synchronize_srcu",
    "rcu_barrier",
];
/// Where a freeze waits for the queue to drain: called exactly once in each freeze.
const FREEZE_WAIT: &str = "blk_mq_freeze_queue_wait";
/// Traced calls that are told to the host: who froze a queue.
const SHOWN_CALLS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(10);

/// One file as the host made it.
struct Image {
    path: PathBuf,
    offset: u64,
    length: u64,
    sha256: String,
}

pub(super) fn run(port: &mut Port) -> Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    mount(
        Some(DISK),
        DIRECTORY,
        Some("ext4"),
        MsFlags::MS_NOATIME,
        None::<&str>,
    )
    .with_context(|| format!("mount {DISK}"))?;
    let images = expected()?;
    let answer = tool::call(&["image", "list"])?;
    ensure!(
        answer.exit == 0,
        "image list: {} {}",
        answer.output,
        answer.messages
    );
    let trace = FunctionTrace::start("freezes", FREEZE)?;
    let waits = FunctionTrace::start("waits", WAITS)?;
    port.send(&json!({"traced": trace.functions()?}))?;

    // A counter that counts nothing would prove nothing: show it a classic attach first.
    let control = File::open("/dev/loop-control")?;
    trace.clear()?;
    let device = classic_attach(&control, &images[0])?;
    port.send(&json!({"round": "counter", "freezes": freezes(&trace)?}))?;
    sys::loop_clear(&device)?;
    drop(device);

    for round in 0..ROUNDS {
        trace.clear()?;
        let (nodes, mut line) = attach(&images, &trace, &waits, "warm")?;
        if round == 0 {
            let begin = Instant::now();
            line["verified"] = verify(&images, &nodes)?.into();
            line["verify_seconds"] = begin.elapsed().as_secs_f64().into();
        }
        port.send(&line)?;
        detach(&nodes)?;
    }

    make_cold(&control)?;
    trace.clear()?;
    let (nodes, line) = attach(&images, &trace, &waits, "cold")?;
    port.send(&line)?;
    detach(&nodes)?;

    trace.clear()?;
    let begin = Instant::now();
    let devices: Vec<File> = images
        .iter()
        .map(|image| classic_attach(&control, image))
        .collect::<Result<_>>()?;
    let elapsed = begin.elapsed();
    port.send(&json!({
        "round": "classic",
        "attached": devices.len(),
        "micros": elapsed.as_micros() as u64,
        "freezes": freezes(&trace)?,
    }))?;
    devices
        .iter()
        .try_for_each(|device| Ok(sys::loop_clear(device)?))
}

fn expected() -> Result<Vec<Image>> {
    let list: Value = serde_json::from_slice(&fs::read(EXPECTED).context(EXPECTED)?)?;
    let image = |item: &Value| {
        Some(Image {
            path: Path::new(DIRECTORY).join(item["file"].as_str()?),
            offset: item["offset"].as_u64()?,
            length: item["length"].as_u64()?,
            sha256: item["sha256"].as_str()?.to_owned(),
        })
    };
    let items = list.as_array().context("no list of images")?;
    items
        .iter()
        .map(|item| image(item).context("bad item in the list of images"))
        .collect()
}

/// Attaches all files through the service. Returns the nodes by file and the host's line.
fn attach(
    images: &[Image],
    trace: &FunctionTrace,
    waits: &FunctionTrace,
    round: &str,
) -> Result<(BTreeMap<PathBuf, PathBuf>, Value)> {
    let block_size = BLOCK_BYTES.to_string();
    let mut words = ["image", "attach", "--block-size"].map(Path::new).to_vec();
    words.push(Path::new(&block_size));
    words.extend(images.iter().map(|image| image.path.as_path()));
    waits.clear()?;
    let answer = tool::call(&words)?;
    let freezes = freezes(trace)?;
    let items = answer.output["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let node = |item: &Value| {
        let node = item["node"].as_str().filter(|node| !node.is_empty())?;
        Some((PathBuf::from(item["file"].as_str()?), PathBuf::from(node)))
    };
    let nodes: BTreeMap<_, _> = items.iter().filter_map(node).collect();
    let line = json!({
        "round": round,
        "attached": nodes.len(),
        "micros": answer.output["elapsed_micros"],
        "freezes": freezes,
        "first_calls": trace.first_calls(SHOWN_CALLS)?,
        "waits": waits.counts()?,
        "first_waits": waits.first_calls(SHOWN_CALLS)?,
        "tool": answer.json(),
    });
    Ok((nodes, line))
}

fn detach(nodes: &BTreeMap<PathBuf, PathBuf>) -> Result<()> {
    let mut words = vec![Path::new("image"), Path::new("detach")];
    words.extend(nodes.values().map(PathBuf::as_path));
    let answer = tool::call(&words)?;
    ensure!(
        answer.exit == 0,
        "detach: {} {}",
        answer.output,
        answer.messages
    );
    Ok(())
}

/// How many devices hold exactly what the host put into the file.
fn verify(images: &[Image], nodes: &BTreeMap<PathBuf, PathBuf>) -> Result<usize> {
    let good = |image: &Image| -> Result<bool> {
        let Some(node) = nodes.get(&image.path) else {
            return Ok(false);
        };
        let mut device = File::open(node).with_context(|| node.display().to_string())?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut length = 0;
        loop {
            match device.read(&mut buffer)? {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    length += n as u64;
                }
            }
        }
        let digest: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(length == image.length && digest == image.sha256)
    };
    let count = |half: &[Image]| -> Result<usize> {
        half.iter()
            .try_fold(0, |sum, image| Ok(sum + usize::from(good(image)?)))
    };
    let (left, right) = images.split_at(images.len() / 2);
    thread::scope(|scope| {
        let other = scope.spawn(|| count(right));
        let mine = count(left)?;
        Ok(mine + other.join().ok().context("a thread panicked")??)
    })
}

/// Numbers of the loop devices that are free now.
fn free_numbers() -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("loop").and_then(|n| n.parse().ok());
        if let Some(number) = number.filter(|_| !entry.path().join("loop").exists()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Restarts the service with every free device removed: it finds none made ahead.
fn make_cold(control: &File) -> Result<()> {
    control_service("stop", "stopped")?;
    for number in free_numbers()? {
        sys::loop_remove(control, number).with_context(|| format!("remove loop{number}"))?;
    }
    control_service("start", "running")
}

fn control_service(verb: &str, state: &str) -> Result<()> {
    ask(&Request::Set(format!("ctl.{verb}"), SERVICE.to_owned()))?;
    let end = Instant::now() + PATIENCE;
    while ask(&Request::Get(format!("init.svc.{SERVICE}")))? != state {
        ensure!(Instant::now() < end, "{SERVICE} is not {state}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// What was done before LOOP_CONFIGURE: one ioctl to bind, then one for each attribute.
fn classic_attach(control: &File, image: &Image) -> Result<File> {
    let file = File::open(&image.path).with_context(|| image.path.display().to_string())?;
    let number = sys::loop_get_free(control)?;
    let node = format!("/dev/loop{number}");
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&node)
        .context(node)?;
    sys::loop_set_fd(&device, &file).context("LOOP_SET_FD")?;
    sys::loop_set_status(&device, image.offset, image.length).context("LOOP_SET_STATUS64")?;
    sys::loop_set_block_size(&device, BLOCK_BYTES).context("LOOP_SET_BLOCK_SIZE")?;
    Ok(device)
}

/// Queue freezes since the trace was cleared.
fn freezes(trace: &FunctionTrace) -> Result<u64> {
    Ok(trace.counts()?.get(FREEZE_WAIT).copied().unwrap_or(0))
}
