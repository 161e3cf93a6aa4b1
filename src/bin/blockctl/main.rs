//! blockctl
fn main() {}
