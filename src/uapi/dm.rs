//! `linux/dm-ioctl.h`: making, loading and removing device-mapper devices.

use nix::errno::Errno;
use nix::sys::ioctl::ioctl_num_type;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Longest name and longest uuid of a device, without the NUL.
pub const DM_MAX_NAME: usize = 127;

/// The table's devices are opened for reading, and the device refuses writes.
const DM_READONLY_FLAG: u32 = 1;
/// DM_TABLE_STATUS tells the table, not its state.
const DM_STATUS_TABLE_FLAG: u32 = 1 << 4;
/// The answer did not fit.
const DM_BUFFER_FULL_FLAG: u32 = 1 << 8;
/// DM_DEV_REMOVE of a device in use: it goes with its last opener (Linux 3.13).
const DM_DEFERRED_REMOVE: u32 = 1 << 17;

const DM_VERSION: ioctl_num_type = nix::request_code_readwrite!(0xfd, 0, 312);
const DM_LIST_DEVICES: ioctl_num_type = nix::request_code_readwrite!(0xfd, 2, 312);
const DM_DEV_CREATE: ioctl_num_type = nix::request_code_readwrite!(0xfd, 3, 312);
const DM_DEV_REMOVE: ioctl_num_type = nix::request_code_readwrite!(0xfd, 4, 312);
const DM_DEV_SUSPEND: ioctl_num_type = nix::request_code_readwrite!(0xfd, 6, 312);
const DM_DEV_STATUS: ioctl_num_type = nix::request_code_readwrite!(0xfd, 7, 312);
const DM_TABLE_LOAD: ioctl_num_type = nix::request_code_readwrite!(0xfd, 9, 312);
const DM_TABLE_STATUS: ioctl_num_type = nix::request_code_readwrite!(0xfd, 12, 312);

/// `struct dm_ioctl`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
struct dm_ioctl {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

const HEADER: usize = size_of::<dm_ioctl>();
/// `struct dm_target_spec`: start, length, status, next, name of the target.
const SPEC: usize = 40;
const TARGET_NAME: usize = 16;
/// Room for an answer; it doubles up to the limit.
const ANSWER: usize = 16 << 10;
const LARGEST_ANSWER: usize = 1 << 20;

/// The calls as nix makes them.
mod raw {
    #![allow(missing_docs)]
    use super::dm_ioctl;

    nix::ioctl_readwrite_bad!(dm_version, super::DM_VERSION, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_list_devices, super::DM_LIST_DEVICES, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_dev_create, super::DM_DEV_CREATE, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_dev_remove, super::DM_DEV_REMOVE, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_dev_suspend, super::DM_DEV_SUSPEND, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_dev_status, super::DM_DEV_STATUS, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_table_load, super::DM_TABLE_LOAD, dm_ioctl);
    nix::ioctl_readwrite_bad!(dm_table_status, super::DM_TABLE_STATUS, dm_ioctl);
}

type Call = unsafe fn(nix::libc::c_int, *mut dm_ioctl) -> nix::Result<nix::libc::c_int>;

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// First sector in the device.
    pub start: u64,
    /// Number of sectors of 512 bytes.
    pub length: u64,
    /// Name of the target, e.g. `verity`.
    pub kind: &'a str,
    /// Its arguments.
    pub arguments: &'a str,
}

/// One line of an answer: start, length, target, text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub length: u64,
    /// Name of the target.
    pub kind: String,
    /// The state, or the arguments.
    pub text: String,
}

/// What the kernel says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Device number as `huge_encode_dev` writes it; see [`split`].
    pub dev: u64,
    /// How often it is open: nodes, mounts, other devices.
    pub open_count: u32,
    /// It goes with its last opener.
    pub deferred_remove: bool,
    /// The uuid.
    pub uuid: String,
}

/// A call's buffer: header and data, aligned as the kernel's structures are.
struct Buffer(Vec<u64>);

impl Buffer {
    /// With room for `room` bytes of data, name and uuid set.
    fn new(name: &str, uuid: &str, flags: u32, room: usize) -> Result<Buffer, Errno> {
        let fits = |text: &str| text.len() <= DM_MAX_NAME && !text.contains('\0');
        if !fits(name) || !fits(uuid) {
            return Err(Errno::EINVAL);
        }
        let mut buffer = Buffer(vec![0; (HEADER + room).div_ceil(8)]);
        let size = u32::try_from(buffer.0.len() * 8).map_err(|_| Errno::EINVAL)?;
        let header = buffer.header();
        header.version = [4, 0, 0];
        header.data_size = size;
        header.data_start = HEADER as u32;
        header.flags = flags;
        header.name[..name.len()].copy_from_slice(name.as_bytes());
        header.uuid[..uuid.len()].copy_from_slice(uuid.as_bytes());
        Ok(buffer)
    }

