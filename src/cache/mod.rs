//! Cache diagnostics: what FUA and flushes cost, what a power cut loses.

pub mod fua;
pub mod latency;
pub mod raw;
