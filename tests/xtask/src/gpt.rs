//! A GUID partition table (UEFI 2.10, chapter 5): protective MBR, primary and backup table.

use std::io;

/// Bytes per logical block.
pub const SECTOR: usize = 512;

/// Size and number of the entries that UEFI asks for at least.
const ENTRY_BYTES: usize = 128;
const ENTRIES: usize = 128;
const HEADER_BYTES: u32 = 92;
const REVISION: u32 = 0x0001_0000;
/// Sectors of one array of entries.
const ARRAY_SECTORS: u64 = (ENTRIES * ENTRY_BYTES / SECTOR) as u64;
/// First sector that a partition may use: MBR, header, array.
pub const FIRST_USABLE: u64 = 2 + ARRAY_SECTORS;
/// Sectors after the last that a partition may use: array, header.
pub const TAIL: u64 = ARRAY_SECTORS + 1;

/// Linux file system data, as the table stores it (mixed endian).
const TYPE: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Name, ASCII, at most 36 characters.
    pub name: &'static str,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub sectors: u64,
}

impl Partition {
    /// First sector behind it.
    pub fn end(&self) -> u64 {
        self.start + self.sectors
    }
}

/// The blocks of the table for a disk of `sectors`: first sector and content of each stretch.
///
/// # Errors
/// A partition that overlaps another or leaves the usable range, a name that is too long.
pub fn table(sectors: u64, partitions: &[Partition]) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let mut free_from = FIRST_USABLE;
    for partition in partitions {
        if partition.start < free_from || partition.end() > sectors - TAIL {
            return invalid(format!("partition {} does not fit", partition.name));
        }
        if partition.name.len() > 36 || !partition.name.is_ascii() {
            return invalid(format!("partition name {}", partition.name));
        }
        free_from = partition.end();
    }
    let array = array(partitions);
    let last = sectors - 1;
    let mut head = protective_mbr(sectors);
    head.extend(header(1, last, 2, sectors, &array));
    head.extend(&array);
    let backup_array = sectors - TAIL;
    let mut tail = array.clone();
    tail.extend(header(last, 1, backup_array, sectors, &array));
    Ok(vec![(0, head), (backup_array, tail)])
}

fn array(partitions: &[Partition]) -> Vec<u8> {
    let mut array = vec![0; ENTRIES * ENTRY_BYTES];
    for (number, (entry, partition)) in array
        .chunks_exact_mut(ENTRY_BYTES)
        .zip(partitions)
        .enumerate()
    {
        entry[..16].copy_from_slice(&TYPE);
        entry[16..32].copy_from_slice(&guid(number as u8 + 1));
        entry[32..40].copy_from_slice(&partition.start.to_le_bytes());
        entry[40..48].copy_from_slice(&(partition.end() - 1).to_le_bytes());
        for (unit, byte) in entry[56..].chunks_exact_mut(2).zip(partition.name.bytes()) {
            unit[0] = byte;
        }
    }
    array
}

fn header(own: u64, other: u64, array_at: u64, sectors: u64, array: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(SECTOR);
    block.extend(b"EFI PART");
    block.extend(REVISION.to_le_bytes());
    block.extend(HEADER_BYTES.to_le_bytes());
    block.extend([0; 8]); // checksum, later; reserved
    block.extend(own.to_le_bytes());
    block.extend(other.to_le_bytes());
    block.extend(FIRST_USABLE.to_le_bytes());
    block.extend((sectors - TAIL - 1).to_le_bytes());
    block.extend(guid(0));
    block.extend(array_at.to_le_bytes());
    block.extend((ENTRIES as u32).to_le_bytes());
    block.extend((ENTRY_BYTES as u32).to_le_bytes());
    block.extend(crc32(array).to_le_bytes());
    let checksum = crc32(&block);
    block[16..20].copy_from_slice(&checksum.to_le_bytes());
    block.resize(SECTOR, 0);
    block
}

/// One MBR partition of type 0xee over everything, so that old tools leave the disk alone.
fn protective_mbr(sectors: u64) -> Vec<u8> {
    let mut block = vec![0; SECTOR];
    let size = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    block[446..454].copy_from_slice(&[0x00, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff]);
    block[454..458].copy_from_slice(&1u32.to_le_bytes());
    block[458..462].copy_from_slice(&size.to_le_bytes());
    block[510..].copy_from_slice(&[0x55, 0xaa]);
    block
}

/// Fixed GUIDs: the same table every time.
fn guid(number: u8) -> [u8; 16] {
    let mut guid = *b"blockd-test-\x00@\x80\x00";
    guid[15] = number;
    guid
}

/// CRC-32 of IEEE 802.3, as UEFI asks.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: &[Partition] = &[
        Partition {
            name: "misc",
            start: 2048,
            sectors: 2048,
        },
        Partition {
            name: "userdata",
            start: 4096,
            sectors: 10000,
        },
    ];

    #[test]
    fn checksums_are_the_standard_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn headers_point_at_each_other() {
        let blocks = table(20000, PARTITIONS).unwrap();
        let field =
            |block: &[u8], at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let primary = &blocks[0].1[SECTOR..2 * SECTOR];
        assert_eq!((field(primary, 24), field(primary, 32)), (1, 19999));
        let (start, tail) = &blocks[1];
        assert_eq!(*start as usize + tail.len() / SECTOR, 20000);
        let backup = &tail[tail.len() - SECTOR..];
        assert_eq!((field(backup, 24), field(backup, 32)), (19999, 1));
        assert_eq!(field(backup, 72), *start);
        assert_eq!(&blocks[0].1[2 * SECTOR + 128 + 56..][..4], b"u\0s\0");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(table(10000, PARTITIONS).is_err());
        let early = Partition {
            name: "x",
            start: 33,
            sectors: 1,
        };
        assert!(table(20000, &[early]).is_err());
        assert!(table(20000, &[PARTITIONS[1], PARTITIONS[0]]).is_err());
    }
}
