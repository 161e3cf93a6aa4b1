//! The test guest: what runs inside the virtual machine beside the product.
//!
//! One static binary serves as `/init` and, under other subcommands, as the scenarios.
//! [`rc`] is a parser of Android's init language that the host uses too (`cargo xtask check-rc`).

pub mod init;
pub mod rc;
pub mod scenario;
pub mod stacks;
pub mod sys;
pub mod trace;
