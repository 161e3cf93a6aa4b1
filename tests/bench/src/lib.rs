//! Measures attaching and shakes it: ours beside what others do, on the real loop driver.

pub mod images;
pub mod soak;
pub mod sys;
