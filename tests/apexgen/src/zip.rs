//! The zip container, written by hand so that each field can be wrong on purpose.

use crate::Window;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// How an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Method 0: the bytes as they are.
    Stored,
    /// Method 8: a valid deflate stream (of stored blocks, so that no compressor is needed).
    Deflated,
}

impl Method {
    fn number(self) -> u16 {
        match self {
            Method::Stored => 0,
            Method::Deflated => 8,
        }
    }
}

/// Bit 3 of the flags: sizes and checksum follow the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Bit 11: names are UTF-8. Android's tools set it.
const FLAG_UTF8: u16 = 1 << 11;
/// The extra field that zipalign pads with.
const ALIGNMENT_EXTRA: u16 = 0xd935;
/// Length of a local header without name and extra field.
const LOCAL_HEADER: u64 = 30;
/// Longest stored block of a deflate stream.
const DEFLATE_BLOCK: usize = 0xffff;

/// What stands behind an entry's data (APPNOTE.TXT 4.3.9); its sizes are as wide as the entry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// Signature, checksum, sizes.
    Signed,
    /// Checksum, sizes.
    Plain,
    /// Not there although the flag says so.
    Missing,
}

/// What an entry looks like; its data is given on writing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub method: Method,
    /// Boundary of the data in bytes, reached by padding the local extra field; 0 for none.
    pub alignment: u64,
    /// Sizes and checksum behind the data instead of in the local header.
    pub descriptor: Option<Descriptor>,
    /// Sizes and offset of 64 bits, in zip64 fields.
    pub zip64: bool,
    /// Bytes of extra field in the central directory alone.
    pub central_extra: u16,
}

/// Where an entry came to lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub local: u64,
    pub central: u64,
    pub data: Window,
}

/// Where the parts of the directory came to lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    pub start: u64,
    pub end_record: u64,
    pub entries: u16,
}

struct Written {
    entry: Entry,
    crc: u32,
    size: u64,
    placed: Placed,
}

pub(crate) struct Archive<W> {
    out: W,
    position: u64,
    entries: Vec<Written>,
}

