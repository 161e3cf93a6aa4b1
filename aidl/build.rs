//! Generates the Rust side of `aidl/dev/blockd/*.aidl` for Cargo builds.
//! Soong does this by its own `aidl_interface` module and never runs this file.

use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("aidl");
    println!("cargo:rerun-if-changed=aidl");
    rsbinder_aidl::Builder::new()
        .source(root.join("dev/blockd"))
        .include_dir(root)
        .output(PathBuf::from("dev_blockd.rs"))
        .generate()
        .unwrap_or_else(|error| {
            eprintln!("{:?}", miette::Report::new(error));
            std::process::exit(1);
        });
}
