//! Decides how a file becomes a block device. No I/O: the same facts give the same plan.

use super::apex::FileSystem;
use super::facts::{Backing, FileAccess, FileFacts, FileKind};
use super::{Step, Window};
use crate::device::loops::{NodeMode, Setup};
use crate::error::{Code, Failure, Result};
use crate::named_enum;
use crate::units::{Bytes, Sectors, SECTOR_SIZE};

/// What a tag begins with: who reads it knows that the device is blockd's.
pub const TAG_PREFIX: &str = "blockd:";
/// Longest name: `lo_file_name` holds 63 bytes.
pub const MAX_NAME: usize = 63 - TAG_PREFIX.len();
/// Block size where none is asked for: what apexd uses, and the largest that every kernel takes.
pub const DEFAULT_BLOCK_SIZE: u32 = 4096;
/// Direct I/O works on every disk from offsets on this boundary. overlayfs up to Linux 6.12 grants
/// it on any and fails the reads.
const DIRECT_ALIGNMENT: u64 = 4096;
/// Largest read-ahead. More is a mistake in a unit.
const MAX_READ_AHEAD: Bytes = Bytes(64 << 20);

/// Where the window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the payload of the APEX in the file.
    Payload,
    /// At a byte.
    At(Bytes),
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// For the tag, and for logs.
    pub name: String,
    /// Where the window begins.
    pub start: Start,
    /// Its length; `None` = to the end of the file or the payload.
    pub length: Option<Bytes>,
    /// Logical block size in bytes; `None` = [`DEFAULT_BLOCK_SIZE`].
    pub block_size: Option<u32>,
    /// Read-ahead; `None` leaves the kernel's.
    pub read_ahead: Option<Bytes>,
    /// Refuse writes.
    pub read_only: bool,
    /// Read the file by direct I/O where that works.
    pub direct_io: bool,
    /// Let the device go with its last opener.
    pub autoclear: bool,
}

impl AttachRequest {
    /// An APEX payload as apexd attaches it: read-only, direct I/O, leased.
    pub fn apex(name: &str) -> AttachRequest {
        AttachRequest {
            name: name.to_owned(),
            start: Start::Payload,
            length: None,
            block_size: None,
            read_ahead: None,
            read_only: true,
            direct_io: true,
            autoclear: true,
        }
    }
}

/// What is known when a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The file.
    pub file: FileFacts,
    /// The APEX payload's window, where [`Start::Payload`] is asked for.
    pub payload: Option<Window>,
    /// The file system at the beginning of the window.
    pub file_system: Option<FileSystem>,
    /// The kernel has LOOP_CONFIGURE, as far as it was asked.
    pub configure: bool,
}

named_enum! {
    /// How the device is made.
    Strategy {
        /// LOOP_CONFIGURE: one call, no queue freeze.
        Configure = 0 "loop-configure",
        /// LOOP_SET_FD, then LOOP_SET_STATUS64 with its queue freeze: kernels before 5.8.
        SetFd = 1 "loop-set-fd",
    }
}

/// What will be done: all arguments of all calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPlan {
    /// Which calls.
    pub strategy: Strategy,
    /// Their arguments.
    pub setup: Setup,
    /// How the node is opened.
    pub mode: NodeMode,
    /// Read-ahead to set; `None` leaves the kernel's.
    pub read_ahead: Option<Sectors>,
    /// Why this way.
    pub reason: &'static str,
    /// What is not had as asked.
    pub warnings: Vec<String>,
}

fn refuse(code: Code, message: impl Into<String>, remedy: &str) -> Failure {
    Step::Plan.fail(code, message).remedy(remedy)
}

