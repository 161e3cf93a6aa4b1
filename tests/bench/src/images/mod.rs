//! `images`: attaching N files by each strategy, in interleaved rounds.

mod files;
mod product;
mod rounds;
mod strategies;

pub use files::{Files, Image};
pub use product::Daemon;
pub use rounds::{run, Options};
