//! A medium in RAM that only holds what was written.
use super::{check, Extent, Pattern, RangeSet, Store, SECTOR};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Sectors per page.
const PAGE: u64 = 8;

/// Written sectors of one 4 KiB page.
struct Page {
    /// Bit n: sector n of the page is held here.
    mask: u8,
    data: Box<[u8; PAGE as usize * SECTOR]>,
}

/// RAM medium: written sectors in pages, erased extents as ranges, everything else computed
/// from the pattern (without one: the erased value).
pub struct MemStore {
    sectors: u64,
    erased_value: u8,
    pattern: Option<Pattern>,
    pages: BTreeMap<u64, Page>,
    erased: RangeSet,
}

impl MemStore {
    /// A blank medium.
    pub fn new(sectors: u64) -> Self {
        MemStore {
            sectors,
            erased_value: 0,
            pattern: None,
            pages: BTreeMap::new(),
            erased: RangeSet::new(),
        }
    }

    /// A medium every sector of which holds `pattern`.
    pub fn with_pattern(sectors: u64, pattern: Pattern) -> Self {
        MemStore {
            pattern: Some(pattern),
            ..Self::new(sectors)
        }
    }

    /// Bytes of RAM that written sectors take.
    pub fn resident_bytes(&self) -> usize {
        self.pages.len() * PAGE as usize * SECTOR
    }

    /// Forgets the written sectors of `range`.
    fn drop_written(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let pages = range.start / PAGE..=(range.end - 1) / PAGE;
        let mut empty = Vec::new();
        for (&number, page) in self.pages.range_mut(pages) {
            for i in 0..PAGE {
                if range.contains(&(number * PAGE + i)) {
                    page.mask &= !(1 << i);
                }
            }
            if page.mask == 0 {
                empty.push(number);
            }
        }
        for number in empty {
            self.pages.remove(&number);
        }
    }

    fn untouched(&self) -> Extent {
        match self.pattern {
            Some(_) => Extent::Pattern,
            None => Extent::Erased,
        }
    }
}

impl Store for MemStore {
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
        self.pattern
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        check(self.sectors, sector, buf.len())?;
        for (lba, out) in (sector..).zip(buf.chunks_exact_mut(SECTOR)) {
            let at = (lba % PAGE) as usize;
            match (self.pages.get(&(lba / PAGE)), self.pattern) {
                (Some(page), _) if page.mask >> at & 1 != 0 => {
                    out.copy_from_slice(&page.data[at * SECTOR..][..SECTOR]);
                }
                (_, Some(pattern)) if !self.erased.contains(lba) => {
                    out.copy_from_slice(&pattern.sector(lba));
                }
                _ => out.fill(self.erased_value),
            }
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8]) -> io::Result<()> {
        check(self.sectors, sector, data.len())?;
        for (lba, content) in (sector..).zip(data.chunks_exact(SECTOR)) {
            let at = (lba % PAGE) as usize;
            let page = self.pages.entry(lba / PAGE).or_insert_with(|| Page {
                mask: 0,
                data: Box::new([0; PAGE as usize * SECTOR]),
            });
            page.mask |= 1 << at;
            page.data[at * SECTOR..][..SECTOR].copy_from_slice(content);
        }
        Ok(())
    }

    fn erase(&mut self, range: Range<u64>) -> io::Result<()> {
        if range.end > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.drop_written(&range);
        self.erased.insert(range);
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<(Range<u64>, Extent)>> {
        let mut out: Vec<(Range<u64>, Extent)> = Vec::new();
        let mut push = |piece: Range<u64>, kind: Extent| match out.last_mut() {
            _ if piece.is_empty() => {}
            Some((last, k)) if *k == kind => last.end = piece.end,
            _ => out.push((piece, kind)),
        };
        let base = |piece: Range<u64>| {
            self.erased.split(piece).into_iter().map(|(r, erased)| {
                let kind = if erased {
                    Extent::Erased
                } else {
                    self.untouched()
                };
                (r, kind)
            })
        };
        let mut at = range.start;
        for (&number, page) in self.pages.range(range.start / PAGE..) {
            if number * PAGE >= range.end {
                break;
            }
            for i in 0..PAGE {
                let lba = number * PAGE + i;
                if page.mask >> i & 1 != 0 && range.contains(&lba) {
                    base(at..lba).for_each(|(r, k)| push(r, k));
                    push(lba..lba + 1, Extent::Data);
                    at = lba + 1;
                }
            }
        }
        base(at..range.end).for_each(|(r, k)| push(r, k));
        Ok(out)
    }
}
