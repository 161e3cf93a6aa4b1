//! blockd
fn main() {}
