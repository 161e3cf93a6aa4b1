//! Canaries: blocks of known content, written before an erase at every position that is read back
//! after it. An erase that skipped a position leaves its canary, whatever was there before.

use crate::units::Sectors;

const MAGIC: &[u8; 16] = b"blockd canary 1\0";
/// Magic, position, run, checksum.
const HEADER: usize = 40;

/// A number that is spread evenly: splitmix64 (Steele, Lea, Flood 2014).
pub fn spread(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bit: enough to tell one of our blocks from anything else and to compare neighbours.
pub fn digest(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Fills `block` (at least 512 bytes) with the canary of `run` at `position`.
pub fn fill(block: &mut [u8], run: u64, position: Sectors) {
    let mut state = run ^ position.0;
    for chunk in block[HEADER..].chunks_mut(8) {
        state = spread(state);
        let bytes = state.to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    block[..16].copy_from_slice(MAGIC);
    block[16..24].copy_from_slice(&position.0.to_le_bytes());
    block[24..32].copy_from_slice(&run.to_le_bytes());
    let sum = digest(&block[..32]) ^ digest(&block[HEADER..]);
    block[32..HEADER].copy_from_slice(&sum.to_le_bytes());
}

/// True where `block` is exactly the canary of `run` at `position`.
pub fn is_canary(block: &[u8], run: u64, position: Sectors) -> bool {
    let mut expected = vec![0; block.len()];
    fill(&mut expected, run, position);
    block == expected
}

/// The pattern of the first overwriting pass.
pub fn pattern(block: &mut [u8], run: u64, position: Sectors) {
    let mut state = !run ^ position.0;
    for chunk in block.chunks_mut(8) {
        state = spread(state);
        let bytes = state.to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_names_its_run_and_position() {
        let mut block = [0; 512];
        fill(&mut block, 7, Sectors(4096));
        assert!(is_canary(&block, 7, Sectors(4096)));
        assert!(!is_canary(&block, 8, Sectors(4096)));
        assert!(!is_canary(&block, 7, Sectors(4097)));
        block[511] ^= 1;
        assert!(!is_canary(&block, 7, Sectors(4096)));
        assert!(!is_canary(&[0; 512], 7, Sectors(4096)));
    }
}
