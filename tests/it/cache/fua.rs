//! The FUA measurement: over the socket with a client's descriptor, and by the real blockctl.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::reset::layout::{machine, plain};
use crate::served::{json_of, Served};
use blockd::aidl::FuaRequest::FuaRequest;
use blockd::aidl::IProgress::{BnProgress, IProgress};
use blockd::cache::fua::{Path as WritePath, Pattern};
use blockd::device::{medium::OpenFile, scratch, Medium};
use blockd::error::Code;
use blockd::service::error::failure;
use blockd::service::ipc::{parcel_fd, BinderResult, Interface};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const O_DIRECT: i32 = nix::libc::O_DIRECT;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cache::fua_measures_a_client_s_file", served).needs(&[Need::Host]),
        Case::new("cache::fua_refuses_what_it_cannot_measure", refused).needs(&[Need::Host]),
        Case::new("cache::fua_progress_is_told", progress).needs(&[Need::Host]),
        Case::new("cache::fua_by_blockctl", by_blockctl).needs(&[Need::Host]),
        Case::new("cache::fua_leaves_no_file_when_killed", killed).needs(&[Need::Host]),
        Case::new("cache::fua_on_a_full_file_system", full).needs(&[
            Need::Host,
            Need::Root,
            Need::Loop,
            Need::Program("mkfs.ext4"),
        ]),
        Case::new("cache::fua_guards_partitions_as_a_reset_does", guards),
    ]
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A folder on the file system of the sources: TMPDIR may be a tmpfs.
fn folder() -> Result<tempfile::TempDir, String> {
    let target = Path::new(env!("CARGO_BIN_EXE_blockctl")).parent();
    tempfile::Builder::new()
        .prefix("fua-")
        .tempdir_in(target.ok_or("a binary without a folder")?)
        .map_err(text)
}

fn small(file: File) -> FuaRequest {
    FuaRequest {
        file: Some(parcel_fd(file.into())),
        lengthBytes: 1 << 20,
        runs: 2,
        blockBytes: 4096,
        sequentialBlockBytes: 256 << 10,
        operations: 8,
        limitMillis: 600_000,
    }
}

fn served() -> Outcome {
    let served = Served::new(machine(plain()), &[], None)?;
    let folder = folder()?;
    let file = scratch::create(folder.path()).map_err(text)?;
    let other = file.try_clone().map_err(text)?;
    let diagnostics = served.client()?.diagnostics().map_err(text)?;
    let report = diagnostics
        .measureFua(&small(file), None)
        .map_err(|s| failure(&s).to_string())?;
    assert_eq!(report.lengthBytes, 1 << 20);
    let mut names = Vec::new();
    for row in &report.rows {
        names.push(format!("{} {}", row.pattern, row.path));
        let (block, operations) = match row.pattern.starts_with("seq") {
            true => (256 << 10, 4),
            false => (4096, 8),
        };
        assert_eq!((row.blockBytes, row.operations), (block, operations));
        assert_eq!(row.bytesPerSecond.len(), 2, "{row:?}");
        assert!(row.bytesPerSecond.iter().all(|b| *b > 0), "{row:?}");
        assert_eq!(row.latencyNanos.len(), 4);
        assert!(row.latencyNanos.windows(2).all(|w| w[0] <= w[1]), "{row:?}");
    }
    names.sort();
    let mut all: Vec<String> = Vec::new();
    for pattern in Pattern::ALL {
        for path in WritePath::ALL {
            if pattern.writes() || *path != WritePath::Flush {
                all.push(format!("{pattern} {path}"));
            }
        }
    }
    all.sort();
    assert_eq!(names, all);
    // Exactly what was allowed is written.
    let medium = OpenFile::new(other);
    assert_eq!(medium.describe().map_err(text)?.size.0, 1 << 20);
    let mut end = blockd::device::DirectBuffer::new(4096);
    let last = blockd::units::Bytes((1 << 20) - 4096);
    medium.read_at(last, &mut end).map_err(text)?;
    assert!(end.iter().any(|b| *b != 0), "the last block was not filled");
    Ok(())
}

