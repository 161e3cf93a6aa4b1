//! Numbers of 64 bits (APPNOTE.TXT 6.3.10, sections 4.3.14, 4.3.15 and 4.5.3).
//!
//! A number stands in one place: in the old field, or, where that has all bits set, in the wide
//! one. A file that has both must have the same in both.

use super::{broken, read, u16_at, u32_at, u64_at, Source};
use crate::error::Result;

/// "See the zip64 records".
pub(super) const WIDE_16: u16 = 0xffff;
pub(super) const WIDE_32: u32 = 0xffff_ffff;

const LOCATOR_SIGNATURE: u32 = 0x0706_4b50;
const RECORD_SIGNATURE: u32 = 0x0606_4b50;
const LOCATOR_LENGTH: usize = 20;
/// The record without an extensible data sector, which only encryption uses.
const RECORD_LENGTH: usize = 56;
/// Both, which lie directly before the end record.
pub(super) const TAIL_LENGTH: usize = RECORD_LENGTH + LOCATOR_LENGTH;
/// Bytes of the record behind its field of that name.
const RECORD_REST: u64 = RECORD_LENGTH as u64 - 12;

const EXTRA_ID: u16 = 1;
/// Bytes of an extra field's identifier and length.
const EXTRA_HEADER: usize = 4;

/// What an end record says, of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub entries: u64,
    pub length: u64,
    pub offset: u64,
    /// Where the directory must end.
    pub limit: u64,
}

impl End {
    /// Whether one of the numbers stands in the zip64 record.
    pub fn is_wide(&self) -> bool {
        self.entries == u64::from(WIDE_16)
            || self.length == u64::from(WIDE_32)
            || self.offset == u64::from(WIDE_32)
    }
}

/// Reads locator and record before the end record at `position`, which says `plain`. `None` where
/// there is no locator.
pub(super) fn read_end(
    source: &(impl Source + ?Sized),
    plain: &End,
    position: u64,
) -> Result<Option<End>> {
    let Some(start) = position.checked_sub(TAIL_LENGTH as u64) else {
        return Ok(None);
    };
    let mut tail = [0; TAIL_LENGTH];
    read(source, "zip64 end record", start, &mut tail)?;
    let (record, locator) = tail.split_at(RECORD_LENGTH);
    if u32_at(locator, 0) != LOCATOR_SIGNATURE {
        return Ok(None);
    }
    let bad = |why| broken("zip64 end locator", start + RECORD_LENGTH as u64, why);
    if u32_at(locator, 4) != 0 || u32_at(locator, 16) != 1 {
        return Err(bad("the archive has several disks"));
    }
    if u64_at(locator, 8) != start {
        return Err(bad("it names another place than the 56 bytes before it"));
    }
    let bad = |why| broken("zip64 end record", start, why);
    if u32_at(record, 0) != RECORD_SIGNATURE {
        return Err(bad("no signature"));
    }
    if u64_at(record, 4) != RECORD_REST {
        return Err(bad("its length is not 44"));
    }
    let (entries, length, offset) = (u64_at(record, 32), u64_at(record, 40), u64_at(record, 48));
    if u32_at(record, 16) != 0 || u32_at(record, 20) != 0 || u64_at(record, 24) != entries {
        return Err(bad("the archive has several disks"));
    }
    let same = |narrow: u64, mark: u64, wide: u64| narrow == mark || narrow == wide;
    if !same(plain.entries, u64::from(WIDE_16), entries)
        || !same(plain.length, u64::from(WIDE_32), length)
        || !same(plain.offset, u64::from(WIDE_32), offset)
    {
        return Err(bad("its numbers differ from the end record's"));
    }
    Ok(Some(End {
        entries,
        length,
        offset,
        limit: start,
    }))
}

/// Replaces the fields that have all bits set by those of the zip64 field in `extra`. Both must be
/// there as often as the other, in the order of the record. A failure is what is wrong.
pub(super) fn widen(
    fields: &mut [&mut u64],
    extra: &[u8],
) -> std::result::Result<(), &'static str> {
    let wide = |field: &u64| *field == u64::from(WIDE_32);
    let count = fields.iter().filter(|field| wide(field)).count();
    if count == 0 {
        return Ok(());
    }
    let numbers = find(extra)?.ok_or("a size or offset of 32 ones, and no zip64 field")?;
    if numbers.len() != 8 * count {
        return Err("its zip64 field has not the numbers that are asked for");
    }
    let places = fields.iter_mut().filter(|field| wide(field));
    for (field, number) in places.zip(numbers.chunks_exact(8)) {
        **field = u64_at(number, 0);
    }
    Ok(())
}

/// The zip64 field's data. What ends the walk early is padding: zipalign once wrote plain zeros.
fn find(extra: &[u8]) -> std::result::Result<Option<&[u8]>, &'static str> {
    let (mut rest, mut found) = (extra, None);
    while rest.len() >= EXTRA_HEADER {
        let end = EXTRA_HEADER + usize::from(u16_at(rest, 2));
        let Some(data) = rest.get(EXTRA_HEADER..end) else {
            return Err("an extra field that runs past the others");
        };
        if u16_at(rest, 0) == EXTRA_ID && found.replace(data).is_some() {
            return Err("two zip64 fields");
        }
        rest = &rest[end..];
    }
    Ok(found)
}
