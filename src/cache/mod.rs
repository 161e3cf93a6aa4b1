//! Cache diagnostics: what is known of the caches, what FUA and flushes cost, what a power cut loses.

pub mod facts;
pub mod fua;
pub mod latency;
pub mod raw;