fn refused() -> Outcome {
    let served = Served::new(machine(plain()), &[], None)?;
    let diagnostics = served.client()?.diagnostics().map_err(text)?;
    let folder = folder()?;
    let path = folder.path().join("file");
    fs::write(&path, "kept").map_err(text)?;
    let open = |flags: i32, write: bool| -> Result<File, String> {
        let mut options = File::options();
        options.read(true).write(write).custom_flags(flags);
        options.open(&path).map_err(text)
    };
    let memory = || -> Result<File, String> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let name = format!("/dev/shm/blockd-test-{}", std::process::id());
        let file = options.custom_flags(O_DIRECT).open(&name);
        let _ = fs::remove_file(&name);
        file.map_err(text)
    };
    let null = || File::options().read(true).write(true).open("/dev/null");
    type Change = fn(&mut FuaRequest);
    let same: Change = |_| ();
    let table: [(File, Change, Code, &str); 8] = [
        (
            open(O_DIRECT, false)?,
            same,
            Code::ReadOnly,
            "not open for reading and writing",
        ),
        (open(0, true)?, same, Code::Unsupported, "not O_DIRECT"),
        (
            open(O_DIRECT | nix::libc::O_APPEND, true)?,
            same,
            Code::InvalidRequest,
            "O_APPEND",
        ),
        (
            null().map_err(text)?,
            same,
            Code::InvalidRequest,
            "neither a regular file",
        ),
        (memory()?, same, Code::Unsupported, "lies on tmpfs"),
        (
            open(O_DIRECT, true)?,
            |r| r.lengthBytes = 0,
            Code::InvalidRequest,
            "0 bytes",
        ),
        (
            open(O_DIRECT, true)?,
            |r| r.lengthBytes = -1,
            Code::InvalidRequest,
            "negative",
        ),
        (
            open(O_DIRECT, true)?,
            |r| r.lengthBytes = i64::MAX,
            Code::InvalidRequest,
            "at most 16 GiB",
        ),
    ];
    for (file, change, code, words) in table {
        let mut request = small(file);
        change(&mut request);
        let status = diagnostics.measureFua(&request, None);
        let failure = failure(&status.err().ok_or(format!("`{words}` was measured"))?);
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(words), "{failure}");
    }
    assert_eq!(fs::read_to_string(&path).map_err(text)?, "kept");
    Ok(())
}

/// What a client was told.
struct Told(Arc<Mutex<Vec<(String, i64, i64)>>>);

impl Interface for Told {}

impl IProgress for Told {
    fn onProgress(&self, step: &str, _: i64, done: i64, total: i64, _: i64) -> BinderResult<()> {
        let mut told = self.0.lock().unwrap_or_else(|e| e.into_inner());
        told.push((step.to_owned(), done, total));
        Ok(())
    }
}

fn progress() -> Outcome {
    let served = Served::new(machine(plain()), &[], None)?;
    let diagnostics = served.client()?.diagnostics().map_err(text)?;
    let folder = folder()?;
    let file = scratch::create(folder.path()).map_err(text)?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let receiver = blockd::new_binder!(BnProgress, Told(Arc::clone(&told)));
    diagnostics
        .measureFua(&small(file), Some(&receiver))
        .map_err(|s| failure(&s).to_string())?;
    let told = told.lock().unwrap_or_else(|e| e.into_inner());
    let total = (1 << 20) + 2 * (5 * (1 << 20) + 5 * 8 * 4096);
    assert!(!told.is_empty());
    for (step, done, of) in told.iter() {
        assert!(step == "prepare" || step.split(' ').count() == 2, "{step}");
        assert!((0..=*of).contains(done), "{done} of {of}");
        assert_eq!(*of, total);
    }
    Ok(())
}

