//! Memory that O_DIRECT accepts.

use std::ops::{Deref, DerefMut};

/// O_DIRECT wants addresses on the logical block size; a page satisfies every disk.
const ALIGNMENT: usize = 4096;

/// A zeroed buffer whose address is a multiple of 4096.
pub struct DirectBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl DirectBuffer {
    /// A buffer of `length` bytes, zeroed.
    pub fn new(length: usize) -> DirectBuffer {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        DirectBuffer {
            memory,
            start,
            length,
        }
    }
}

impl Deref for DirectBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for DirectBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_aligned_and_the_length_exact() {
        for length in [512, 4096, 65536] {
            let buffer = DirectBuffer::new(length);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.len(), length);
        }
    }
}
