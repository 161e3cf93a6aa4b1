//! Factory reset.

pub mod request;
