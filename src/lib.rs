//! blockd: block devices for Android's init and recovery.

pub mod aidl;
pub mod cache;
pub mod client;
pub mod device;
pub mod diagnostics;
pub mod error;
pub mod fact;
pub mod files;
pub mod images;
pub mod logger;
pub mod names;
pub mod reset;
pub mod service;
pub mod uapi;
pub mod units;

/// Version of blockd. Soong sets no CARGO_* variables, so it is written here; a test compares it.
pub const VERSION: &str = "0.1.0";

#[cfg(all(test, not(soong)))]
mod tests {
    #[test]
    fn the_version_is_the_package_s() {
        assert_eq!(super::VERSION, env!("CARGO_PKG_VERSION"));
    }
}
