//! dm-linear: a window that lies in pieces on block devices becomes one device. No I/O.
//!
//! For a payload that is a part of a block device. Not for the extents of a file on a mounted file
//! system: the kernel lets nobody map what a mount has claimed (`EBUSY` at the load).

use super::{Step, Window};
use crate::device::mapper::{DeviceNumber, Target};
use crate::error::{Code, Failure, Result};
use crate::units::{Bytes, Sectors};

/// A piece of the whole, somewhere on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the whole.
    pub logical: Bytes,
    /// Where it lies.
    pub device: DeviceNumber,
    /// First byte there.
    pub physical: Bytes,
    /// Number of bytes.
    pub length: Bytes,
}

fn refuse(text: String) -> Failure {
    let remedy = "attach it as a file: a loop device takes any window";
    Step::Plan.fail(Code::OutOfRange, text).remedy(remedy)
}

/// The table of `window` of the whole that the extents make up. They may come in any order;
/// neighbours that join become one line.
///
/// # Errors
/// `OUT_OF_RANGE` for holes, overlaps and positions off 512-byte sectors.
pub fn table(extents: &[Extent], window: Window) -> Result<Vec<Target>> {
    let end = window.end().filter(|_| window.length != Bytes(0));
    let end = end.ok_or_else(|| refuse(format!("{window} cannot be")))?;
    let mut sorted = extents.to_vec();
    sorted.sort_unstable_by_key(|extent| extent.logical);
    let mut lines: Vec<(Extent, Bytes)> = Vec::new();
    let mut covered = Bytes(0);
    let mut at = window.offset;
    for extent in sorted {
        let stop = extent.logical.checked_add(extent.length);
        let stop = stop.ok_or_else(|| {
            refuse(format!(
                "an extent at byte {} without an end",
                extent.logical.0
            ))
        })?;
        if extent.logical < covered {
            return Err(refuse(format!(
                "two extents have byte {}",
                extent.logical.0
            )));
        }
        covered = stop;
        if stop <= at || at >= end {
            continue;
        }
        if extent.logical > at {
            break;
        }
        let inside = at - extent.logical;
        let physical = extent.physical.checked_add(inside);
        let piece = Extent {
            logical: at - window.offset,
            device: extent.device,
            physical: physical.ok_or_else(|| refuse("an extent behind any disk".to_owned()))?,
            length: Bytes(stop.0.min(end.0)) - at,
        };
        match lines.last_mut() {
            Some((last, length)) if joins(last, *length, &piece) => length.0 += piece.length.0,
            _ => lines.push((piece, piece.length)),
        }
        at = Bytes(stop.0.min(end.0));
    }
    if at < end {
        return Err(refuse(format!("no extent has byte {}", at.0)));
    }
    lines.iter().map(line).collect()
}

fn joins(last: &Extent, length: Bytes, next: &Extent) -> bool {
    last.device == next.device && last.physical.checked_add(length) == Some(next.physical)
}

fn line((piece, length): &(Extent, Bytes)) -> Result<Target> {
    let sectors = |bytes: Bytes| {
        let text = || refuse(format!("byte {} is not on a sector of 512 bytes", bytes.0));
        bytes.to_sectors().ok_or_else(text)
    };
    let physical: Sectors = sectors(piece.physical)?;
    Ok(Target {
        start: sectors(piece.logical)?,
        length: sectors(*length)?,
        kind: "linear",
        arguments: format!("{} {}", piece.device, physical.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, minor: u32, physical: u64, length: u64) -> Extent {
        Extent {
            logical: Bytes(logical * 512),
            device: DeviceNumber { major: 253, minor },
            physical: Bytes(physical * 512),
            length: Bytes(length * 512),
        }
    }

    fn window(offset: u64, length: u64) -> Window {
        Window {
            offset: Bytes(offset * 512),
            length: Bytes(length * 512),
        }
    }

    /// In sectors: the extents, the window, the table.
    #[test]
    fn windows_are_cut_out_of_extents() {
        type Row<'a> = (&'a [Extent], Window, &'a [&'a str]);
        let three = [
            extent(8, 1, 500, 8),
            extent(0, 1, 100, 8),
            extent(16, 2, 508, 8),
        ];
        let rows: [Row<'_>; 6] = [
            (
                &[extent(0, 0, 0, 100)],
                window(24, 16),
                &["0 16 linear 253:0 24"],
            ),
            (
                &three,
                window(0, 24),
                &[
                    "0 8 linear 253:1 100",
                    "8 8 linear 253:1 500",
                    "16 8 linear 253:2 508",
                ],
            ),
            (
                &three,
                window(4, 8),
                &["0 4 linear 253:1 104", "4 4 linear 253:1 500"],
            ),
            (&three, window(17, 2), &["0 2 linear 253:2 509"]),
            // Neighbours on the disk, too.
            (
                &[
                    extent(0, 0, 40, 8),
                    extent(8, 0, 48, 8),
                    extent(16, 0, 56, 8),
                ],
                window(1, 22),
                &["0 22 linear 253:0 41"],
            ),
            // The hole lies outside the window.
            (
                &[extent(0, 0, 8, 8), extent(20, 0, 30, 8)],
                window(0, 8),
                &["0 8 linear 253:0 8"],
            ),
        ];
        for (extents, window, want) in rows {
            let lines = table(extents, window).unwrap();
            let lines: Vec<String> = lines.iter().map(Target::to_string).collect();
            assert_eq!(lines, want, "{window}");
        }
    }

    #[test]
    fn what_is_no_whole_is_refused() {
        let odd = Extent {
            physical: Bytes(100),
            ..extent(0, 0, 0, 8)
        };
        let rows: [(&[Extent], Window); 8] = [
            (&[], window(0, 8)),
            (&[extent(0, 0, 0, 8)], window(0, 0)),
            (&[extent(0, 0, 0, 8)], window(0, 9)),
            (&[extent(1, 0, 0, 8)], window(0, 8)),
            (&[extent(0, 0, 0, 8), extent(9, 0, 8, 8)], window(0, 12)),
            (&[extent(0, 0, 0, 8), extent(7, 0, 8, 8)], window(0, 12)),
            (&[odd], window(0, 8)),
            (&[extent(0, 0, u64::MAX / 512, 8)], window(2, 2)),
        ];
        for (extents, window) in rows {
            let failure = table(extents, window).unwrap_err();
            assert_eq!(failure.code, Code::OutOfRange, "{extents:?} {window}");
        }
    }
}
