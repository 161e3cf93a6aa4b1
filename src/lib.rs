//! blockd
