//! How old is what a device's volatile cache loses when the power fails? After Chris Mason's
//! wb-latency (linux-kernel, March 2009): a hot zone about as large as the cache is overwritten without
//! end; far away, two adjacent blocks are overwritten with a record of when. After the cut the record
//! that is there tells the age of what was lost, if somebody wrote down what had been acknowledged.

pub mod acks;
pub mod check;
pub mod record;
pub mod write;

use crate::cache::raw::Raw;
use crate::device::{Access, Block, DirectBuffer, Storage};
use crate::error::{Code, Failure, Result};
use crate::units::{Bytes, SectorRange};
use check::{judge, Finding, Here, Known};
use nix::errno::Errno;
use record::{Half, Record};

/// Hot zone where the size of the cache is unknown: the thread's 26 MB.
pub const HOT: Bytes = Bytes(26 << 20);
/// From the record to the end of its partition.
const FROM_END: u64 = 1 << 20;
/// The halves lie on both sides of a multiple of this.
const BORDER: u64 = 64 << 10;
/// Between hot zone and record, at least.
const FAR: u64 = 8 << 20;
/// One write into the hot zone.
pub const HOT_BLOCK: Bytes = Bytes(4096);

/// Where things lie in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Length of the hot zone, from the partition's start.
    pub hot: Bytes,
    /// The record.
    pub record: Bytes,
    /// One half of it: the logical block.
    pub block: Bytes,
}

fn refuse(code: Code, text: String) -> Failure {
    Failure::new(code, "place", text)
}

/// Where the record lies in a partition, whatever the hot zone: `check` must find it. Its halves lie on
/// both sides of a border of 64 KiB of the disk, since a device maps pages of 4 KiB or more, and two
/// blocks of one page are hardly ever torn apart.
///
/// # Errors
/// `OUT_OF_RANGE`.
pub fn record_offset(range: SectorRange, block: Bytes) -> Result<Bytes> {
    let start = range.start.to_bytes().0;
    let border = range.end().to_bytes().0.saturating_sub(FROM_END) / BORDER * BORDER;
    border
        .checked_sub(start + block.0)
        .map(Bytes)
        .ok_or_else(|| {
            let size = range.length.to_bytes();
            let text = format!("a partition of {size} is too small");
            refuse(Code::OutOfRange, text).remedy("use one of at least 32 MiB")
        })
}

/// The hot zone of a cache: the thread took 26 MB for 32 MB.
pub fn hot_of(cache: Option<Bytes>) -> Bytes {
    match cache {
        Some(Bytes(bytes)) if bytes != 0 => {
            let hot = bytes / 32 * 26 / HOT_BLOCK.0 * HOT_BLOCK.0;
            Bytes(hot.max(HOT_BLOCK.0))
        }
        _ => HOT,
    }
}

/// Places everything in a partition with logical blocks of `block`.
///
/// # Errors
/// `OUT_OF_RANGE` where hot zone and record do not lie far from each other, `INVALID_REQUEST` for a hot
/// zone that is no multiple of [`HOT_BLOCK`], `UNSUPPORTED` for blocks above it.
pub fn place(range: SectorRange, block: Bytes, hot: Bytes) -> Result<Place> {
    let size = range.length.to_bytes();
    if block.0 < 512 || block > HOT_BLOCK || HOT_BLOCK.0 % block.0 != 0 {
        let text = format!("logical blocks of {block} are none that this test knows");
        return Err(refuse(Code::Unsupported, text));
    }
    if hot == Bytes(0) || hot.0 % HOT_BLOCK.0 != 0 {
        let text = format!("a hot zone of {hot} is no multiple of {HOT_BLOCK}");
        return Err(refuse(Code::InvalidRequest, text).remedy("use one, as 26M"));
    }
    let record = record_offset(range, block)?;
    if hot.0.saturating_add(FAR) > record.0 {
        return Err(refuse(
            Code::OutOfRange,
            format!(
                "a hot zone of {hot}, {} between and the record do not fit into {size}",
                Bytes(FAR)
            ),
        )
        .remedy("use a larger partition, or a smaller --hot-size (the test is then weaker)"));
    }
    Ok(Place { hot, record, block })
}

