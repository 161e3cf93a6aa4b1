//! Cache diagnostics: what FUA and flushes cost.

pub mod fua;
pub mod raw;