/// Whether the descriptor can back a device at all. Also the check before the archive is read.
///
/// # Errors
/// `INVALID_REQUEST` for the wrong kind of descriptor, `READ_ONLY` where writes are asked for and
/// the descriptor does not allow them.
pub fn check_file(request: &AttachRequest, facts: &FileFacts) -> Result<()> {
    if let FileKind::Other(kind) = facts.kind {
        let text = format!("the descriptor is {kind}");
        let remedy = "pass a regular file or a block device";
        return Err(refuse(Code::InvalidRequest, text, remedy));
    }
    let how = match facts.access {
        FileAccess::Path => "with O_PATH",
        FileAccess::Write => "for writing only",
        FileAccess::Read if !request.read_only => {
            let text = "a writable device needs a file that is opened for writing";
            let remedy = "open it with O_RDWR, or ask for a read-only device";
            return Err(refuse(Code::ReadOnly, text, remedy));
        }
        FileAccess::Read | FileAccess::ReadWrite => return Ok(()),
    };
    let text = format!("the file is opened {how}: nothing can be read from it");
    let remedy = "open it with O_RDONLY, or with O_RDWR for a writable device";
    Err(refuse(Code::InvalidRequest, text, remedy))
}

/// Makes the plan.
///
/// # Errors
/// As [`check_file`]; `INVALID_REQUEST` for a name, block size or read-ahead that cannot be;
/// `OUT_OF_RANGE` for a window outside the file or off its boundaries.
pub fn plan(request: &AttachRequest, known: &Known) -> Result<AttachPlan> {
    let facts = &known.file;
    check_file(request, facts)?;
    check_name(&request.name)?;
    let mut warnings = Vec::new();
    let block_size = block_size(request, known.file_system, &mut warnings)?;
    let read_ahead = request.read_ahead.map(check_read_ahead).transpose()?;
    let window = match (request.start, known.payload) {
        (Start::At(offset), _) => file_window(request, facts, offset, block_size, &mut warnings)?,
        (Start::Payload, Some(payload)) => payload_window(request, facts, payload, block_size)?,
        (Start::Payload, None) => {
            let text = "no payload was looked for";
            return Err(refuse(Code::InvalidRequest, text, ""));
        }
    };
    let mut direct_io = request.direct_io && direct_io_works(facts, window, &mut warnings);
    let (strategy, reason) = if known.configure {
        let reason = "loop device by LOOP_CONFIGURE: everything set in one call, no queue freeze";
        (Strategy::Configure, reason)
    } else {
        let reason = "loop device by LOOP_SET_FD and LOOP_SET_STATUS64, one queue freeze: the \
                      kernel has no LOOP_CONFIGURE (Linux 5.8)";
        if direct_io {
            let why = "without LOOP_CONFIGURE it takes another queue freeze";
            warnings.push(format!("no direct I/O: {why}"));
        }
        direct_io = false;
        (Strategy::SetFd, reason)
    };
    Ok(AttachPlan {
        strategy,
        setup: Setup {
            // 512 does for every file system, and to change it is another freeze.
            block_size: match (strategy, request.block_size) {
                (Strategy::SetFd, None) => 0,
                _ => block_size,
            },
            offset: window.offset,
            size_limit: window.length,
            read_only: request.read_only,
            autoclear: request.autoclear,
            direct_io,
            tag: format!("{TAG_PREFIX}{}", request.name),
        },
        // A lease on a read-only device has no need to be writable.
        mode: if request.read_only {
            NodeMode::ReadOnly
        } else {
            NodeMode::ReadWrite
        },
        read_ahead,
        reason,
        warnings,
    })
}

/// Whether to ask for direct I/O. The kernel drops the flag where it sees that it cannot be; where
/// it does not see it, reads fail later.
fn direct_io_works(facts: &FileFacts, window: Window, warnings: &mut Vec<String>) -> bool {
    let why = match facts.backing {
        Backing::NoDirectIo(fs) => format!("the file lies on {fs}"),
        Backing::Ordinary if window.offset.0 % DIRECT_ALIGNMENT != 0 => format!(
            "the offset {} is not a multiple of {DIRECT_ALIGNMENT}",
            window.offset.0
        ),
        Backing::Ordinary => return true,
    };
    warnings.push(format!("no direct I/O: {why}"));
    false
}

fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 56 bytes"
    } else if name.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(());
    };
    let text = format!("the name {name:?} {why}");
    let remedy = "name the image by up to 56 printable bytes";
    Err(refuse(Code::InvalidRequest, text, remedy))
}