    fn header(&mut self) -> &mut dm_ioctl {
        // SAFETY: the buffer is at least HEADER bytes long and aligned to 8, as `dm_ioctl` is;
        // every pattern of bits is a `dm_ioctl`; the borrow of `self` keeps it the only one.
        unsafe { &mut *self.0.as_mut_ptr().cast::<dm_ioctl>() }
    }

    /// The bytes behind the header.
    fn data(&mut self) -> &mut [u8] {
        let length = self.0.len() * 8 - HEADER;
        // SAFETY: header and data lie inside the one allocation of `length + HEADER` bytes, all of
        // them initialised, and the borrow of `self` keeps the slice the only one.
        unsafe {
            let start = self.0.as_mut_ptr().cast::<u8>().add(HEADER);
            std::slice::from_raw_parts_mut(start, length)
        }
    }

    fn call(&mut self, control: BorrowedFd<'_>, call: Call) -> Result<(), Errno> {
        let pointer = self.0.as_mut_ptr().cast::<dm_ioctl>();
        // SAFETY:
        // - `pointer` is to `data_size` bytes (set in `new`), all ours; the kernel reads and writes
        //   at most that many and keeps no reference;
        // - every function of `raw` takes exactly this argument.
        unsafe { call(control.as_raw_fd(), pointer) }.map(drop)
    }

    /// What the answer holds, from its first structure to its end.
    fn answer(&mut self) -> &[u8] {
        let header = self.header();
        let start = (header.data_start as usize).saturating_sub(HEADER);
        let end = (header.data_size as usize).saturating_sub(HEADER);
        let data = self.data();
        let end = end.min(data.len());
        &data[start.min(end)..end]
    }
}

