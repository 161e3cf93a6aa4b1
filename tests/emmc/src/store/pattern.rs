//! The initial content of a medium, computed instead of written.
use super::SECTOR;

/// First eight bytes of every pattern sector.
pub const MAGIC: &[u8; 8] = b"EMMCPAT1";

/// Content that is a function of a seed and the sector number.
///
/// Layout of a sector (little endian): [`MAGIC`], sector number (u64), seed (u64), then a
/// pseudo-random stream keyed by both. No two sectors are equal, none is uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Chooses the stream.
    pub seed: u64,
}

/// splitmix64's output function.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Pattern {
    /// The content of one sector.
    pub fn sector(self, lba: u64) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(MAGIC);
        out[8..16].copy_from_slice(&lba.to_le_bytes());
        out[16..24].copy_from_slice(&self.seed.to_le_bytes());
        let mut key = mix(self.seed ^ mix(lba.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        for word in out[24..].chunks_exact_mut(8) {
            key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mix(key).to_le_bytes());
        }
        out
    }

    /// True if `data` is exactly what sector `lba` holds.
    pub fn matches(self, lba: u64, data: &[u8]) -> bool {
        data.starts_with(MAGIC) && data == self.sector(lba)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_seed_and_sector() {
        let p = Pattern { seed: 1 };
        assert!(p.matches(7, &p.sector(7)));
        assert!(!p.matches(8, &p.sector(7)));
        assert!(!Pattern { seed: 2 }.matches(7, &p.sector(7)));
        assert_ne!(p.sector(7)[24..], p.sector(8)[24..]);
        let mut flipped = p.sector(7);
        flipped[511] ^= 1;
        assert!(!p.matches(7, &flipped));
    }
}
