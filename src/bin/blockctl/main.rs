//! blockctl, the client: reads the command line, calls one interface, prints.

mod apex;
mod args;
mod cache;
mod card;
mod certificate;
mod doctor;
mod facts;
mod image;
mod output;
mod progress;
mod reset;

use args::{Cli, Noun};
use blockd::client::{Client, Place};
use blockd::device::Host;
use blockd::error::{Code, Failure};
use blockd::images::Images;
use blockd::service::serve::Machine;
use clap::error::ErrorKind;
use clap::Parser;
use output::Output;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            // Nothing can be said where the terminal is gone.
            let _ = error.print();
            return if asked {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
    };
    blockd::uapi::process::reserve_descriptors();
    blockd::logger::init(match (cli.quiet, cli.verbose) {
        // In this process the service's log would only say the failure twice.
        (_, 0) if cli.connect == Place::Local => log::LevelFilter::Off,
        (true, _) => log::LevelFilter::Error,
        (_, 0) => log::LevelFilter::Warn,
        (_, 1) => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    });
    let output = Output::new(cli.json, cli.quiet);
    match run(&cli, &output) {
        Ok(status) => status,
        Err(failure) => {
            output.failure(&failure);
            exit_code(failure.code)
        }
    }
}

fn exit_code(code: Code) -> ExitCode {
    match code {
        Code::Unsupported | Code::NotEmmc | Code::AssuranceUnreachable => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

fn run(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    if cli.state.is_some() && cli.connect != Place::Local {
        return Err(Failure::new(
            Code::InvalidRequest,
            "arguments",
            "--state was given without --connect local",
        )
        .remedy("a service keeps its reports where its own --state says"));
    }
    if cli.apex_root.is_some() && cli.connect != Place::Local {
        return Err(Failure::new(
            Code::InvalidRequest,
            "arguments",
            "--apex-root was given without --connect local",
        )
        .remedy("a service mounts where its own --apex-root says"));
    }
    let images = || match &cli.apex_root {
        Some(root) => Images::new().with_apex_root(root),
        None => Images::new(),
    };
    let connect = || {
        Client::connect(&cli.connect, Duration::from_secs(cli.wait), || Machine {
            storage: Arc::new(Host::new()),
            images: Arc::new(images()),
            state: cli.state.clone(),
        })
    };
    match &cli.noun {
        Noun::Reset(verb) => reset::run(cli, verb, connect, output),
        Noun::Image(verb) => image::run(verb, connect, output),
        Noun::Apex(verb) => apex::run(verb, connect, output),
        Noun::Card(args::Card::Info { disk, raw, from }) => {
            card::info(disk.as_deref(), *raw, from.as_deref(), connect, output)
        }
        Noun::Cache(verb) => return cache::run(cli, verb, connect, output),
        Noun::Doctor => doctor::run(connect, output),
    }
    .map(|()| ExitCode::SUCCESS)
}
