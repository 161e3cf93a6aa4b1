//! The kernel's interface, call by call: the only place with `unsafe`.
//!
//! Each file mirrors the part of a UAPI header that the project uses, in the header's own names.
//! Tests pin numbers and sizes to literals, since a wrong ioctl number destroys data quietly.
#![allow(unsafe_code)]

pub mod block;
pub mod dm;
pub mod file;
pub mod loops;
pub mod mmc;
pub mod process;
