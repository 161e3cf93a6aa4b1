//! `blockctl cache`.

pub mod args;
mod fua;
mod place;

use crate::args::Cli;
use crate::output::Output;
use args::Cache;
use blockd::client::Client;
use blockd::error::Result;

/// Runs one verb.
pub fn run(
    cli: &Cli,
    verb: &Cache,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    match verb {
        Cache::Fua(arguments) => fua::run(cli, arguments, connect, output),
    }
}
