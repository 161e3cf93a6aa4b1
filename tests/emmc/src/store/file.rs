//! A medium in a (sparse) file.
use super::{check, Extent, Pattern, Store, SECTOR};
use rustix::fs::{fallocate, seek, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file is the medium, byte for byte, at any moment.
///
/// With the erased value 0x00 an erase punches a hole; with 0xff it writes 0xff, because a
/// hole reads as zero, so large erases then take real time and space.
pub struct FileStore {
    file: File,
    sectors: u64,
    erased_value: u8,
}

impl FileStore {
    /// Wraps an open file; the capacity is its size in whole sectors.
    pub fn new(file: File) -> io::Result<Self> {
        let sectors = file.metadata()?.len() / SECTOR as u64;
        Ok(FileStore {
            file,
            sectors,
            erased_value: 0,
        })
    }

    /// Opens `path`, creates it if needed, and gives it `sectors`. Existing content stays.
    pub fn open(path: &Path, sectors: u64) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.set_len(sectors * SECTOR as u64)?;
        Self::new(file)
    }

    /// Next offset of the wanted kind, at most `end`.
    fn seek(&self, from: SeekFrom, end: u64) -> io::Result<u64> {
        match seek(&self.file, from) {
            Ok(at) => Ok(at.min(end)),
            Err(Errno::NXIO) => Ok(end), // no data behind this point
            Err(e) => Err(e.into()),
        }
    }
}

impl Store for FileStore {
    fn sectors(&self) -> u64 {
        self.sectors
    }
    fn erased_value(&self) -> u8 {
        self.erased_value
    }
    fn set_erased_value(&mut self, value: u8) {
        self.erased_value = value;
    }
    fn pattern(&self) -> Option<Pattern> {
        None
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        check(self.sectors, sector, buf.len())?;
        self.file.read_exact_at(buf, sector * SECTOR as u64)
    }

    fn write(&mut self, sector: u64, data: &[u8]) -> io::Result<()> {
        check(self.sectors, sector, data.len())?;
        self.file.write_all_at(data, sector * SECTOR as u64)
    }

    fn erase(&mut self, range: Range<u64>) -> io::Result<()> {
        if range.end > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if range.is_empty() {
            return Ok(());
        }
        let (mut offset, end) = (range.start * SECTOR as u64, range.end * SECTOR as u64);
        if self.erased_value == 0 {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return Ok(fallocate(&self.file, how, offset, end - offset)?);
        }
        let fill = vec![self.erased_value; 1 << 20];
        while offset < end {
            let n = fill.len().min((end - offset) as usize);
            self.file.write_all_at(&fill[..n], offset)?;
            offset += n as u64;
        }
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<(Range<u64>, Extent)>> {
        let size = SECTOR as u64;
        if self.erased_value != 0 {
            return Ok(vec![(range, Extent::Data)]);
        }
        let mut out = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = range.end * size;
            let data = self.seek(SeekFrom::Data(at * size), end)? / size;
            if data > at {
                out.push((at..data, Extent::Erased));
            }
            if data >= range.end {
                break;
            }
            // at least one sector further, also where a file system counts finer than we do
            let hole = self
                .seek(SeekFrom::Hole(data * size), end)?
                .div_ceil(size)
                .max(data + 1);
            out.push((data.max(at)..hole, Extent::Data));
            at = hole;
        }
        Ok(out)
    }
}
