//! `cargo xtask …`: the project's own tasks.

mod bench;
mod binaries;
mod card;
mod check;
mod demo;
mod gpt;
mod images;
mod latency;
mod paths;
mod powercut;
mod process;
mod report;
mod soak;
mod test;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use serde_json::Value;
use vm::machine::{Event, Machine};

/// A scenario that was asked for by hand may take this long.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(300);

/// The project's own tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch what the guest needs (QEMU, a kernel, a service manager) into target/
    Setup,
    /// Show what the product does: one-command secure erase, images without queue freezes
    Demo {
        /// Print one line of JSON at the end instead of a table
        #[arg(long)]
        json: bool,
        /// Without a guest: over a Unix socket, on the card model, on this machine's loop devices
        #[arg(long)]
        in_process: bool,
    },
    /// Run the tests on this machine and in the guest
    #[command(args_conflicts_with_subcommands = true)]
    Test {
        #[command(subcommand)]
        suite: Option<Suite>,
        /// Those on this machine only
        #[arg(long)]
        quick: bool,
        /// Those in the guest only
        #[arg(long, conflicts_with = "quick")]
        guest: bool,
        /// In the guest, those that have this in their name
        #[arg(long, value_name = "PART")]
        only: Option<String>,
    },
    /// Measure: `erase` is a secure erase by size of its commands, ours beside the kernel's and
    /// mmc-utils'; `images` is attaching files, ours beside losetup's and apexd's way; `fua` is the
    /// FUA measurement beside fio, on a disk in memory
    Bench {
        /// erase, images, fua
        what: String,
        /// images: numbers of files
        #[arg(
            long = "n",
            value_delimiter = ',',
            value_name = "N,…",
            default_value = "1,8,40"
        )]
        counts: Vec<usize>,
        /// images: host, guest, guest-slow-rcu (default: all)
        #[arg(long = "where", value_delimiter = ',', value_name = "PLACE,…")]
        places: Vec<String>,
        /// fua: pairs of runs, ours and fio's
        #[arg(long, value_name = "N", default_value_t = 15)]
        rounds: usize,
        /// Print one line of JSON at the end instead of a table
        #[arg(long)]
        json: bool,
        /// Only what needs no guest
        #[arg(long)]
        in_process: bool,
    },
    /// One HTML page with charts from the results of `bench … --json` and `test latency-cuts --json`
    Report {
        /// Where report.html is written
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The results (default: DIR/*.json)
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Check init .rc files as AOSP's init would
    CheckRc {
        /// The files; those of rc/ if none is named
        files: Vec<PathBuf>,
    },
    /// Check the interfaces with AOSP's own compiler: all backends, codes, frozen versions
    CheckAidl {
        /// The include directory; aidl/ if none is named
        directory: Option<PathBuf>,
    },
    /// Freeze the interfaces as their next version, in aidl_api/
    FreezeAidl,
    /// Type-check the product for Android, with its standard library built from source
    CheckAndroid,
    /// Boot the guest and run one scenario; its lines go to stdout
    Guest {
        /// Name of the scenario
        scenario: String,
        /// Boot as recovery does
        #[arg(long)]
        recovery: bool,
        /// With a card: its log per phase goes to stdout too
        #[arg(long)]
        card: bool,
        /// Boot with SELinux and this binary policy (tests/sepolicy/build makes one)
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// More kernel parameters
        #[arg(long, value_name = "PARAMETERS")]
        append: Vec<String>,
    },
}

/// Suites of their own.
#[derive(Subcommand)]
enum Suite {
    /// Attach and detach from many clients at once; then nothing is left and nothing of anybody
    /// else's was touched
    Soak {
        /// Attachments in all
        #[arg(long, default_value_t = 10_000)]
        cycles: usize,
        /// Clients at once
        #[arg(long, default_value_t = 16)]
        clients: usize,
        /// Print one line of JSON at the end instead of a sentence
        #[arg(long)]
        json: bool,
        /// Do wrong in this way, which the suite must find: leak, foreign
        #[arg(long, value_name = "HOW", value_parser = ["leak", "foreign"])]
        broken: Option<String>,
    },
    /// Cut the power of a card that `cache latency write` writes to; `cache latency check` must know
    /// what the card lost
    LatencyCuts {
        /// Number of cuts; 25 have each outcome at least five times
        #[arg(long, default_value_t = 25)]
        cuts: usize,
        /// Decides the instants
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Machines at once
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Print one line of JSON at the end instead of a table
        #[arg(long)]
        json: bool,
        /// Broken in this way, which the suite must find: forgetful (the last acknowledgement is
        /// kept from the check)
        #[arg(long, value_name = "HOW", value_parser = ["forgetful"])]
        broken: Option<String>,
    },
    /// Cut the power of the guest in every phase of a reset, boot again, judge the medium
    Powercut {
        /// Number of cuts; 25 have at least three in every phase
        #[arg(long, default_value_t = 25)]
        cuts: usize,
        /// Decides the instants, and what the card's cache keeps
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Machines at once
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Print one line of JSON at the end instead of a table
        #[arg(long)]
        json: bool,
        /// With a client that is broken in this way, which the suite must find: late-marker
        #[arg(long, value_name = "HOW", value_parser = ["late-marker"])]
        broken: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Setup => vm::setup::all().map(drop),
        Task::Demo { json, in_process } => demo::run(json, in_process),
        Task::Test {
            suite:
                Some(Suite::Powercut {
                    cuts,
                    seed,
                    jobs,
                    json,
                    broken,
                }),
            ..
        } => {
            let options = powercut::Options {
                cuts,
                seed,
                jobs,
                late_marker: broken.is_some(),
            };
            powercut::run(&vm::setup::all()?, options, json)
        }
        Task::Test {
            suite:
                Some(Suite::LatencyCuts {
                    cuts,
                    seed,
                    jobs,
                    json,
                    broken,
                }),
            ..
        } => {
            let options = latency::Options {
                cuts,
                seed,
                jobs,
                forgetful: broken.is_some(),
            };
            latency::run(&vm::setup::all()?, options, json)
        }
        Task::Test {
            suite:
                Some(Suite::Soak {
                    cycles,
                    clients,
                    json,
                    broken,
                }),
            ..
        } => soak::run(cycles, clients, json, broken.as_deref()),
        Task::Test {
            quick, guest, only, ..
        } => test::run(!guest, !quick, only.as_deref()),
        Task::Bench {
            what,
            counts,
            places,
            rounds,
            json,
            in_process,
        } => match what.as_str() {
            "erase" => bench::erase::run(json, in_process),
            "images" => bench::images::run(&counts, &places, json, in_process),
            "fua" => bench::fua::run(rounds, json),
            other => anyhow::bail!("there is no bench `{other}`; there are: erase, images, fua"),
        },
        Task::Report { out, files } => report::run(&out, &files),
        Task::CheckAidl { directory } => check::aidl::run(directory.as_deref()),
        Task::FreezeAidl => check::aidl::freeze(),
        Task::CheckAndroid => check::android::run(),
        Task::CheckRc { files } => check::rc::run(&files),
        Task::Guest {
            scenario,
            recovery,
            card,
            policy,
            append,
        } => {
            let equipment = vm::setup::all()?;
            let show = |line: &Value| println!("{line}");
            let prepare = |machine: &mut Machine| {
                machine.timeout = SCENARIO_TIMEOUT;
                if let Some(policy) = &policy {
                    machine.set_policy(policy)?;
                }
                machine.parameters.extend(append);
                Ok(())
            };
            if card {
                let findings = demo::reset::boot(&equipment, &scenario, prepare, show)?;
                for (name, phase) in &findings.phases {
                    let counters = serde_json::to_value(&phase.log.counters)?;
                    println!("{}", serde_json::json!({"phase": name, "card": counters}));
                }
                eprintln!("guest ran {:.1} s", findings.seconds);
                return Ok(());
            }
            let mode = if recovery {
                vm::Mode::Recovery
            } else {
                vm::Mode::System
            };
            let mut machine = Machine::new(&equipment, &scenario, mode)?;
            prepare(&mut machine)?;
            let outcome = machine.run(|event| {
                if let Event::Line(line) = event {
                    show(line);
                }
                Ok(())
            })?;
            eprintln!("guest ran {:.1} s", outcome.elapsed.as_secs_f64());
            Ok(())
        }
    }
}
