//! `blockd-bench images`: rows of JSON on standard output.

use anyhow::Result;
use bench::images;
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
    }
}
