//! `demo`: the two things that the product is for, done in a guest with a real kernel and judged
//! from outside.

pub mod reset;
