//! A factory reset as recovery does it with docs/recovery.md's patch: erase → format → finish, in
//! the order of WipeData and format_volume. Then what the system's first boot does: mount.
//!
//! `blockd.way=` is how recovery calls: `exec` runs blockctl in its own domain, `binder` asks the
//! service. `blockd.fs=` is userdata's file system, `blockd.chunk=` a `--max-chunk`.
//! `blockd.mount=only` is the system's boot after a reset that was complete.
//! `blockd.broken=late-marker` is a client that no test may pass: it writes the message for the
//! bootloader only once everything is erased.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use anyhow::{bail, ensure, Context, Result};
use nix::mount::{mount, umount, MsFlags};
use serde_json::{json, Value};

use super::{parameter, tool, Port};

const MISC: &str = "/dev/block/by-name/misc";
/// bootloader_message.h: `command` at 0, `recovery` at 64.
const COMMAND: std::ops::Range<usize> = 0..32;
const RECOVERY: std::ops::Range<usize> = 64..832;
/// What WipeData erases, keys first.
const TARGETS: &[&str] = &["metadata", "userdata"];
/// Where the system would mount them.
const MOUNT_POINT: &str = "/mnt/wiped";
/// What the system writes first, and reads back after another mount.
const FIRST_FILE: &str = "first-boot";
const FIRST_TEXT: &str = "a new owner's data";

pub(super) fn run(port: &mut Port) -> Result<()> {
    let place = match parameter("way")?.as_deref() {
        None | Some("exec") => "local",
        Some("binder") => "binder",
        Some(other) => bail!("blockd.way={other}"),
    };
    let file_system = parameter("fs")?.unwrap_or("ext4".to_owned());
    let late = parameter("broken")?.as_deref() == Some("late-marker");
    port.send(&json!({"message": message()?}))?;
    if parameter("mount")?.as_deref() == Some("only") {
        return mount_all(port, &file_system);
    }

    let marker = if late { "none" } else { "misc" };
    let mut words = vec!["--progress", "json", "reset", "run", "--yes"];
    words.extend(["--marker", marker]);
    let chunk = parameter("chunk")?;
    if let Some(chunk) = &chunk {
        words.extend(["--max-chunk", chunk]);
    }
    words.extend(TARGETS);
    let plan: Vec<_> = ["reset", "plan"]
        .into_iter()
        .chain(words[5..].iter().copied())
        .collect();
    port.mark("begin erase")?;
    let planned = tool::call_by(place, &plan)?.good()?;
    let erased = tool::call_by(place, &words)?.good()?;
    port.mark("end erase")?;
    if late {
        write_message()?;
    }
    let steps = steps(&erased.messages)?;
    port.send(&json!({
        "erased": erased.json(), "planned": planned.output, "steps": steps,
    }))?;

    port.mark("begin format")?;
    let systems = ["ext4", &file_system];
    for (target, system) in TARGETS.iter().zip(systems) {
        format(target, system)?;
    }
    port.mark("end format")?;

    let token = erased.output["token"].as_str().context("no token")?;
    if late {
        // Its own message is its own to clear.
        write_sector(&[0; 512])?;
    } else {
        tool::call_by(place, &["reset", "finish", token])?.good()?;
    }
    let status = tool::call_by(place, &["reset", "status"])?.good()?;
    port.send(&json!({"finished": message()?, "status": status.output}))?;

    mount_all(port, &file_system)
}

/// What the system's boot does.
fn mount_all(port: &mut Port, file_system: &str) -> Result<()> {
    port.mark("begin mount")?;
    for (target, system) in TARGETS.iter().zip(["ext4", file_system]) {
        use_it(target, system)?;
    }
    port.mark("end mount")?;
    port.send(&json!({"mounted": TARGETS}))
}

/// The bootloader message as recovery's get_args reads it.
fn message() -> Result<Value> {
    let mut sector = [0; RECOVERY.end];
    File::open(MISC)?
        .read_exact_at(&mut sector, 0)
        .context(MISC)?;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok(json!({"command": text(&sector[COMMAND]), "recovery": text(&sector[RECOVERY])}))
}

/// The broken client's own message.
fn write_message() -> Result<()> {
    let mut sector = [0; 512];
    sector[..13].copy_from_slice(b"boot-recovery");
    let lines = b"recovery\n--wipe_data\n";
    sector[RECOVERY.start..][..lines.len()].copy_from_slice(lines);
    write_sector(&sector)
}

fn write_sector(sector: &[u8; 512]) -> Result<()> {
    let misc = OpenOptions::new().write(true).open(MISC).context(MISC)?;
    misc.write_all_at(sector, 0)?;
    Ok(misc.sync_all()?)
}

/// The steps that the progress events named, each once, in their order; all else on standard error
/// is passed over, as recovery does.
fn steps(messages: &str) -> Result<Vec<String>> {
    let events: Vec<Value> = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let first = events.first().context("no event on standard error")?;
    ensure!(
        first["event"] == "version" && first["version"] == 1,
        "the first event is {first}"
    );
    let named = events.iter().filter(|event| event["event"] == "progress");
    let mut steps: Vec<String> = named
        .filter_map(|event| event["step"].as_str().map(str::to_owned))
        .collect();
    steps.dedup();
    Ok(steps)
}

/// As format_volume does; without discards, since all of it was erased just now, and each one would
/// be a command for a few groups only.
fn format(target: &str, system: &str) -> Result<()> {
    let node = format!("/dev/block/by-name/{target}");
    let mut command = match system {
        "ext4" => {
            let mut mke2fs = Command::new("/system/bin/mke2fs");
            mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", "nodiscard"]);
            mke2fs
        }
        "f2fs" => {
            let mut make_f2fs = Command::new("/system/bin/make_f2fs");
            make_f2fs.args(["-f", "-t", "0"]);
            make_f2fs
        }
        other => bail!("no mkfs for {other}"),
    };
    let result = command.arg(&node).stdin(Stdio::null()).output();
    let result = result.with_context(|| format!("{command:?}"))?;
    ensure!(
        result.status.success(),
        "{command:?}: {} {}{}",
        result.status,
        String::from_utf8_lossy(&result.stdout),
        String::from_utf8_lossy(&result.stderr)
    );
    Ok(())
}

/// Mounts, writes a file, mounts again and reads it.
fn use_it(target: &str, system: &str) -> Result<()> {
    let node = format!("/dev/block/by-name/{target}");
    fs::create_dir_all(MOUNT_POINT)?;
    let file = format!("{MOUNT_POINT}/{FIRST_FILE}");
    let mounted = |act: &dyn Fn() -> Result<()>| -> Result<()> {
        // No discards of the mount's own either: the host looks for those that nobody asked for.
        mount(
            Some(node.as_str()),
            MOUNT_POINT,
            Some(system),
            MsFlags::empty(),
            Some("nodiscard"),
        )
        .with_context(|| format!("mount {target} as {system}"))?;
        let result = act();
        umount(MOUNT_POINT).context("umount")?;
        result
    };
    mounted(&|| Ok(fs::write(&file, FIRST_TEXT)?))?;
    mounted(&|| {
        let text = fs::read_to_string(&file)?;
        ensure!(text == FIRST_TEXT, "{target} gave `{text}` back");
        Ok(())
    })
}