impl<W: Write + Seek> Archive<W> {
    pub fn new(out: W) -> Archive<W> {
        Archive {
            out,
            position: 0,
            entries: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Appends an entry; returns its index.
    pub fn add(&mut self, entry: Entry, data: &mut dyn Read) -> io::Result<usize> {
        let local = self.position;
        let padding = padding(local, &entry);
        self.put(&local_header(&entry, padding.len(), 0, 0, 0))?;
        self.put(&padding)?;
        let offset = self.position;
        let (crc, size) = self.put_data(entry.method, data)?;
        let length = self.position - offset;
        self.end_entry(&entry, local, padding.len(), (crc, length, size))?;
        self.entries.push(Written {
            entry,
            crc,
            size,
            placed: Placed {
                local,
                central: 0,
                data: Window { offset, length },
            },
        });
        Ok(self.entries.len() - 1)
    }

    /// Appends a stored entry without a descriptor, `length` zeros as a hole; its checksum is not
    /// computed.
    pub fn add_hole(&mut self, entry: Entry, length: u64) -> io::Result<usize> {
        let index = self.add(entry.clone(), &mut io::empty())?;
        let local = self.entries[index].placed.local;
        self.position += length;
        self.out.seek(SeekFrom::Start(self.position))?;
        let padding = padding(local, &entry).len();
        self.end_entry(&entry, local, padding, (0, length, length))?;
        self.entries[index].size = length;
        self.entries[index].placed.data.length = length;
        Ok(index)
    }

    /// Where the entry of this index lies.
    pub fn placed(&self, index: usize) -> Placed {
        self.entries[index].placed
    }

    /// A central record alone, of an empty entry whose local header is said to lie at `local`.
    pub fn claim(&mut self, entry: Entry, local: u64) {
        self.entries.push(Written {
            entry,
            crc: 0,
            size: 0,
            placed: Placed {
                local,
                central: 0,
                data: Window {
                    offset: local,
                    length: 0,
                },
            },
        });
    }

    /// Writes checksum, length and size behind the data or into the local header.
    fn end_entry(
        &mut self,
        entry: &Entry,
        local: u64,
        padding: usize,
        (crc, length, size): (u32, u64, u64),
    ) -> io::Result<()> {
        let Some(descriptor) = entry.descriptor else {
            self.out.seek(SeekFrom::Start(local))?;
            let header = local_header(entry, padding, crc, length, size);
            self.out.write_all(&header)?;
            self.out.seek(SeekFrom::Start(self.position))?;
            return Ok(());
        };
        if descriptor == Descriptor::Signed {
            self.put(&0x0807_4b50u32.to_le_bytes())?;
        }
        if descriptor != Descriptor::Missing {
            self.put(&crc.to_le_bytes())?;
            for number in [length, size] {
                let width = if entry.zip64 { 8 } else { 4 };
                self.put(&number.to_le_bytes()[..width])?;
            }
        }
        Ok(())
    }

    fn put_data(&mut self, method: Method, data: &mut dyn Read) -> io::Result<(u32, u64)> {
        let mut chunk = vec![0; DEFLATE_BLOCK];
        let (mut crc, mut size) = (Crc::new(), 0u64);
        loop {
            let length = fill(data, &mut chunk)?;
            let last = length < chunk.len();
            crc.update(&chunk[..length]);
            size += length as u64;
            if method == Method::Deflated {
                let n = length as u16;
                self.put(&[u8::from(last)])?;
                self.put(&n.to_le_bytes())?;
                self.put(&(!n).to_le_bytes())?;
            }
            self.put(&chunk[..length])?;
            if last {
                return Ok((crc.value(), size));
            }
        }
    }

    /// Writes the central directory and the end record; gives back where everything lies.
    pub fn finish(
        mut self,
        comment: &[u8],
        zip64: bool,
    ) -> io::Result<(W, Vec<Placed>, Directory)> {
        let start = self.position;
        for i in 0..self.entries.len() {
            self.entries[i].placed.central = self.position;
            let header = central_header(&self.entries[i]);
            self.put(&header)?;
        }
        let count = self.entries.len() as u16;
        let length = self.position - start;
        if zip64 {
            let record = zip64_end(self.position, u64::from(count), length, start);
            self.put(&record)?;
        }
        let end_record = self.position;
        let mut record = 0x0605_4b50u32.to_le_bytes().to_vec();
        for field in [0, 0, count, count] {
            record.extend(field.to_le_bytes());
        }
        record.extend((length as u32).to_le_bytes());
        record.extend((start as u32).to_le_bytes());
        if zip64 {
            record[8..20].fill(0xff);
        }
        record.extend((comment.len() as u16).to_le_bytes());
        record.extend(comment);
        self.put(&record)?;
        let placed = self.entries.iter().map(|w| w.placed).collect();
        let directory = Directory {
            start,
            end_record,
            entries: count,
        };
        Ok((self.out, placed, directory))
    }
}

/// The zip64 end record that begins at `position`, and its locator.
fn zip64_end(position: u64, entries: u64, length: u64, start: u64) -> Vec<u8> {
    let mut record = 0x0606_4b50u32.to_le_bytes().to_vec();
    record.extend(44u64.to_le_bytes());
    record.extend([45, 0, 45, 0]);
    record.extend([0; 8]);
    for field in [entries, entries, length, start] {
        record.extend(field.to_le_bytes());
    }
    record.extend(0x0706_4b50u32.to_le_bytes());
    record.extend([0; 4]);
    record.extend(position.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record
}

/// The zip64 extra field.
fn zip64_field(numbers: &[u64]) -> Vec<u8> {
    let mut field = vec![1, 0];
    field.extend((8 * numbers.len() as u16).to_le_bytes());
    field.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    field
}

/// Bytes of zip64 field in the local header.
fn local_zip64(entry: &Entry) -> u64 {
    if entry.zip64 {
        20
    } else {
        0
    }
}

/// The extra field that moves the data to its boundary.
fn padding(local: u64, entry: &Entry) -> Vec<u8> {
    const FIELD_HEADER: u64 = 4;
    let plain = local + LOCAL_HEADER + entry.name.len() as u64 + local_zip64(entry);
    if entry.alignment == 0 || plain.is_multiple_of(entry.alignment) {
        return Vec::new();
    }
    let zeros = (entry.alignment - (plain + FIELD_HEADER) % entry.alignment) % entry.alignment;
    let mut field = ALIGNMENT_EXTRA.to_le_bytes().to_vec();
    field.extend((zeros as u16).to_le_bytes());
    field.resize((FIELD_HEADER + zeros) as usize, 0);
    field
}

fn flags(entry: &Entry) -> u16 {
    let later = if entry.descriptor.is_some() {
        FLAG_DESCRIPTOR
    } else {
        0
    };
    FLAG_UTF8 | later
}

/// Up to and with the name and the zip64 field; `padding` bytes follow.
fn local_header(entry: &Entry, padding: usize, crc: u32, length: u64, size: u64) -> Vec<u8> {
    let mut header = 0x0403_4b50u32.to_le_bytes().to_vec();
    header.extend([if entry.zip64 { 45 } else { 20 }, 0]);
    header.extend(flags(entry).to_le_bytes());
    header.extend(entry.method.number().to_le_bytes());
    header.extend([0, 0, 0x21, 0]); // 1980-01-01, as reproducible builds write it
    header.extend(crc.to_le_bytes());
    for number in [length, size] {
        let narrow = if entry.zip64 { u32::MAX } else { number as u32 };
        header.extend(narrow.to_le_bytes());
    }
    header.extend((entry.name.len() as u16).to_le_bytes());
    header.extend((local_zip64(entry) as u16 + padding as u16).to_le_bytes());
    header.extend(entry.name.as_bytes());
    if entry.zip64 {
        header.extend(zip64_field(&[size, length]));
    }
    header
}

fn central_header(written: &Written) -> Vec<u8> {
    let entry = &written.entry;
    let (length, local) = (written.placed.data.length, written.placed.local);
    let mut extra = match entry.zip64 {
        true => zip64_field(&[written.size, length, local]),
        false => Vec::new(),
    };
    extra.resize(extra.len() + usize::from(entry.central_extra), 0);
    let narrow = |number: u64| if entry.zip64 { u32::MAX } else { number as u32 };
    let mut header = 0x0201_4b50u32.to_le_bytes().to_vec();
    header.extend([20, 0, if entry.zip64 { 45 } else { 20 }, 0]);
    header.extend(flags(entry).to_le_bytes());
    header.extend(entry.method.number().to_le_bytes());
    header.extend([0, 0, 0x21, 0]);
    header.extend(written.crc.to_le_bytes());
    for number in [length, written.size] {
        header.extend(narrow(number).to_le_bytes());
    }
    header.extend((entry.name.len() as u16).to_le_bytes());
    header.extend((extra.len() as u16).to_le_bytes());
    header.extend([0; 10]); // comment length, disk, internal and external attributes
    header.extend(narrow(local).to_le_bytes());
    header.extend(entry.name.as_bytes());
    header.extend(extra);
    header
}

/// The local header of an empty entry.
pub(crate) fn empty_local(entry: &Entry) -> Vec<u8> {
    local_header(entry, 0, 0, 0, 0)
}

/// Reads until the buffer is full or the data ends.
fn fill(data: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match data.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// CRC-32 of zip (polynomial 0xedb88320, reflected).
struct Crc {
    table: [u32; 256],
    state: u32,
}

impl Crc {
    fn new() -> Crc {
        let mut table = [0; 256];
        for (i, slot) in table.iter_mut().enumerate() {
            *slot = (0..8).fold(i as u32, |c, _| {
                (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
            });
        }
        Crc { table, state: !0 }
    }

    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let index = (self.state as u8 ^ byte) as usize;
            self.state = self.state >> 8 ^ self.table[index];
        }
    }

    fn value(&self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_zip_s() {
        let mut crc = Crc::new();
        crc.update(b"123456789");
        assert_eq!(crc.value(), 0xcbf4_3926);
    }
}
