//! Secure erase: by the product over binder, then by the kernel itself for comparison.
//!
//! The host reads and resets the card's command log at every mark.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use super::{tool, Port};
use crate::sys;
use crate::trace::Histogram;

/// MMC_IOC_MULTI_CMD (linux/mmc/ioctl.h).
const MMC_IOC_MULTI_CMD: u64 = 0xc008_b301;

/// The partitions that the product erases, in this order.
const TARGETS: &[&str] = &["userdata", "ragged"];
/// The one that the kernel erases afterwards.
const KERNEL_TARGET: &str = "userdata";

pub(super) fn run(port: &mut Port) -> Result<()> {
    let answer = tool::call(&["reset", "status"])?;
    ensure!(
        answer.exit == 0,
        "reset status: {} {}",
        answer.output,
        answer.messages
    );
    for target in TARGETS {
        port.mark(&format!("begin {target}"))?;
        let counters = Counters::start()?;
        let answer = tool::call(&["reset", "run", "--marker", "none", "--yes", target])?;
        let counts = counters.read()?;
        port.mark(&format!("end {target}"))?;
        port.send(&json!({"reset": target, "tool": answer.json(), "kernel": counts}))?;
    }
    kernel(port)
}

/// BLKSECDISCARD, as `blkdiscard --secure` issues it.
pub(super) fn kernel(port: &mut Port) -> Result<()> {
    let node = format!("/dev/block/by-name/{KERNEL_TARGET}");
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&node)
        .context(node)?;
    port.mark("begin kernel")?;
    let counters = Counters::start()?;
    let begin = Instant::now();
    sys::block_secure_discard(&device, 0, partition_bytes()?).context("BLKSECDISCARD")?;
    let seconds = begin.elapsed().as_secs_f64();
    let counts = counters.read()?;
    port.mark("end kernel")?;
    port.send(&json!({"kernel_blksecdiscard": {"seconds": seconds, "kernel": counts}}))
}

fn partition_bytes() -> Result<u64> {
    let node = fs::read_link(format!("/dev/block/by-name/{KERNEL_TARGET}"))?;
    let name = node
        .file_name()
        .context("partition without a name")?
        .to_string_lossy()
        .into_owned();
    let sectors = fs::read_to_string(format!("/sys/class/block/{name}/size"))?;
    // sysfs counts in units of 512 bytes whatever the device's block size.
    Ok(sectors.trim().parse::<u64>()? * 512)
}

/// What the kernel was asked and what it sent to the card.
struct Counters {
    ioctls: Histogram,
    requests: Histogram,
}

impl Counters {
    fn start() -> Result<Self> {
        let filter = format!("cmd == {MMC_IOC_MULTI_CMD:#x}");
        Ok(Self {
            ioctls: Histogram::start("syscalls/sys_enter_ioctl", "cmd", Some(&filter))?,
            requests: Histogram::start("mmc/mmc_request_start", "cmd_opcode", None)?,
        })
    }

    fn read(&self) -> Result<Value> {
        let opcodes: BTreeMap<String, u64> = self
            .requests
            .read()?
            .into_iter()
            .map(|(k, v)| (k.to_string(), v))
            .collect();
        let ioctls: u64 = self.ioctls.read()?.values().sum();
        Ok(json!({"multi_cmd_ioctls": ioctls, "opcodes": opcodes}))
    }
}
