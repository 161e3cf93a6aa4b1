//! blockd: block devices for Android's init and recovery.

pub mod aidl;
pub mod device;
pub mod error;
pub mod uapi;
pub mod units;
