//! The guest's binary: `/init`, `guest scenario NAME`, `guest setprop NAME VALUE`,
//! `guest getprop NAME`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use guest::init::properties::{ask, Request};
use guest::{init, scenario};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let name = words
        .first()
        .and_then(|w| Path::new(w).file_name())
        .and_then(|n| n.to_str());
    match (name, words.get(1..).unwrap_or_default()) {
        // The kernel appends unknown command line words to init's arguments.
        (Some("init"), _) if std::process::id() == 1 => init::main(),
        (_, ["scenario", name]) => scenario::main(name),
        (_, ["setprop", name, value]) => answer(&Request::Set((*name).into(), (*value).into())),
        (_, ["getprop", name]) => answer(&Request::Get((*name).into())),
        _ => {
            eprintln!("usage: guest scenario NAME | setprop NAME VALUE | getprop NAME");
            ExitCode::FAILURE
        }
    }
}

fn answer(request: &Request) -> ExitCode {
    match ask(request) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}
