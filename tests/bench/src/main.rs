//! `blockd-bench images`, `blockd-bench fua`: rows of JSON on standard output. `blockd-bench soak`: one such line.

use anyhow::{bail, Result};
use bench::fua;
use bench::images::{self, Daemon};
use bench::soak::{self, Broken};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Attach files by each strategy and tell how long it took
    Images {
        /// For the rows
        #[arg(long = "where", default_value = "host")]
        place: String,
        /// The files are made below it
        #[arg(long)]
        folder: PathBuf,
        /// Numbers of files
        #[arg(long = "n", value_delimiter = ',', default_value = "1,8,40")]
        counts: Vec<usize>,
        /// Rounds of what is quick
        #[arg(long, default_value_t = 21)]
        rounds: usize,
        /// Rounds of what takes seconds
        #[arg(long, default_value_t = 3)]
        slow_rounds: usize,
        /// blockd, to be started on a socket
        #[arg(long)]
        blockd: Option<PathBuf>,
        /// The service at the service manager too
        #[arg(long)]
        binder: bool,
        /// Count queue freezes by the function tracer
        #[arg(long)]
        trace: bool,
    },
    /// Measure the FUA measurement beside fio
    Fua {
        /// In memory: the disk lies there
        #[arg(long, default_value = "/dev/shm")]
        folder: PathBuf,
        /// Bytes of the disk
        #[arg(long, default_value_t = 512 << 20)]
        length: u64,
        /// Pairs for each row
        #[arg(long, default_value_t = 15)]
        rounds: usize,
    },
    /// Attach and detach from many clients; then nothing is left and nothing else was touched
    Soak {
        /// The files are made below it
        #[arg(long)]
        folder: PathBuf,
        /// blockd, to be started on a socket
        #[arg(long)]
        blockd: PathBuf,
        /// Attachments in all
        #[arg(long, default_value_t = 10_000)]
        cycles: usize,
        /// Clients at once
        #[arg(long, default_value_t = 16)]
        clients: usize,
        /// Do wrong in this way, which must be found: leak, foreign
        #[arg(long, value_parser = ["leak", "foreign"])]
        broken: Option<String>,
    },
    /// A client that `soak` kills
    #[command(hide = true)]
    Victim {
        socket: PathBuf,
        file: PathBuf,
        name: String,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Images {
            place,
            folder,
            counts,
            rounds,
            slow_rounds,
            blockd,
            binder,
            trace,
        } => {
            let options = images::Options {
                place,
                folder,
                counts,
                rounds,
                slow_rounds,
                blockd,
                binder,
                trace,
            };
            images::run(&options, |row| println!("{row}"))
        }
        Task::Fua {
            folder,
            length,
            rounds,
        } => {
            let options = fua::Options {
                folder,
                length,
                rounds,
            };
            fua::run(&options, |row| println!("{row}"))
        }
        Task::Soak {
            folder,
            blockd,
            cycles,
            clients,
            broken,
        } => {
            let socket = folder.join(format!("s{}.sock", std::process::id()));
            let daemon = Daemon::start(&blockd, &socket)?;
            let outcome = soak::run(&soak::Options {
                socket: socket.clone(),
                pid: Some(daemon.pid()),
                folder,
                program: Some(std::env::current_exe()?),
                cycles,
                clients,
                broken: broken.map(|how| match how.as_str() {
                    "leak" => Broken::Leak,
                    _ => Broken::Foreign,
                }),
            });
            drop(daemon);
            let _ = std::fs::remove_file(socket);
            let outcome = outcome?;
            println!("{}", outcome.json());
            if !outcome.clean() {
                bail!("the machine is not as it was");
            }
            Ok(())
        }
        Task::Victim { socket, file, name } => soak::victim(&socket, &file, &name),
    }
}
