//! Factory reset.

pub mod facts;
pub mod request;
pub mod step;
