//! What misc says: the restart marker and a pending system update.

use super::table::named;
use super::Partition;
use crate::device::{Access, DirectBuffer, Storage};
use crate::fact::Fact;
use crate::reset::marker::{self, Found, Merge};
use crate::reset::request::MarkerFile;
use crate::units::Bytes;
use nix::errno::Errno;
use std::os::unix::fs::FileExt;

/// The misc partition, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misc {
    /// Where it is; `None` where this device has none.
    pub partition: Option<Partition>,
    /// The bootloader message.
    pub marker: Fact<Found>,
    /// The virtual A/B record. A device without misc has no virtual A/B.
    pub merge: Fact<Merge>,
}

/// Reads misc: that of `disk`, or else the only one there is.
pub(super) fn gather(storage: &dyn Storage, table: &[(String, Partition)], disk: &str) -> Misc {
    let mut found = named(table, "misc", disk);
    let several = found.len() > 1;
    let Some(partition) = found.pop().filter(|_| !several) else {
        let reason = if several {
            "there are several partitions misc"
        } else {
            "this device has no partition misc"
        };
        return Misc {
            partition: None,
            marker: Fact::unknown(reason, None),
            merge: if several {
                Fact::unknown(reason, None)
            } else {
                Fact::known(Merge::None, "no misc, no virtual A/B")
            },
        };
    };
    let source = format!("{} (misc)", partition.node);
    let unknown = |errno: Errno| format!("cannot read {source}: {}", errno.desc());
    let marker = match read(storage, &partition.node, 0) {
        Ok(sector) => Fact::known(marker::parse(&sector), source.clone()),
        Err(errno) => Fact::unknown(unknown(errno), Some(errno)),
    };
    let merge = if partition.range.length.to_bytes().0 <= marker::VIRTUAL_AB_OFFSET {
        Fact::known(Merge::None, format!("{source} is too small for a record"))
    } else {
        match read(storage, &partition.node, marker::VIRTUAL_AB_OFFSET) {
            Ok(sector) => Fact::known(marker::parse_merge(&sector), source),
            Err(errno) => Fact::unknown(unknown(errno), Some(errno)),
        }
    };
    Misc {
        partition: Some(partition),
        marker,
        merge,
    }
}

/// One sector of a node. Disks with larger blocks are read by their block.
fn read(storage: &dyn Storage, node: &str, offset: u64) -> Result<[u8; marker::SECTOR], Errno> {
    let block = storage.open_block(node, Access::Read)?;
    let size = block.logical_block_size()?.max(512) as usize;
    let mut buffer = DirectBuffer::new(size);
    block.read_at(Bytes(offset), &mut buffer)?;
    let mut sector = [0; marker::SECTOR];
    sector.copy_from_slice(&buffer[..marker::SECTOR]);
    Ok(sector)
}

/// What a marker file says. A file that is shorter is filled up with zeros: no marker.
pub fn gather_file(file: &MarkerFile) -> Fact<Found> {
    let mut sector = [0; marker::SECTOR];
    let mut filled = 0;
    while filled < sector.len() {
        match file.0.read_at(&mut sector[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                let errno = crate::device::block::errno(error);
                return Fact::unknown(
                    format!("cannot read the marker file: {}", errno.desc()),
                    Some(errno),
                );
            }
        }
    }
    Fact::known(marker::parse(&sector), "the marker file")
}
