//! `bench`: figures, measured side by side in one run.

pub mod erase;
pub mod fua;
pub mod images;
