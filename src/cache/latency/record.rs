//! The record that is overwritten again and again: two adjacent blocks, each complete by itself, so
//! that one that was not written with the other is seen.
//!
//! Layout of a block, little-endian: magic 0..16, run 16..32, sequence 32..40, monotonic
//! nanoseconds 40..48, byte offset of the record in its partition 48..56, half (0 or 1) 56, length of
//! the partition's name 57, its name 64..136, then bytes that the sequence decides, CRC-32 of all of it in the
//! last four.

use crate::units::Bytes;
use std::fmt;
use std::time::Duration;

const MAGIC: [u8; 16] = *b"blockd latency\0\x01";
const NAME: usize = 64;
/// GPT names have 36 UTF-16 units.
const NAME_BYTES: usize = 72;
const FILL: usize = NAME + NAME_BYTES;

/// Names a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub [u8; 16]);

impl RunId {
    /// Reads 32 hexadecimal digits; dashes are passed over.
    pub fn parse(text: &str) -> Option<RunId> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|b| *b != b'-')
            .map(|b| (b as char).to_digit(16).map(|d| d as u8))
            .collect::<Option<_>>()?;
        let mut bytes = [0; 16];
        if digits.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Some(RunId(bytes))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

/// What both blocks of a record say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of which run.
    pub run: RunId,
    /// The how manyeth of it; 0 is flushed before anything else is written.
    pub sequence: u64,
    /// Monotonic time just before it was written.
    pub time: Duration,
    /// Where it lies in its partition.
    pub offset: Bytes,
    /// GPT name of that.
    pub partition: String,
}

/// What one block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Half {
    /// Nothing of ours.
    Foreign,
    /// Ours, but its checksum does not match, or it is the other half.
    Damaged,
    /// A whole half.
    Whole(Record),
}

impl Record {
    /// Half `half` (0 or 1) as a block of `block` bytes.
    pub fn encode(&self, half: u8, block: usize) -> Vec<u8> {
        let mut bytes = vec![0; block];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..32].copy_from_slice(&self.run.0);
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let nanos = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        bytes[40..48].copy_from_slice(&nanos.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.offset.0.to_le_bytes());
        bytes[56] = half;
        let name = self.partition.as_bytes();
        let length = name.len().min(NAME_BYTES);
        bytes[57] = length as u8;
        bytes[NAME..NAME + length].copy_from_slice(&name[..length]);
        let mut word = self.sequence;
        for part in bytes[FILL..block - 4].chunks_mut(8) {
            // splitmix64: no two records share a stretch of a block.
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            part.copy_from_slice(&mixed.to_le_bytes()[..part.len()]);
        }
        let sum = crc32(&bytes[..block - 4]);
        bytes[block - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the block that should be half `half`.
    pub fn decode(bytes: &[u8], half: u8) -> Half {
        let Some(end) = bytes.len().checked_sub(4).filter(|end| *end > FILL) else {
            return Half::Foreign;
        };
        if bytes[..16] != MAGIC {
            return Half::Foreign;
        }
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let name = bytes.get(NAME..NAME + usize::from(bytes[57]).min(NAME_BYTES));
        let whole = crc32(&bytes[..end]).to_le_bytes() == bytes[end..] && bytes[56] == half;
        match name {
            Some(name) if whole => {
                let mut run = [0; 16];
                run.copy_from_slice(&bytes[16..32]);
                Half::Whole(Record {
                    run: RunId(run),
                    sequence: word(32),
                    time: Duration::from_nanos(word(40)),
                    offset: Bytes(word(48)),
                    partition: String::from_utf8_lossy(name).into_owned(),
                })
            }
            _ => Half::Damaged,
        }
    }
}

/// CRC-32 (IEEE 802.3), bit by bit: two blocks a record need no table.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            run: RunId([7; 16]),
            sequence: 1234,
            time: Duration::from_nanos(5_000_000_001),
            offset: Bytes(31 << 20),
            partition: "userdata".to_owned(),
        }
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn halves_are_read_back() {
        for block in [512, 4096] {
            for half in [0, 1] {
                let bytes = record().encode(half, block);
                assert_eq!(bytes.len(), block);
                assert_eq!(Record::decode(&bytes, half), Half::Whole(record()));
                assert_eq!(Record::decode(&bytes, 1 - half), Half::Damaged);
            }
        }
        let long = Record {
            partition: "ä".repeat(40),
            ..record()
        };
        assert!(matches!(
            Record::decode(&long.encode(0, 512), 0),
            Half::Whole(_)
        ));
    }

    #[test]
    fn any_other_bit_is_damage() {
        let bytes = record().encode(0, 512);
        for at in 16..512 {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(Record::decode(&bad, 0), Half::Damaged, "byte {at}");
        }
        // Half of another record, at any border.
        let next = Record {
            sequence: 1235,
            ..record()
        };
        let next = next.encode(0, 512);
        for border in (64..512).step_by(64) {
            let mixed = [&next[..border], &bytes[border..]].concat();
            assert_eq!(Record::decode(&mixed, 0), Half::Damaged, "byte {border}");
        }
        for foreign in [vec![0; 512], vec![0xff; 512], vec![0; 16], Vec::new()] {
            assert_eq!(Record::decode(&foreign, 0), Half::Foreign);
        }
    }

    #[test]
    fn run_names_are_read() {
        let text = "0123456789abcdef0123456789abcdef";
        let run = RunId::parse(text).expect("a name");
        assert_eq!(run.to_string(), text);
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(RunId::parse(uuid), Some(run));
        for bad in ["", "0123", "x123456789abcdef0123456789abcdef"] {
            assert_eq!(RunId::parse(bad), None, "{bad}");
        }
    }
}
