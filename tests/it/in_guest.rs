//! What only the guest has: the real binder driver, the real MMC stack with a card behind it, init.
//! It is booted as recovery, with blockd_reset and blockd_diag started from their .rc file.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::device::{Access, DirectBuffer, Host, Storage};
use blockd::units::Bytes;
use guest::sys::Mapping;
use guest::trace::Histogram;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BLOCKCTL: &str = "/system/bin/blockctl";
const BLOCKD: &str = "/system/bin/blockd";
/// AOSP's uids.
const SYSTEM: u32 = 1000;
const SHELL: u32 = 2000;
const APP: u32 = 10_001;

/// The cases. The last one restarts the service manager, which forgets everybody.
pub fn cases() -> Vec<Case> {
    [
        (
            "services_answer_over_binder",
            services_answer as fn() -> Outcome,
        ),
        ("callers_are_told_apart", callers),
        ("refusals_send_nothing_to_the_card", refusals),
        ("without_the_right_it_is_said", no_right),
        ("a_part_of_a_real_partition", part),
        ("what_others_have_mapped_brings_nothing_back", mapped),
        ("init_brings_a_killed_service_back", killed),
        ("blockd_waits_for_the_service_manager", late_manager),
    ]
    .into_iter()
    .map(|(name, run)| Case::new(&format!("guest::{name}"), run).needs(&[Need::Guest]))
    .collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// `blockctl --json …` over binder as `uid`.
fn call(uid: u32, arguments: &[&str]) -> Result<(Output, Value), String> {
    let output = Command::new(BLOCKCTL)
        .args(["--connect", "binder", "--wait", "20", "--json"])
        .args(arguments)
        .stdin(Stdio::null())
        .uid(uid)
        .output()
        .map_err(text)?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = serde_json::from_str(&line).map_err(|e| format!("{e}: {output:?}"))?;
    Ok((output, value))
}

fn services_answer() -> Outcome {
    let (output, status) = call(0, &["reset", "status"])?;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(status["state"], "idle");
    let (_, card) = call(0, &["card", "info"])?;
    assert_eq!(card["facts"]["secure_erase"]["value"], "yes", "{card}");
    assert_eq!(card["facts"]["type"]["value"], "MMC");
    let (_, findings) = call(0, &["doctor"])?;
    let topics: Vec<&Value> = findings
        .as_array()
        .ok_or("no list")?
        .iter()
        .filter(|f| f["severity"] == "ok")
        .map(|f| &f["topic"])
        .collect();
    assert_eq!(topics, ["binder", "mmc", "loop"], "{findings}");
    Ok(())
}

fn callers() -> Outcome {
    // The node's mode is the first door; AOSP's ueventd opens it to everybody.
    fs::set_permissions("/dev/binder", fs::Permissions::from_mode(0o666)).map_err(text)?;
    let reset = ["reset", "run", "--yes", "--marker", "none", "userdata"];
    let table: [(u32, &[&str], bool); 7] = [
        (0, &["reset", "status"], true),
        (SYSTEM, &["reset", "status"], false),
        (SYSTEM, &reset, false),
        (APP, &reset, false),
        (SYSTEM, &["doctor"], true),
        (SHELL, &["doctor"], true),
        (APP, &["doctor"], false),
    ];
    let sent = Histogram::start("mmc/mmc_request_start", "cmd_opcode", None).map_err(text)?;
    for (uid, arguments, allowed) in table {
        let (output, value) = call(uid, arguments)?;
        assert_eq!(
            output.status.success(),
            allowed,
            "{uid} {arguments:?} {output:?}"
        );
        if !allowed {
            assert_eq!(value["error"]["code"], "PERMISSION", "{uid} {arguments:?}");
            let message = value["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(&uid.to_string()), "{message}");
        }
    }
    expect_no_erase(&sent)
}

/// Nothing that writes or erases has reached the card.
fn expect_no_erase(sent: &Histogram) -> Outcome {
    let counts = sent.read().map_err(text)?;
    for opcode in [24, 25, 35, 36, 38] {
        if let Some(count) = counts.get(&opcode) {
            return Err(format!("CMD{opcode} was sent {count} times"));
        }
    }
    Ok(())
}

fn refusals() -> Outcome {
    let sent = Histogram::start("mmc/mmc_request_start", "cmd_opcode", None).map_err(text)?;
    let expect = |arguments: &[&str], exit: i32, code: &str| -> Outcome {
        let mut all = vec!["reset", "run", "--yes", "--marker", "none"];
        all.extend(arguments);
        let (output, value) = call(0, &all)?;
        assert_eq!(value["error"]["code"], code, "{arguments:?} {value}");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
        Ok(())
    };
    expect(&["nosuch"], 1, "NO_SUCH_PARTITION")?;
    expect(&["frp"], 1, "PROTECTED_TARGET")?;
    expect(&["persist"], 1, "PROTECTED_TARGET")?;
    expect(&["misc"], 1, "PROTECTED_TARGET")?;
    expect(&["mmcblk0"], 1, "PROTECTED_TARGET")?;
    expect(&["--offset", "4T", "userdata"], 1, "OUT_OF_RANGE")?;
    expect(
        &["--min-assurance", "purge", "ragged"],
        2,
        "ASSURANCE_UNREACHABLE",
    )?;
    expect(&["--method", "trim", "userdata"], 2, "UNSUPPORTED")?;

    let node = node_of("userdata")?;
    let held = Host::new()
        .open_block(&node, Access::Claim)
        .map_err(|e| format!("{node}: {e}"))?;
    expect(&["userdata"], 1, "IN_USE")?;
    drop(held);

    // A loop device claims nothing: only /sys shows it.
    let (attached, value) = {
        let path = format!("/dev/{node}");
        let output = Command::new(BLOCKCTL)
            .args([
                "--connect",
                "local",
                "--json",
                "image",
                "attach",
                "--offset",
                "0",
                &path,
            ])
            .output()
            .map_err(text)?;
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let value: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {output:?}"))?;
        (output, value)
    };
    assert!(attached.status.success(), "{attached:?}");
    expect(&["userdata"], 1, "IN_USE")?;
    let number = value["items"][0]["loop_number"].to_string();
    let detached = Command::new(BLOCKCTL)
        .args(["--connect", "local", "image", "detach", &number])
        .output()
        .map_err(text)?;
    assert!(detached.status.success(), "{detached:?}");
    expect_no_erase(&sent)
}

/// Kernel name of a GPT partition.
fn node_of(partition: &str) -> Result<String, String> {
    for entry in fs::read_dir("/sys/class/block").map_err(text)? {
        let path = entry.map_err(text)?.path();
        let uevent = fs::read_to_string(path.join("uevent")).unwrap_or_default();
        if uevent.lines().any(|l| l == format!("PARTNAME={partition}")) {
            let name = path.file_name().ok_or("a path without a name")?;
            return Ok(name.to_string_lossy().into_owned());
        }
    }
    Err(format!("no partition {partition}"))
}

fn no_right() -> Outcome {
    let output = Command::new(BLOCKCTL)
        .args([
            "--connect",
            "local",
            "--json",
            "reset",
            "plan",
            "--marker",
            "none",
            "userdata",
        ])
        .uid(SHELL)
        .output()
        .map_err(text)?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let value: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {output:?}"))?;
    assert_eq!(value["error"]["code"], "PERMISSION", "{value}");
    assert!(value["error"]["remedy"]
        .as_str()
        .unwrap_or_default()
        .contains("CAP_SYS_RAWIO"));
    Ok(())
}

/// Four groups of `ragged`, by one command through the real stack.
fn part() -> Outcome {
    const GROUP: u64 = 512 * 1024;
    let filter = format!("cmd == {:#x}", 0xc008_b301u64);
    let multi = Histogram::start("syscalls/sys_enter_ioctl", "cmd", Some(&filter)).map_err(text)?;
    let sent = Histogram::start("mmc/mmc_request_start", "cmd_opcode", None).map_err(text)?;
    let (length, offset) = ((5 * GROUP).to_string(), GROUP.to_string());
    let (output, report) = call(
        0,
        &[
            "reset", "run", "--yes", "--marker", "none", "--verify", "full", "--offset", &offset,
            "--length", &length, "ragged",
        ],
    )?;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report["logical"], "verified");
    let target = &report["targets"][0];
    let bytes = |key: &str| target[key].as_u64().unwrap_or(0);
    assert_eq!(
        bytes("erased_bytes") + bytes("overwritten_bytes"),
        5 * GROUP,
        "{target}"
    );
    assert_eq!(bytes("erased_bytes") % GROUP, 0, "{target}");
    let counts = sent.read().map_err(text)?;
    for opcode in [35, 36, 38] {
        assert_eq!(counts.get(&opcode), Some(&1), "CMD{opcode} {counts:?}");
    }
    let ioctls: u64 = multi.read().map_err(text)?.values().sum();
    assert_eq!(ioctls, 1);
    Ok(())
}

/// Another process has the partition open and mapped, with pages read, and pages stored to. BLKFLSBUF
/// leaves mapped pages: each would show what was erased, and the next store to one would write all of
/// it back.
fn mapped() -> Outcome {
    const GROUP: u64 = 512 * 1024;
    const PAGE: usize = 4096;
    let path = fs::canonicalize("/dev/block/by-name/ragged").map_err(text)?;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let offset = 7 * GROUP;
    let pages = Mapping::new(&file, offset as i64, 2 * PAGE).map_err(text)?;
    pages.set(PAGE, 0xaa);
    let before = pages.byte(100);
    let (length, at) = ((4 * GROUP).to_string(), (6 * GROUP).to_string());
    let (output, report) = call(
        0,
        &[
            "reset", "run", "--yes", "--marker", "none", "--offset", &at, "--length", &length,
            "ragged",
        ],
    )?;
    assert!(output.status.success(), "{output:?}");
    let erased = report["plan"]["erased_value"].as_u64().unwrap_or(256);
    // The check itself: there was something to be seen.
    assert_ne!(u64::from(before), erased);
    for index in [100, PAGE, PAGE + 100] {
        assert_eq!(u64::from(pages.byte(index)), erased, "mapped byte {index}");
    }
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, offset).map_err(text)?;
    assert!(sector.iter().all(|b| u64::from(*b) == erased), "cached");
    // A store after the reset is new data; the rest of its page is not old.
    pages.set(0, 0x55);
    file.sync_all().map_err(text)?;
    drop(pages);
    let mut page = DirectBuffer::new(PAGE);
    let node = path.file_name().unwrap_or_default().to_string_lossy();
    Host::new()
        .open_block(&node, Access::Read)
        .and_then(|block| block.read_at(Bytes(offset), &mut page))
        .map_err(text)?;
    assert_eq!(page[0], 0x55);
    assert!(
        page[1..].iter().all(|b| u64::from(*b) == erased),
        "on the medium"
    );
    Ok(())
}

