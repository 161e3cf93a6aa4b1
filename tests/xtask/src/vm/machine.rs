//! One run of the guest: QEMU, the port that brings the results, the judgement of the run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

use super::initramfs::Tree;
use super::setup::{Equipment, Kernel, Qemu};
use super::Mode;
use crate::{paths, process};

/// The guest's memory, MiB.
const MEMORY_MIB: u32 = 2048;
/// An ordinary run ends long before this.
const TIMEOUT: Duration = Duration::from_secs(240);
/// QEMU may take this long from the summary to its end.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// How often a dead QEMU is noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// This much of the console is shown if a run fails.
const SHOWN_LINES: usize = 60;
/// With a counted clock an instruction takes 2 to the power of this, nanoseconds: 500 million a
/// second, a slow phone's core.
const INSTRUCTION_SHIFT: u32 = 1;
/// What a healthy console does not say.
const ALARMS: &[&str] = &["Oops", "BUG:", "Kernel panic", "WARNING:", "init: ERROR"];
/// Taint bits that a healthy run leaves unset (Documentation/admin-guide/tainted-kernels.rst):
/// bad page, died, warned, soft lockup.
const BAD_TAINT: u64 = 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14;

/// A machine to run.
#[derive(Debug)]
pub struct Machine {
    /// The guest's root.
    pub tree: Tree,
    /// Kernel parameters beside the fixed ones.
    pub parameters: Vec<String>,
    /// Raw images: /dev/vda, /dev/vdb, …
    pub disks: Vec<PathBuf>,
    /// The socket of a card's vfio-user server.
    pub card: Option<PathBuf>,
    /// The guest's clock counts instructions, so that it does not see other load on this
    /// machine; its processors then take turns. Not for a card, which lives by the real clock.
    pub counted_clock: bool,
    /// The whole run may take this long.
    pub timeout: Duration,
    name: String,
    qemu: Qemu,
    kernel: Kernel,
}

