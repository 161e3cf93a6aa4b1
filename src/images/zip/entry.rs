//! One entry: its two headers, its data, and what stands behind that.

use super::zip64::widen;
use super::{broken, read, u16_at, u32_at, u64_at, Source};
use crate::error::Result;

const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const DESCRIPTOR_SIGNATURE: u32 = 0x0807_4b50;
const LOCAL_LENGTH: usize = 30;

/// Bit 3: sizes and checksum stand behind the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Bits 0, 5, 6 and 13: encrypted, patch data, strongly encrypted, masked header.
const FLAGS_UNREADABLE: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;

/// Method 0: the bytes as they are.
pub const STORED: u16 = 0;
/// Method 8.
const DEFLATED: u16 = 8;

/// One entry as the central directory describes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::images) struct Entry<'a> {
    pub name: &'a [u8],
    pub method: u16,
    /// Position of this record, for messages.
    pub position: u64,
    flags: u16,
    crc: u32,
    compressed: u64,
    pub size: u64,
    local: u64,
}

impl<'a> Entry<'a> {
    /// Takes apart a central directory entry that is there as a whole. A failure is what is wrong.
    pub(super) fn parse(
        record: &[u8],
        name: &'a [u8],
        extra: &[u8],
        position: u64,
    ) -> std::result::Result<Entry<'a>, &'static str> {
        let number = |at| u64::from(u32_at(record, at));
        let (mut compressed, mut size, mut local) = (number(20), number(24), number(42));
        widen(&mut [&mut size, &mut compressed, &mut local], extra)?;
        Ok(Entry {
            name,
            method: u16_at(record, 10),
            position,
            flags: u16_at(record, 8),
            crc: u32_at(record, 16),
            compressed,
            size,
            local,
        })
    }
}

