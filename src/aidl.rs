//! The generated AIDL types under one spelling, whichever compiler made them.
//!
//! Cargo: rsbinder-aidl, by `aidl/build.rs`. Soong: the crate of the `aidl_interface` module.

#[cfg(not(soong))]
#[allow(missing_docs, unused_qualifications, clippy::all)]
mod generated {
    rsbinder::include_aidl!("dev_blockd");
    pub use dev::blockd::*;
}

#[cfg(soong)]
mod generated {
    pub use dev_blockd::aidl::dev::blockd::*;
}

pub use generated::*;
