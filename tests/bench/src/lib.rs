//! Measures attaching and shakes it: ours beside what others do, on the real loop driver. Measures
//! the FUA measurement beside fio.

pub mod fua;
pub mod images;
pub mod soak;
pub mod sys;