/// Pids of processes whose command line begins with `program` and names `word`.
fn pids(program: &str, word: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_string_lossy().parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (line.starts_with(program) && line.contains(word)).then_some(pid)
        })
        .collect()
}

fn kill(pid: i32) -> Outcome {
    use nix::sys::signal::{kill, Signal};
    kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).map_err(text)
}

/// Waits for `met`, at most half a minute.
fn wait_for(what: &str, mut met: impl FnMut() -> bool) -> Outcome {
    let start = Instant::now();
    while !met() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(format!("{what} did not happen"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn killed() -> Outcome {
    let before = pids(BLOCKD, "diagnostics");
    let [pid] = before[..] else {
        return Err(format!("blockd_diag runs {} times", before.len()));
    };
    kill(pid)?;
    wait_for("the restart of blockd_diag", || {
        let now = pids(BLOCKD, "diagnostics");
        now.len() == 1 && now != before
    })?;
    wait_for("its registration", || {
        call(0, &["doctor"]).is_ok_and(|(output, _)| output.status.success())
    })
}

fn manager() -> Vec<i32> {
    pids("/system/bin/rsb_hub", "")
}

fn late_manager() -> Outcome {
    // init starts what ran for a while anew at once, and what it has just started after 5 s: killed
    // twice, the manager is away long enough to be waited for.
    let mut last = Vec::new();
    for _ in 0..2 {
        wait_for("the service manager", || {
            let now = manager();
            now.len() == 1 && now != last
        })?;
        last = manager();
        for pid in &last {
            kill(*pid)?;
        }
    }
    let log = Path::new("/tmp/late.log");
    let mut child = Command::new(BLOCKD)
        .args(["--serve", "binder", "--interfaces", "images"])
        .stderr(fs::File::create(log).map_err(text)?)
        .spawn()
        .map_err(text)?;
    let result = wait_for("its registration", || {
        fs::read_to_string(log)
            .is_ok_and(|text| text.contains("registered dev.blockd.IImageDevices"))
    })
    .and_then(|()| call(0, &["image", "list"]).map(drop));
    let _ = child.kill();
    let _ = child.wait();
    let lines = fs::read_to_string(log).map_err(text)?;
    result.map_err(|why| format!("{why}: {lines}"))?;
    assert!(lines.contains("waiting for the service manager"), "{lines}");
    assert!(lines.lines().count() <= 4, "one line per change: {lines}");
    Ok(())
}