/// Makes a call whose answer may be long.
fn ask(control: BorrowedFd<'_>, call: Call, name: &str, flags: u32) -> Result<Buffer, Errno> {
    let mut room = ANSWER;
    loop {
        let mut buffer = Buffer::new(name, "", flags, room)?;
        buffer.call(control, call)?;
        if buffer.header().flags & DM_BUFFER_FULL_FLAG == 0 {
            return Ok(buffer);
        }
        if room >= LARGEST_ANSWER {
            return Err(Errno::EMSGSIZE);
        }
        room *= 2;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Bytes up to the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Major and minor number of a device as the kernel writes it here (`huge_encode_dev`).
pub fn split(dev: u64) -> (u32, u32) {
    let major = dev >> 8 & 0xfff;
    let minor = dev & 0xff | dev >> 12 & 0xf_ff00;
    (major as u32, minor as u32)
}

/// `DM_VERSION`: the version of the interface.
///
/// # Errors
/// The kernel's; `EINVAL` where the major version is not 4.
pub fn version(control: BorrowedFd<'_>) -> Result<[u32; 3], Errno> {
    let mut buffer = Buffer::new("", "", 0, 0)?;
    buffer.call(control, raw::dm_version)?;
    Ok(buffer.header().version)
}

/// `DM_DEV_CREATE`: a device without a table. Says its number.
///
/// # Errors
/// `EBUSY` where name or uuid is taken, `EINVAL` for one that is too long or has a slash.
pub fn create(control: BorrowedFd<'_>, name: &str, uuid: &str) -> Result<u64, Errno> {
    let mut buffer = Buffer::new(name, uuid, 0, 0)?;
    buffer.call(control, raw::dm_dev_create)?;
    Ok(buffer.header().dev)
}

/// `DM_TABLE_LOAD` of a read-only table; [`resume`] makes it live.
///
/// # Errors
/// The kernel's: `EINVAL` for a table that a target does not take, or a target that the kernel
/// does not have; `ENXIO` without the device; `EBUSY` where a device of the table is claimed.
pub fn load(control: BorrowedFd<'_>, name: &str, targets: &[Target<'_>]) -> Result<(), Errno> {
    let data = table(targets)?;
    let mut buffer = Buffer::new(name, "", DM_READONLY_FLAG, data.len())?;
    buffer.header().target_count = targets.len() as u32;
    buffer.data()[..data.len()].copy_from_slice(&data);
    buffer.call(control, raw::dm_table_load)
}

/// The specs and their arguments, each beginning on a multiple of 8.
fn table(targets: &[Target<'_>]) -> Result<Vec<u8>, Errno> {
    let mut data = Vec::new();
    for target in targets {
        let name = target.kind.as_bytes();
        if name.len() >= TARGET_NAME || target.arguments.contains('\0') {
            return Err(Errno::EINVAL);
        }
        let size = (SPEC + target.arguments.len() + 1).next_multiple_of(8);
        let end = data.len() + size;
        data.extend(target.start.to_ne_bytes());
        data.extend(target.length.to_ne_bytes());
        data.extend(0i32.to_ne_bytes());
        data.extend((size as u32).to_ne_bytes());
        data.extend(name);
        data.resize(end - size + SPEC, 0);
        data.extend(target.arguments.as_bytes());
        data.resize(end, 0);
    }
    Ok(data)
}

/// `DM_DEV_SUSPEND` without its flag, which resumes: the loaded table becomes live.
///
/// # Errors
/// The kernel's.
pub fn resume(control: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    Buffer::new(name, "", 0, 0)?.call(control, raw::dm_dev_suspend)
}

/// `DM_DEV_REMOVE`. With `deferred` a device in use goes with its last opener.
///
/// # Errors
/// `ENXIO` where there is none, `EBUSY` where it is in use and not deferred.
pub fn remove(control: BorrowedFd<'_>, name: &str, deferred: bool) -> Result<(), Errno> {
    let flags = if deferred { DM_DEFERRED_REMOVE } else { 0 };
    Buffer::new(name, "", flags, 0)?.call(control, raw::dm_dev_remove)
}

/// `DM_DEV_STATUS`.
///
/// # Errors
/// `ENXIO` where there is no such device.
pub fn info(control: BorrowedFd<'_>, name: &str) -> Result<Info, Errno> {
    let mut buffer = Buffer::new(name, "", 0, 0)?;
    buffer.call(control, raw::dm_dev_status)?;
    let header = buffer.header();
    Ok(Info {
        dev: header.dev,
        open_count: header.open_count.max(0) as u32,
        deferred_remove: header.flags & DM_DEFERRED_REMOVE != 0,
        uuid: text(&header.uuid),
    })
}

/// `DM_TABLE_STATUS`: the state of each target, or with `table` its arguments.
///
/// # Errors
/// `ENXIO` where there is no such device; `EIO` for an answer that cannot be read.
pub fn status(
    control: BorrowedFd<'_>,
    name: &str,
    table: bool,
) -> Result<Vec<TargetStatus>, Errno> {
    let flags = if table { DM_STATUS_TABLE_FLAG } else { 0 };
    let mut buffer = ask(control, raw::dm_table_status, name, flags)?;
    let count = buffer.header().target_count;
    statuses(buffer.answer(), count).ok_or(Errno::EIO)
}

/// `next` counts from the first spec here, not from the one that it stands in.
fn statuses(data: &[u8], count: u32) -> Option<Vec<TargetStatus>> {
    let mut found = Vec::new();
    let mut at = 0usize;
    for _ in 0..count {
        let spec = data.get(at..at.checked_add(SPEC)?)?;
        found.push(TargetStatus {
            start: u64_at(spec, 0)?,
            length: u64_at(spec, 8)?,
            kind: text(&spec[24..]),
            text: text(&data[at + SPEC..]),
        });
        at = u32_at(spec, 20)? as usize;
    }
    Some(found)
}

/// `DM_LIST_DEVICES`: name and number of every device.
///
/// # Errors
/// The kernel's; `EIO` for an answer that cannot be read.
pub fn list(control: BorrowedFd<'_>) -> Result<Vec<(String, u64)>, Errno> {
    let mut buffer = ask(control, raw::dm_list_devices, "", 0)?;
    names(buffer.answer()).ok_or(Errno::EIO)
}

/// `struct dm_name_list`: number, distance to the next one (0 = last), name. Without devices there
/// is one with the number 0.
fn names(data: &[u8]) -> Option<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut at = 0usize;
    loop {
        let rest = data.get(at..).filter(|rest| !rest.is_empty());
        let Some(rest) = rest else {
            return Some(found);
        };
        let (dev, next) = (u64_at(rest, 0)?, u32_at(rest, 8)?);
        if dev == 0 {
            return Some(found);
        }
        found.push((text(rest.get(12..)?), dev));
        if next == 0 {
            return Some(found);
        }
        at = at.checked_add(next as usize)?;
    }
}

#[cfg(test)]
mod tests;