fn by_blockctl() -> Outcome {
    let served = Served::new(machine(plain()), &[], None)?;
    let folder = folder()?;
    let place = folder.path().display().to_string();
    let words = [
        "--json",
        "cache",
        "fua",
        "--size",
        "1M",
        "--runs",
        "2",
        "--operations",
        "8",
    ];
    let output = served.blockctl(&[&words[..], &[&place]].concat())?;
    assert!(output.status.success(), "{output:?}");
    let value = json_of(&output)?;
    assert_eq!(value["rows"].as_array().map(Vec::len), Some(10));
    let direct = row(&value, "rand-write", "direct");
    let flush = row(&value, "rand-write", "flush");
    let (base, mean) = (
        number(direct, "mean_mib_per_second"),
        number(flush, "mean_mib_per_second"),
    );
    // Rounded to hundredths, both of them.
    let change = (mean - base) / base * 100.0;
    let told = number(flush, "change_percent");
    assert!((change - told).abs() < 1.0, "{change} {told}");
    assert_eq!(number(direct, "change_percent"), 0.0);
    assert_eq!(fs::read_dir(folder.path()).map_err(text)?.count(), 0);

    let table = served.blockctl(&[&words[1..], &[&place]].concat())?;
    let table = String::from_utf8(table.stdout).map_err(text)?;
    for words in [
        "rand-write fua",
        "seq-read   direct",
        "note: FUA was not turned off",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }

    let file = folder.path().join("precious");
    fs::write(&file, "kept").map_err(text)?;
    let precious = file.display().to_string();
    for (arguments, code, exit) in [
        (&["--size", "0", &place][..], "INVALID_REQUEST", 1),
        (&["--runs", "0", &place], "INVALID_REQUEST", 1),
        (&["--block-size", "1000", &place], "INVALID_REQUEST", 1),
        (
            &["--size", "1M", "--seq-block-size", "2M", &place],
            "INVALID_REQUEST",
            1,
        ),
        (&[&precious], "INVALID_REQUEST", 1),
        (&["/nowhere/at/all"], "INVALID_REQUEST", 1),
        (&["--size", "1M", "/dev/shm"], "UNSUPPORTED", 2),
    ] {
        let all = [&["--json", "cache", "fua"], arguments].concat();
        let output = served.blockctl(&all)?;
        let value = json_of(&output)?;
        assert_eq!(value["error"]["code"], code, "{arguments:?} {value}");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
    }
    assert_eq!(fs::read_to_string(&file).map_err(text)?, "kept");
    Ok(())
}

fn row<'a>(value: &'a Value, pattern: &str, path: &str) -> &'a Value {
    let rows = value["rows"].as_array();
    rows.into_iter()
        .flatten()
        .find(|row| row["pattern"] == pattern && row["path"] == path)
        .unwrap_or(&Value::Null)
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

/// SIGKILL and SIGTERM in the midst of it: the file never had a name that could stay.
fn killed() -> Outcome {
    use nix::sys::signal::{kill, Signal};
    use std::io::{BufRead, BufReader};
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        let folder = folder()?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_blockctl"))
            .args(["--connect", "local", "--progress", "json", "cache", "fua"])
            .args(["--size", "4M", "--runs", "100"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(text)?;
        // Progress shows that the file is there and written.
        let stderr = child.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let seen = lines.any(|line| line.is_ok_and(|line| line.contains("\"progress\"")));
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        let sent = kill(pid, signal);
        child.wait().map_err(text)?;
        assert!(seen && sent.is_ok(), "{signal}: it was not at work");
        assert_eq!(
            fs::read_dir(folder.path()).map_err(text)?.count(),
            0,
            "{signal}"
        );
    }
    Ok(())
}

/// A small file system of its own, unmounted at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(bytes: u64) -> Result<Mounted, String> {
        let mounted = Mounted(tempfile::tempdir().map_err(text)?);
        let image = mounted.0.path().join("image");
        let file = File::create(&image).and_then(|file| file.set_len(bytes));
        file.map_err(text)?;
        fs::create_dir(mounted.place()).map_err(text)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let mut mount = Command::new("mount");
        run(mount.args(["-o", "loop"]).arg(&image).arg(mounted.place()))?;
        Ok(mounted)
    }

    fn place(&self) -> std::path::PathBuf {
        self.0.path().join("mounted")
    }

    fn make_read_only(&self) -> Outcome {
        run(Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.place()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(self.place()));
    }
}