/// What the guest tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It has reached a point, and waits until the host has handled this.
    Mark(&'a str),
    /// One of its findings.
    Line(&'a Value),
}

/// What a good run brought.
#[derive(Debug)]
pub struct Outcome {
    /// All lines of the guest but marks and summary; also in the file lines.json of the run.
    pub lines: Vec<Value>,
    /// From QEMU's start to its end.
    pub elapsed: Duration,
}

/// QEMU, killed if the run ends early.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// A machine without disks and card that boots in `mode` and runs `scenario`.
    pub fn new(equipment: &Equipment, scenario: &str, mode: Mode) -> Result<Self> {
        Self::with_tree(
            equipment,
            Tree::new(equipment, mode, false)?,
            scenario,
            mode,
        )
    }

    /// As [`new`](Self::new), with a card at `socket` that is already listening.
    pub fn with_card(
        equipment: &Equipment,
        scenario: &str,
        mode: Mode,
        socket: &Path,
    ) -> Result<Self> {
        let tree = Tree::new(equipment, mode, true)?;
        let mut machine = Self::with_tree(equipment, tree, scenario, mode)?;
        machine.card = Some(socket.to_owned());
        Ok(machine)
    }

    /// As [`with_card`](Self::with_card), with a root of the caller's, booted as recovery; `name`
    /// tells the runs of one scenario apart.
    pub fn recovery(
        equipment: &Equipment,
        scenario: &str,
        name: &str,
        tree: Tree,
        socket: &Path,
    ) -> Result<Self> {
        let mut machine = Self::with_tree(equipment, tree, scenario, Mode::Recovery)?;
        machine.card = Some(socket.to_owned());
        machine.name = name.to_owned();
        Ok(machine)
    }

    fn with_tree(equipment: &Equipment, tree: Tree, scenario: &str, mode: Mode) -> Result<Self> {
        let mut parameters = vec![format!("blockd.scenario={scenario}")];
        if mode == Mode::Recovery {
            parameters.push("androidboot.mode=recovery".to_owned());
        }
        Ok(Self {
            tree,
            parameters,
            disks: Vec::new(),
            card: None,
            counted_clock: false,
            timeout: TIMEOUT,
            name: scenario.to_owned(),
            qemu: equipment.qemu.clone(),
            kernel: equipment.kernel.clone(),
        })
    }

    /// Boots with SELinux and this binary policy; init loads it before anything else.
    pub fn set_policy(&mut self, policy: &Path) -> Result<()> {
        self.tree.file("sepolicy", policy)?;
        self.parameters.push("security=selinux".to_owned());
        Ok(())
    }

    /// Runs the guest to its end and tells `listener` what it says.
    ///
    /// # Errors
    /// No summary or a bad one, an alarm on the console, a time-out; the message has the end of
    /// the console.
    pub fn run(&self, listener: impl FnMut(Event<'_>) -> Result<()>) -> Result<Outcome> {
        let outcome = self.run_unless(&|| false, listener)?;
        outcome.context("a run that nobody cut has no outcome")
    }

    /// As [`run`](Self::run), but kills QEMU as soon as `cut` says so; then there is no outcome.
    pub fn run_unless(
        &self,
        cut: &dyn Fn() -> bool,
        listener: impl FnMut(Event<'_>) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let directory = run_directory(&self.name)?;
        let console = directory.join("console.log");
        fs::write(&console, "")?;
        let mut result = self.run_in(&directory, &console, cut, listener);
        if cut() {
            // What a machine without power says of itself is no finding.
            result = Ok(None);
        }
        let text = String::from_utf8_lossy(&fs::read(&console)?).into_owned();
        let alarm = text
            .lines()
            .find(|line| ALARMS.iter().any(|alarm| line.contains(alarm)));
        let problem = match (&result, alarm) {
            (Ok(None), _) | (Ok(_), None) => return result,
            (Ok(_), Some(line)) => format!("the console says `{}`", line.trim()),
            (Err(e), _) => format!("{e:#}"),
        };
        bail!(
            "guest {}: {problem}\n--- end of {}\n{}\n---",
            self.name,
            console.display(),
            process::tail(&text, SHOWN_LINES)
        );
    }

    fn run_in(
        &self,
        directory: &Path,
        console: &Path,
        cut: &dyn Fn() -> bool,
        mut listener: impl FnMut(Event<'_>) -> Result<()>,
    ) -> Result<Option<Outcome>> {
        let initrd = directory.join("initramfs.cpio");
        fs::write(&initrd, self.tree.archive())?;
        // A socket's path is short (108 bytes), the target directory's may not be.
        let sockets = tempfile::Builder::new().prefix("blockd-").tempdir()?;
        let port = sockets.path().join("results");
        let socket = UnixListener::bind(&port)?;
        let begin = Instant::now();
        let mut command = self.qemu.command();
        command.args(self.arguments(&port, console, &initrd));
        let log = fs::File::create(directory.join("qemu.log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut qemu = Process(command.spawn().context("start QEMU")?);

        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || receive(&socket, &sender));
        let mut answers: Option<UnixStream> = None;
        let mut lines = Vec::new();
        let mut summary = None;
        let end = begin + self.timeout;
        while summary.is_none() {
            if cut() {
                fs::remove_file(&initrd)?;
                return Ok(None);
            }
            ensure!(
                Instant::now() < end,
                "no summary after {} s",
                self.timeout.as_secs()
            );
            match receiver.recv_timeout(LOOK_AGAIN) {
                Ok(Message::Connected(stream)) => answers = Some(stream),
                Ok(Message::Line(line)) => match serde_json::from_str::<Value>(&line) {
                    Ok(value) if value["mark"].is_string() => {
                        listener(Event::Mark(value["mark"].as_str().unwrap_or_default()))?;
                        let port = answers.as_mut().context("line before connection")?;
                        port.write_all(b"go\n")?;
                    }
                    Ok(value) if value["summary"].is_object() => {
                        summary = Some(value["summary"].clone());
                    }
                    Ok(value) => {
                        listener(Event::Line(&value))?;
                        lines.push(value);
                    }
                    Err(e) => bail!("the guest sent `{}`: {e}", line.trim_end()),
                },
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = qemu.0.try_wait()? {
                        let messages = fs::read_to_string(directory.join("qemu.log"))?;
                        bail!("QEMU ended without a summary ({status}) {messages}");
                    }
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the results port closed early"),
            }
        }
        let end = Instant::now() + END_PATIENCE;
        while qemu.0.try_wait()?.is_none() {
            ensure!(Instant::now() < end, "the guest did not power off");
            thread::sleep(Duration::from_millis(20));
        }
        let summary = summary.unwrap_or_default();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(directory.join("lines.json"), text)?;
        // The largest file of the run, and made anew by the next.
        fs::remove_file(&initrd)?;
        ensure!(
            summary["ok"] == true,
            "scenario failed: {}",
            summary["error"]
        );
        let tainted = summary["tainted"].as_u64().context("no taint bits")?;
        ensure!(
            tainted & BAD_TAINT == 0,
            "the kernel is tainted: {tainted:#x}"
        );
        Ok(Some(Outcome {
            lines,
            elapsed: begin.elapsed(),
        }))
    }

    fn arguments(&self, port: &Path, console: &Path, initrd: &Path) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: String| {
            words.push(name.to_owned());
            words.push(value);
        };
        if self.counted_clock {
            add("-accel", "tcg,thread=single".into());
            add("-icount", format!("shift={INSTRUCTION_SHIFT}"));
        } else {
            add("-accel", "tcg,thread=multi".into());
        }
        // The emulated SHA instructions make reading images back three times as fast.
        // RDRAND, with random.trust_cpu: a guest without devices finds no entropy by itself, and
        // whoever waits for /dev/random (getrandom does, for session ids) waits for ever.
        add(
            "-cpu",
            "qemu64,+ssse3,+sse4.1,+sse4.2,+sha-ni,+rdrand".into(),
        );
        add("-smp", "2".into());
        add("-m", MEMORY_MIB.to_string());
        // The card reaches the guest's memory through this file.
        add(
            "-object",
            format!("memory-backend-memfd,id=mem,size={MEMORY_MIB}M,share=on"),
        );
        add("-machine", "pc,memory-backend=mem".into());
        add("-display", "none".into());
        add("-monitor", "none".into());
        add("-nic", "none".into());
        add("-serial", format!("file:{}", console.display()));
        add("-kernel", self.kernel.image.display().to_string());
        add("-initrd", initrd.display().to_string());
        // Warnings appear on the console, ordinary messages do not.
        let fixed = "console=ttyS0 panic=-1 loglevel=5 random.trust_cpu=on";
        add("-append", format!("{fixed} {}", self.parameters.join(" ")));
        add("-device", "virtio-serial-pci".into());
        add(
            "-chardev",
            format!("socket,id=results,path={}", port.display()),
        );
        add(
            "-device",
            "virtserialport,chardev=results,name=blockd.results".into(),
        );
        for disk in &self.disks {
            // What the guest writes is thrown away.
            let path = disk.display();
            add(
                "-drive",
                format!("file={path},format=raw,if=virtio,snapshot=on"),
            );
        }
        if let Some(socket) = &self.card {
            let device = serde_json::json!({
                "driver": "vfio-user-pci",
                "socket": {"type": "unix", "path": socket},
            });
            add("-device", device.to_string());
        }
        // Not even a killed xtask leaves it behind.
        add("-run-with", "exit-with-parent=on".into());
        words.push("-no-reboot".into());
        words.push("-no-user-config".into());
        words
    }
}

/// The directory of a run's console log: one for each process, since two may run at once. Those
/// of processes that are gone are removed.
fn run_directory(name: &str) -> Result<PathBuf> {
    let all = paths::target().join("vm/run");
    fs::create_dir_all(&all)?;
    for entry in fs::read_dir(&all)? {
        let path = entry?.path();
        let owner = path.extension().map(|pid| Path::new("/proc").join(pid));
        let is_ours = path.file_stem().is_some_and(|stem| stem == name);
        if is_ours && owner.is_some_and(|owner| !owner.exists()) {
            fs::remove_dir_all(&path)?;
        }
    }
    let directory = all.join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

enum Message {
    Connected(UnixStream),
    Line(String),
}

/// Sends what comes through the port; ends when QEMU closes it.
fn receive(socket: &UnixListener, sender: &mpsc::Sender<Message>) {
    let Ok((stream, _)) = socket.accept() else {
        return;
    };
    let Ok(answers) = stream.try_clone() else {
        return;
    };
    if sender.send(Message::Connected(answers)).is_err() {
        return;
    }
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        if sender.send(Message::Line(line)).is_err() {
            return;
        }
    }
}
