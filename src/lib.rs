//! blockd: block devices for Android's init and recovery.

pub mod aidl;

pub mod device;
pub mod error;
pub mod fact;
pub mod images;
pub mod names;
pub mod reset;
pub mod uapi;
pub mod units;
