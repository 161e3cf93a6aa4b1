//! Checks of the Android side that need no AOSP tree.

pub mod aidl;
pub mod android;
pub mod rc;