/// Reads both halves of the record.
pub(crate) fn read(
    node: &dyn Block,
    place: Bytes,
    block: Bytes,
) -> std::result::Result<[Half; 2], Errno> {
    let block = block.0 as usize;
    let mut buffer = DirectBuffer::new(2 * block);
    node.read_at(place, &mut buffer)?;
    Ok([
        Record::decode(&buffer[..block], 0),
        Record::decode(&buffer[block..], 1),
    ])
}

/// Looks at the record of a partition and judges. Writes nothing.
///
/// # Errors
/// `DEVICE_FAILED`, `PERMISSION`, `OUT_OF_RANGE`.
pub fn check(storage: &dyn Storage, raw: &Raw, known: &Known) -> Result<Finding> {
    let node = &raw.partition.node;
    let failed = |what: &str, errno: Errno| {
        let code = match errno {
            Errno::EPERM | Errno::EACCES => Code::Permission,
            _ => Code::DeviceFailed,
        };
        Failure::new(code, "check", format!("{what} {node}"))
            .errno(errno)
            .remedy("run as root; look into dmesg for errors of this device")
    };
    let open = storage
        .open_block(node, Access::Read)
        .map_err(|e| failed("cannot open", e))?;
    let block = open
        .logical_block_size()
        .map_err(|e| failed("no block size of", e))?;
    let block = Bytes(u64::from(block));
    let offset = record_offset(raw.partition.range, block)?;
    let halves = read(open.as_ref(), offset, block).map_err(|e| failed("cannot read", e))?;
    let here = Here {
        partition: raw.partition.name.clone(),
        offset,
    };
    Ok(judge([&halves[0], &halves[1]], known, &here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Sectors;

    fn range(start: u64, bytes: u64) -> SectorRange {
        SectorRange {
            start: Sectors(start),
            length: Sectors(bytes / 512),
        }
    }

    #[test]
    fn things_lie_far_from_each_other() {
        let placed = place(range(2048, 64 << 20), Bytes(512), HOT).expect("a place");
        assert_eq!(placed.record, Bytes((63 << 20) - 512));
        assert_eq!(placed.hot, HOT);
        // A partition that starts and ends anywhere: the border is one of the disk.
        for (start, more) in [(2048 + 7, 1536), (1, 512), (127, 0)] {
            for block in [512, 4096] {
                let odd = range(start, (64 << 20) + more);
                let placed = place(odd, Bytes(block), HOT).expect("a place");
                let second = odd.start.to_bytes().0 + placed.record.0 + block;
                assert_eq!(second % BORDER, 0, "{start} {more}");
                assert!(placed.record.0 + 2 * block < odd.length.to_bytes().0);
            }
        }
        let place = |bytes, block, hot| place(range(2048, bytes), Bytes(block), Bytes(hot));
        let table = [
            (place(512 << 10, 512, HOT.0), Code::OutOfRange),
            (place(34 << 20, 512, HOT.0), Code::OutOfRange),
            (place(64 << 20, 512, 0), Code::InvalidRequest),
            (place(64 << 20, 512, 5000), Code::InvalidRequest),
            (place(64 << 20, 8192, HOT.0), Code::Unsupported),
        ];
        for (placed, code) in table {
            assert_eq!(placed.map_err(|f| f.code), Err(code));
        }
        assert!(place(36 << 20, 4096, HOT.0).is_ok());
    }

    #[test]
    fn the_hot_zone_follows_the_cache() {
        assert_eq!(hot_of(None), HOT);
        assert_eq!(hot_of(Some(Bytes(0))), HOT);
        assert_eq!(hot_of(Some(Bytes(32 << 20))), HOT);
        assert_eq!(hot_of(Some(Bytes(64 << 20))), Bytes(52 << 20));
        assert_eq!(hot_of(Some(Bytes(128))), Bytes(4096));
    }
}