/// No larger than the file system's blocks: it could not be mounted.
fn block_size(
    request: &AttachRequest,
    file_system: Option<FileSystem>,
    warnings: &mut Vec<String>,
) -> Result<u32> {
    let asked = check_block_size(request.block_size.unwrap_or(DEFAULT_BLOCK_SIZE))?;
    let smaller = file_system.and_then(|fs| {
        let blocks = fs.block_size.filter(|blocks| *blocks < asked)?;
        Some((fs.name, blocks))
    });
    let Some((name, blocks)) = smaller else {
        return Ok(asked);
    };
    if request.block_size.is_none() {
        warnings.push(format!(
            "sectors of {blocks} bytes: those of {DEFAULT_BLOCK_SIZE} are larger than the blocks \
             of the {name} in it"
        ));
        return Ok(blocks);
    }
    let text = format!(
        "sectors of {asked} bytes are larger than the blocks of the {name} in it, {blocks} bytes: \
         the kernel would not mount it"
    );
    let remedy = format!("ask for {blocks}, or leave the block size out");
    Err(refuse(Code::InvalidRequest, text, &remedy))
}

/// The kernel refuses a bad size too, but 6.12 and 6.18 then keep the device's uevents suppressed.
fn check_block_size(size: u32) -> Result<u32> {
    if size.is_power_of_two() && (512..=4096).contains(&size) {
        return Ok(size);
    }
    let text = format!("a block size of {size} bytes cannot be");
    let remedy = "use 512, 1024, 2048 or 4096";
    Err(refuse(Code::InvalidRequest, text, remedy))
}

fn check_read_ahead(length: Bytes) -> Result<Sectors> {
    let sectors = length.to_sectors().filter(|_| length <= MAX_READ_AHEAD);
    sectors.ok_or_else(|| {
        let text = format!("a read-ahead of {} bytes cannot be", length.0);
        let remedy = "use a multiple of 512 bytes up to 64 MiB; apexd uses 128 KiB";
        refuse(Code::InvalidRequest, text, remedy)
    })
}

fn file_window(
    request: &AttachRequest,
    facts: &FileFacts,
    offset: Bytes,
    block_size: u32,
    warnings: &mut Vec<String>,
) -> Result<Window> {
    let size = facts.size;
    let outside = |text: String| {
        let remedy = "give a window inside the file, on multiples of 512 bytes";
        refuse(Code::OutOfRange, text, remedy)
    };
    if offset.0 % SECTOR_SIZE != 0 {
        let text = format!("the offset {} is not a multiple of 512", offset.0);
        return Err(outside(text));
    }
    if offset >= size {
        let text = format!(
            "byte {} is not inside the file of {} bytes",
            offset.0, size.0
        );
        return Err(outside(text));
    }
    let rest = size - offset;
    let block = u64::from(block_size);
    let length = match request.length {
        Some(length) if length > rest => {
            let text = format!(
                "{} bytes from byte {} end outside the file of {} bytes",
                length.0, offset.0, size.0
            );
            return Err(outside(text));
        }
        Some(length) => length,
        None => {
            let tail = rest.0 % block;
            if tail != 0 && tail != rest.0 {
                warnings.push(format!(
                    "the last {tail} bytes of the file are not a whole block of {block}: left out"
                ));
            }
            Bytes(rest.0 - tail)
        }
    };
    check_length(length, block)?;
    Ok(Window { offset, length })
}

/// The payload, or its beginning.
fn payload_window(
    request: &AttachRequest,
    facts: &FileFacts,
    payload: Window,
    block_size: u32,
) -> Result<Window> {
    let inside = payload.end().is_some_and(|end| end <= facts.size);
    let length = request.length.unwrap_or(payload.length);
    if !inside || length > payload.length {
        let text = format!(
            "{} bytes are more than the payload has ({payload})",
            length.0
        );
        let remedy = "leave the length out to get the whole payload";
        return Err(refuse(Code::OutOfRange, text, remedy));
    }
    check_length(length, u64::from(block_size))?;
    Ok(Window {
        offset: payload.offset,
        length,
    })
}

/// The kernel would round down, and the last bytes would be missing without a word.
fn check_length(length: Bytes, block: u64) -> Result<()> {
    if length.0 != 0 && length.0 % block == 0 {
        return Ok(());
    }
    let text = format!(
        "a length of {} bytes is no whole number of blocks of {block}",
        length.0
    );
    let remedy = "ask for a smaller block size, or another length";
    Err(refuse(Code::OutOfRange, text, remedy))
}

#[cfg(test)]
mod tests;
