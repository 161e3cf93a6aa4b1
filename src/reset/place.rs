//! Where the restart marker lies, and its one sector read and written.

use crate::device::block::errno;
use crate::device::{Access, Block, DirectBuffer, Storage};
use crate::error::{Code, Failure, Result};
use crate::reset::marker::SECTOR;
use crate::reset::plan::MarkerPlan;
use crate::reset::request::{Marker, MarkerFile};
use crate::reset::step::Step;
use crate::units::Bytes;
use nix::errno::Errno;
use std::os::unix::fs::FileExt;

/// The open place of a marker.
pub(super) enum Place {
    /// misc, opened so that a write is on the medium when it returns.
    Misc(Box<dyn Block>),
    /// A file of the caller's.
    File(MarkerFile),
}

/// Opens the place of a plan's marker; `None` where there is none.
pub(super) fn open(
    storage: &dyn Storage,
    plan: &MarkerPlan,
    file: Option<&MarkerFile>,
) -> Result<Option<Place>> {
    match (plan.place, file) {
        (Marker::None, _) => Ok(None),
        (Marker::File, Some(file)) => Ok(Some(Place::File(file.clone()))),
        _ => open_misc(storage, &plan.node).map(Some),
    }
}

/// Opens misc.
pub(super) fn open_misc(storage: &dyn Storage, node: &str) -> Result<Place> {
    storage
        .open_block(node, Access::Update)
        .map(Place::Misc)
        .map_err(|e| failure(&format!("cannot open misc ({node})"), e))
}

fn failure(what: &str, errno: Errno) -> Failure {
    let code = match errno {
        Errno::EPERM | Errno::EACCES => Code::Permission,
        Errno::EBUSY => Code::InUse,
        _ => Code::DeviceFailed,
    };
    Failure::new(code, Step::Marker.name(), what)
        .errno(errno)
        .remedy("the restart marker must be writable: run as root, in a domain that may write misc")
}

impl Place {
    /// Reads the sector.
    pub fn read(&self) -> Result<[u8; SECTOR]> {
        let mut sector = [0; SECTOR];
        match self {
            Place::Misc(block) => {
                let buffer = read_block(block.as_ref())?;
                sector.copy_from_slice(&buffer[..SECTOR]);
            }
            Place::File(file) => {
                let mut filled = 0;
                while filled < SECTOR {
                    match file.0.read_at(&mut sector[filled..], filled as u64) {
                        Ok(0) => break,
                        Ok(n) => filled += n,
                        Err(e) => return Err(failure("reading the marker file", errno(e))),
                    }
                }
            }
        }
        Ok(sector)
    }

    /// Writes the sector alone, makes it durable and reads it back.
    pub fn write(&self, sector: &[u8; SECTOR]) -> Result<()> {
        match self {
            Place::Misc(block) => {
                // A disk with larger blocks takes whole ones: the rest of the block is kept.
                let mut buffer = read_block(block.as_ref())?;
                buffer[..SECTOR].copy_from_slice(sector);
                block
                    .write_at(Bytes(0), &buffer)
                    .and_then(|()| block.sync())
                    .map_err(|e| failure("writing misc", e))?;
            }
            Place::File(file) => file
                .0
                .write_all_at(sector, 0)
                .and_then(|()| file.0.sync_all())
                .map_err(|e| failure("writing the marker file", errno(e)))?,
        }
        if self.read()? == *sector {
            return Ok(());
        }
        Err(Failure::new(
            Code::NotVerified,
            Step::Marker.name(),
            "the restart marker does not read back as it was written",
        )
        .remedy("misc or its card is faulty; say --marker FILE to keep the marker elsewhere"))
    }
}

fn read_block(block: &dyn Block) -> Result<DirectBuffer> {
    let size = block
        .logical_block_size()
        .map_err(|e| failure("asking misc for its block size", e))?;
    let mut buffer = DirectBuffer::new((size as usize).max(SECTOR));
    block
        .read_at(Bytes(0), &mut buffer)
        .map_err(|e| failure("reading misc", e))?;
    Ok(buffer)
}
