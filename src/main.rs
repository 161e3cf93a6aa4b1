//! blockd, the service: reads its command line, wires the machine to the binder objects, serves.

use blockd::device::Host;
use blockd::images::Images;
use blockd::service::config::{parse, Action, USAGE};
use blockd::service::serve::{run, Machine};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let config = match parse(std::env::args().skip(1)) {
        Ok(Action::Serve(config)) => config,
        Ok(Action::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Action::Version) => {
            println!("blockd {}", blockd::VERSION);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("blockd: {error}");
            return ExitCode::FAILURE;
        }
    };
    blockd::uapi::process::reserve_descriptors();
    blockd::logger::init(log::LevelFilter::Info);
    let mut images = Images::new();
    if let Some(root) = &config.apex_root {
        images = images.with_apex_root(root);
    }
    let machine = Machine {
        storage: Arc::new(Host::new()),
        images: Arc::new(images),
        state: config.state.clone(),
    };
    match run(&config, &machine) {
        Ok(never) => match never {},
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
