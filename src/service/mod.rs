//! The binder side: authorise, convert, call a use case, map errors. Nothing below knows binder.

pub mod access;
pub mod activate;
pub mod config;
pub mod convert;
pub mod diagnostics;
pub mod dump;
pub mod error;
pub mod fua;
pub mod images;
pub mod ipc;
pub mod json;
pub mod last_report;
pub mod reset;
pub mod serve;
