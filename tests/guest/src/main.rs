//! Guest init.
fn main() {}
