//! The non-volatile medium of a card.
mod file;
mod mem;
mod pattern;
mod ranges;
mod scan;

pub use file::FileStore;
pub use mem::MemStore;
pub use pattern::{Pattern, MAGIC};
pub use ranges::RangeSet;
pub use scan::{scan, scan_card, NamedRange, RangeReport, ScanReport, FIRST};

use std::io;
use std::ops::Range;

/// Bytes per sector, the unit of every sector number in this crate.
pub const SECTOR: usize = 512;

/// What a store knows about a stretch of sectors without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Never touched; holds the store's [`Pattern`].
    Pattern,
    /// Holds the erased value.
    Erased,
    /// Anything: read it.
    Data,
}

/// Non-volatile medium. Sector numbers are checked by the card; a store may return
/// [`io::ErrorKind::UnexpectedEof`] beyond its end.
pub trait Store: Send {
    /// Capacity in sectors.
    fn sectors(&self) -> u64;
    /// The byte that erased sectors read as: 0x00 or 0xff.
    fn erased_value(&self) -> u8;
    /// Sets the erased value; the card calls it once, before anything else.
    fn set_erased_value(&mut self, value: u8);
    /// The initial pattern, if there is one.
    fn pattern(&self) -> Option<Pattern>;
    /// Reads whole sectors.
    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes whole sectors.
    fn write(&mut self, sector: u64, data: &[u8]) -> io::Result<()>;
    /// Sets the range to the erased value.
    fn erase(&mut self, range: Range<u64>) -> io::Result<()>;
    /// Describes `range` by consecutive extents that cover it exactly.
    fn extents(&self, range: Range<u64>) -> io::Result<Vec<(Range<u64>, Extent)>>;
}

/// An error if `sector` + `bytes` leaves a medium of `sectors`.
fn check(sectors: u64, sector: u64, bytes: usize) -> io::Result<()> {
    let count = bytes.div_ceil(SECTOR) as u64;
    match sector.checked_add(count) {
        Some(end) if end <= sectors && bytes.is_multiple_of(SECTOR) => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{bytes} bytes at sector {sector} of {sectors}"),
        )),
    }
}