fn run(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {output:?}")),
    }
}

/// A real file system with no room, and one that is read-only.
fn full() -> Outcome {
    let mounted = Mounted::new(8 << 20)?;
    let output = blockctl_local(&["--size", "64M", "--runs", "1"], &mounted.place())?;
    let value = json_of(&output)?;
    assert_eq!(value["error"]["code"], "OUT_OF_RANGE", "{value}");
    assert!(value["error"]["message"].to_string().contains("full"));
    let output = blockctl_local(&["--size", "1M", "--runs", "1"], &mounted.place())?;
    assert!(
        output.status.success(),
        "nothing was left behind: {output:?}"
    );
    mounted.make_read_only()?;
    let output = blockctl_local(&["--size", "1M"], &mounted.place())?;
    let value = json_of(&output)?;
    assert_eq!(value["error"]["code"], "READ_ONLY", "{value}");
    Ok(())
}

fn blockctl_local(arguments: &[&str], place: &Path) -> Result<std::process::Output, String> {
    Command::new(env!("CARGO_BIN_EXE_blockctl"))
        .args(["--connect", "local", "--json", "cache", "fua"])
        .args(arguments)
        .arg(place)
        .stdin(Stdio::null())
        .output()
        .map_err(text)
}

/// The raw partition: refused by the same names as a reset, before anything is opened.
fn guards() -> Outcome {
    use blockd::cache::raw::{Raw, Wanted};
    use blockd::device::{Access, Storage};
    let machine = machine(plain());
    let wanted = |name: &str| Wanted {
        partition: name.to_owned(),
        disk: None,
        merges_done: true,
    };
    let code = |name: &str| Raw::look(&machine, &wanted(name)).map_err(|f| f.code).err();
    assert_eq!(code("userdata"), None);
    assert_eq!(code("frp"), Some(Code::ProtectedTarget));
    assert_eq!(code("misc"), Some(Code::ProtectedTarget));
    assert_eq!(code("nosuch"), Some(Code::NoSuchPartition));
    assert_eq!(code("mmcblk0"), Some(Code::ProtectedTarget));
    let raw = Raw::look(&machine, &wanted("userdata")).map_err(text)?;
    let claim = |raw: &Raw| raw.claim(&machine, |node| machine.open_block(node, Access::Claim));
    let held = claim(&raw).map_err(text)?;
    assert_eq!(claim(&raw).map_err(|f| f.code).err(), Some(Code::InUse));
    drop(held);
    let node = raw.partition.node.clone();
    // Mounted between the look and the claim.
    machine.mount(&node, "/data").map_err(text)?;
    assert_eq!(claim(&raw).map_err(|f| f.code).err(), Some(Code::InUse));
    assert_eq!(code("userdata"), Some(Code::InUse));
    // A loop device is no claim: only the second look sees it.
    let machine = crate::reset::layout::machine(plain());
    let raw = Raw::look(&machine, &wanted("userdata")).map_err(text)?;
    machine.loop_on(&node, "loop7").map_err(text)?;
    let late = raw.claim(&machine, |node| machine.open_block(node, Access::Claim));
    assert_eq!(late.map_err(|f| f.code).err(), Some(Code::InUse));
    let journal = machine.journal();
    let wrote = |e: &&emmc::machine::Event| matches!(e, emmc::machine::Event::Write { .. });
    assert_eq!(journal.events.iter().find(wrote).map(drop), None);
    Ok(())
}