impl Entry<'_> {
    /// First byte of the local header, and the first behind the data that was [located](
    /// Self::locate) at `data` and its data descriptor.
    pub fn span(
        &self,
        source: &(impl Source + ?Sized),
        limit: u64,
        data: u64,
    ) -> Result<(u64, u64)> {
        let end = data + self.compressed;
        let behind = match self.flags & FLAG_DESCRIPTOR {
            0 => 0,
            _ => self.descriptor(source, limit, end)?,
        };
        Ok((self.local, end + behind))
    }

    /// Length of the data descriptor at `at`. Its signature is optional and the width of its sizes
    /// is written nowhere (APPNOTE.TXT 4.3.9): it is the longest of the four kinds that says what
    /// the central directory says.
    fn descriptor(&self, source: &(impl Source + ?Sized), limit: u64, at: u64) -> Result<u64> {
        let mut bytes = [0; 24];
        let there = limit.saturating_sub(at).min(bytes.len() as u64) as usize;
        read(source, "data descriptor", at, &mut bytes[..there])?;
        let is = |skip: usize, wide: bool| {
            let sizes = if wide {
                [u64_at(&bytes, skip + 4), u64_at(&bytes, skip + 12)]
            } else {
                [skip + 4, skip + 8].map(|at| u64::from(u32_at(&bytes, at)))
            };
            u32_at(&bytes, skip) == self.crc && sizes == [self.compressed, self.size]
        };
        let signed = u32_at(&bytes, 0) == DESCRIPTOR_SIGNATURE;
        let kinds = [
            (24, signed && is(4, true)),
            (20, is(0, true)),
            (16, signed && is(4, false)),
            (12, is(0, false)),
        ];
        let found = kinds.iter().find(|(length, is)| *is && *length <= there);
        found.map(|(length, _)| *length as u64).ok_or_else(|| {
            let why = "its checksum or sizes are not the central directory's";
            broken("data descriptor", at, why)
        })
    }

    /// The contents, of at most `most` bytes, checksum compared. `limit` as for
    /// [`Entry::locate`].
    pub fn contents(
        &self,
        source: &(impl Source + ?Sized),
        limit: u64,
        most: u32,
    ) -> Result<Vec<u8>> {
        let bad = |why| broken("central directory entry", self.position, why);
        let data = self.locate(source, limit)?;
        if self.size.max(self.compressed) > u64::from(most) {
            return Err(bad("larger than such an entry ever is"));
        }
        let mut bytes = vec![0; self.compressed as usize];
        read(source, "entry", data, &mut bytes)?;
        let bytes = match self.method {
            STORED => bytes,
            DEFLATED => inflate(&bytes, self.size as usize)
                .ok_or_else(|| bad("the deflated data is damaged or of another length"))?,
            _ => return Err(bad("neither stored nor deflated")),
        };
        if crc32(&bytes) != self.crc {
            return Err(bad("the checksum is not that of the data"));
        }
        Ok(bytes)
    }

    /// Checks that the entry's local header says the same, and returns the position of its data,
    /// which ends at or before `limit`.
    pub fn locate(&self, source: &(impl Source + ?Sized), limit: u64) -> Result<u64> {
        let central = |why| broken("central directory entry", self.position, why);
        if self.flags & FLAGS_UNREADABLE != 0 {
            return Err(central("the entry is encrypted or patch data"));
        }
        if self.method == STORED && self.compressed != self.size {
            return Err(central("a stored entry with two sizes"));
        }
        let start = self.local;
        let fixed = (LOCAL_LENGTH + self.name.len()) as u64;
        let behind = start.checked_add(fixed).filter(|behind| *behind <= limit);
        let behind = behind.ok_or_else(|| central("its local header lies behind the directory"))?;
        let mut header = vec![0; fixed as usize];
        read(source, "local header", start, &mut header)?;
        self.compare(&header, start)?;
        let data = behind + u64::from(u16_at(&header, 28));
        if !data
            .checked_add(self.compressed)
            .is_some_and(|end| end <= limit)
        {
            let why = "the data runs into the directory";
            return Err(broken("local header", start, why));
        }
        self.compare_sizes(source, &header, behind)?;
        Ok(data)
    }

    /// `header` is the local header with a name of the length that this entry's has.
    fn compare(&self, header: &[u8], position: u64) -> Result<()> {
        let bad = |why| broken("local header", position, why);
        if u32_at(header, 0) != LOCAL_SIGNATURE {
            return Err(bad("no signature"));
        }
        if u16_at(header, 6) != self.flags || u16_at(header, 8) != self.method {
            return Err(bad("flags or method differ from the central directory's"));
        }
        let name = usize::from(u16_at(header, 26));
        if name != self.name.len() || &header[LOCAL_LENGTH..] != self.name {
            return Err(bad("the name differs from the central directory's"));
        }
        Ok(())
    }

    /// `extra` is the position of the local extra field, which ends inside the file.
    fn compare_sizes(
        &self,
        source: &(impl Source + ?Sized),
        header: &[u8],
        extra: u64,
    ) -> Result<()> {
        let bad = |why| broken("local header", self.local, why);
        let number = |at| u64::from(u32_at(header, at));
        let (mut compressed, mut size) = (number(18), number(22));
        if compressed.max(size) == u64::from(super::zip64::WIDE_32) {
            let mut field = vec![0; usize::from(u16_at(header, 28))];
            read(source, "local header", extra, &mut field)?;
            widen(&mut [&mut size, &mut compressed], &field).map_err(bad)?;
        }
        let later = self.flags & FLAG_DESCRIPTOR != 0;
        let same = [
            (number(14), u64::from(self.crc)),
            (compressed, self.compressed),
            (size, self.size),
        ]
        .iter()
        .all(|&(local, want)| local == want || later && local == 0);
        if !same {
            return Err(bad("checksum or sizes differ from the central directory's"));
        }
        Ok(())
    }
}

/// The `size` bytes that `deflated` gives; `None` where it gives others. Never holds more.
#[cfg(not(blockd_recovery))]
fn inflate(deflated: &[u8], size: usize) -> Option<Vec<u8>> {
    use flate2::{Decompress, FlushDecompress, Status};
    // A byte more than it may be: a longer stream is told from one that fits.
    let mut bytes = Vec::with_capacity(size + 1);
    let mut stream = Decompress::new(false);
    let status = stream
        .decompress_vec(deflated, &mut bytes, FlushDecompress::Finish)
        .ok()?;
    let whole = status == Status::StreamEnd && stream.total_in() == deflated.len() as u64;
    (whole && bytes.len() == size).then_some(bytes)
}

/// Recovery has no flate2, and attaches no APEX.
#[cfg(blockd_recovery)]
fn inflate(_: &[u8], _: usize) -> Option<Vec<u8>> {
    None
}

/// CRC-32 of zip (polynomial 0xedb88320, reflected), bit by bit: the entries are small.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| {
            c >> 1 ^ 0xedb8_8320 & (c & 1).wrapping_neg()
        })
    })
}
