//! `blockctl cache`.

pub mod args;
mod fua;
mod info;
mod latency;
mod place;

use crate::args::Cli;
use crate::output::Output;
use args::{Cache, Latency};
use blockd::client::Client;
use blockd::error::Result;
use std::process::ExitCode;

/// Runs one verb.
pub fn run(
    cli: &Cli,
    verb: &Cache,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<ExitCode> {
    match verb {
        Cache::Info { disk } => info::run(disk.as_deref(), connect, output)?,
        Cache::Fua(arguments) => fua::run(cli, arguments, connect, output)?,
        Cache::Latency(Latency::Write(arguments)) => latency::write(arguments, output)?,
        Cache::Latency(Latency::Check(arguments)) => return latency::check(arguments, output),
    }
    Ok(ExitCode::SUCCESS)
}
