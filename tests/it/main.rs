//! The integration tests: one binary for the build machine and for the guest.
//!
//! What a case needs is probed before the run; a case whose needs are not met is listed as ignored
//! with the reason as its kind. `BLOCKD_REQUIRE=all` turns every such case into a failure. With
//! `--guest [PART-OF-A-NAME]` the results are JSON lines on stdout, with a summary at the end.

// Built by Cargo alone, with the Rust that README.md names; only the product keeps to 1.75.
#![allow(clippy::incompatible_msrv)]

mod cache;
mod case;
mod diagnostics;
mod images;
mod in_guest;
mod layers;
mod needs;
mod report;
mod reset;
mod served;
mod service;
mod soong;

use case::Case;
use needs::{Need, Needs};

fn main() {
    let mut arguments: Vec<String> = std::env::args().collect();
    if arguments
        .get(1)
        .is_some_and(|first| first == images::dying::ARGUMENT)
    {
        if let Err(error) = images::dying::main(&arguments[2..]) {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
        return;
    }
    let guest = arguments.iter().any(|argument| argument == "--guest");
    arguments.retain(|argument| argument != "--guest");

    let needs = Needs::probe(guest);
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(layers::cases());
    cases.extend(reset::cases());
    for (name, run) in images::LOOP_CASES {
        cases.push(image_case(name, *run).needs(&[Need::Root, Need::Loop]));
    }
    for (name, run) in images::APEX_CASES {
        cases.push(image_case(name, *run).needs(&[Need::Root, Need::Loop, Need::ApexFiles]));
    }
    cases.extend(cache::cases());
    let mounts = [Need::Root, Need::Loop, Need::FileSystem("erofs")];
    for (name, run) in images::MOUNT_CASES {
        cases.push(image_case(name, *run).needs(&mounts));
    }
    for (name, run) in images::VERITY_CASES {
        cases.push(image_case(name, *run).needs(&mounts).needs(&[Need::Mapper]));
    }
    for (name, run) in images::REAL_VERITY_CASES {
        let real = [Need::Mapper, Need::ApexFiles, Need::FileSystem("ext4")];
        cases.push(image_case(name, *run).needs(&mounts).needs(&real));
    }
    cases.extend(diagnostics::cases());
    cases.extend(service::cases());
    cases.extend(report::cases());
    cases.extend(soong::cases(&needs));
    cases.extend(in_guest::cases());
    if guest {
        if let Some(part) = arguments.get(1) {
            cases.retain(|case| case.is_named(part));
        }
        case::run_in_guest(&needs, cases);
    } else {
        case::run_on_host(&needs, &arguments, cases);
    }
}

fn image_case(name: &str, run: fn() -> anyhow::Result<()>) -> Case {
    Case::new(&format!("images::{name}"), move || {
        run().map_err(|error| format!("{error:#}"))
    })
}
