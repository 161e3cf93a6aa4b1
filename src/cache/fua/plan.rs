//! What will be measured: a plain value, or why nothing will.

use crate::cache::fua::facts::Queue;
use crate::cache::fua::{Path, Pattern, Request, PLAN};
use crate::device::medium::{Descriptor, Kind};
use crate::error::{Code, Failure, Result};
use crate::fact::Fact;
use crate::units::Bytes;
use nix::errno::Errno;
use std::time::Duration;

/// Operations of a random run where the request does not say.
pub const OPERATIONS: u64 = 1000;
/// The most bytes: a service writes to its clients' file systems with rights of its own.
pub const MAX_LENGTH: Bytes = Bytes(16 << 30);
/// The most runs.
pub const MAX_RUNS: u32 = 100;
/// The largest block: what one buffer holds.
pub const MAX_BLOCK: Bytes = Bytes(16 << 20);
/// The most operations of a run.
pub const MAX_OPERATIONS: u64 = 1 << 20;
/// The longest limit of one operation.
pub const MAX_LIMIT: Duration = Duration::from_secs(3600);

/// File systems whose files lie in memory, or behind a cache that direct I/O does not pass
/// (statfs(2), linux/magic.h).
const NOT_A_DISK: [(i64, &str); 6] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x6969, "NFS"),
    (0xff53_4d42, "SMB"),
];

/// One pattern over one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Pattern.
    pub pattern: Pattern,
    /// Path.
    pub path: Path,
    /// Block.
    pub block: Bytes,
    /// Operations of one run.
    pub operations: u64,
}

impl Row {
    /// Bytes of one run.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.block.0 * self.operations)
    }

    /// `rand-write fua`.
    pub fn name(&self) -> String {
        format!("{} {}", self.pattern, self.path)
    }
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that are overwritten, from the start.
    pub length: Bytes,
    /// Block that the medium is filled with first.
    pub fill_block: Bytes,
    /// The rows, in the order of the report.
    pub rows: Vec<Row>,
    /// Runs of each.
    pub runs: u32,
    /// The longest time of one operation.
    pub limit: Duration,
    /// What the figures mean, and what they do not.
    pub notes: Vec<String>,
}

impl Plan {
    /// Bytes that all runs read and write, the filling included.
    pub fn total(&self) -> Bytes {
        let rows: u64 = self.rows.iter().map(|row| row.bytes().0).sum();
        Bytes(self.length.0 + rows * u64::from(self.runs))
    }
}

/// The rows: reads by one path more than they need. FUA changes no read, so that what lies between the
/// two is the noise of the measurement.
const ROWS: [(Pattern, Path); 10] = [
    (Pattern::SequentialRead, Path::Direct),
    (Pattern::SequentialRead, Path::Fua),
    (Pattern::RandomRead, Path::Direct),
    (Pattern::RandomRead, Path::Fua),
    (Pattern::SequentialWrite, Path::Direct),
    (Pattern::SequentialWrite, Path::Fua),
    (Pattern::SequentialWrite, Path::Flush),
    (Pattern::RandomWrite, Path::Direct),
    (Pattern::RandomWrite, Path::Fua),
    (Pattern::RandomWrite, Path::Flush),
];

fn refuse(code: Code, message: impl Into<String>) -> Failure {
    Failure::new(code, PLAN, message)
}

/// Plans, or refuses.
///
/// # Errors
/// `INVALID_REQUEST` for sizes that mean nothing and descriptors that are opened wrongly, `READ_ONLY`,
/// `OUT_OF_RANGE` where the medium is smaller than asked for, `UNSUPPORTED` where direct I/O does not
/// reach a disk.
pub fn plan(request: &Request, medium: &Descriptor, queue: &Queue) -> Result<Plan> {
    check_numbers(request)?;
    check_descriptor(medium)?;
    check_sizes(request, medium)?;
    let blocks = request.length.0 / request.block.0;
    let operations = match u64::from(request.operations) {
        0 => OPERATIONS.min(blocks),
        n => n,
    };
    let rows = ROWS.map(|(pattern, path)| {
        let (block, operations) = match pattern.is_sequential() {
            true => (
                request.sequential_block,
                request.length.0 / request.sequential_block.0,
            ),
            false => (request.block, operations),
        };
        Row {
            pattern,
            path,
            block,
            operations,
        }
    });
    if rows.iter().any(|row| row.operations > MAX_OPERATIONS) {
        return Err(refuse(
            Code::InvalidRequest,
            format!("a run would have more than {MAX_OPERATIONS} operations"),
        )
        .remedy("measure fewer bytes, or larger blocks"));
    }
    Ok(Plan {
        length: request.length,
        fill_block: request.sequential_block,
        rows: rows.to_vec(),
        runs: request.runs,
        limit: request.limit,
        notes: notes(medium, queue),
    })
}

fn check_numbers(request: &Request) -> Result<()> {
    let invalid = |text: String, remedy: &str| {
        Err(refuse(Code::InvalidRequest, text).remedy(remedy.to_owned()))
    };
    if request.length == Bytes(0) {
        return invalid(
            "0 bytes are to be measured".to_owned(),
            "64 MiB are usual, and more than a card's cache is better",
        );
    }
    if request.length > MAX_LENGTH {
        return invalid(
            format!(
                "{} are to be measured; at most {MAX_LENGTH} are",
                request.length
            ),
            "64 MiB are usual, and more than a card's cache is better",
        );
    }
    if !(1..=MAX_RUNS).contains(&request.runs) {
        return invalid(
            format!("{} runs; 1 to {MAX_RUNS} are possible", request.runs),
            "five are usual",
        );
    }
    for (what, block) in [
        ("random", request.block),
        ("sequential", request.sequential_block),
    ] {
        if block == Bytes(0) || block > MAX_BLOCK {
            return invalid(
                format!(
                    "the block of the {what} patterns is {block}; up to {MAX_BLOCK} is possible"
                ),
                "4 KiB (random) and 512 KiB (sequential) are usual",
            );
        }
        if block > request.length {
            return invalid(
                format!(
                    "one block of the {what} patterns, {block}, is more than the {} that may be \
                     overwritten",
                    request.length
                ),
                "use a smaller block or a larger size",
            );
        }
    }
    if request.limit.is_zero() || request.limit > MAX_LIMIT {
        return invalid(
            format!(
                "the limit of one operation is {} ms; up to {} s is possible",
                request.limit.as_millis(),
                MAX_LIMIT.as_secs()
            ),
            "30 s is usual",
        );
    }
    Ok(())
}

fn check_descriptor(medium: &Descriptor) -> Result<()> {
    if medium.kind == Kind::Other {
        return Err(refuse(
            Code::InvalidRequest,
            "what is to be measured is neither a regular file nor a block device",
        ));
    }
    if !medium.read_write {
        return Err(refuse(
            Code::ReadOnly,
            "what is to be measured is not open for reading and writing",
        )
        .remedy("open it with O_RDWR | O_DIRECT"));
    }
    let name = NOT_A_DISK
        .iter()
        .find(|(magic, _)| *magic == medium.file_system)
        .map(|(_, name)| *name);
    if let (Kind::File, Some(name)) = (medium.kind, name) {
        return Err(refuse(
            Code::Unsupported,
            format!("the file lies on {name}: direct I/O ends in memory there and reaches no disk"),
        )
        .remedy("use a file on ext4, f2fs, xfs …, as in /data/local/tmp on Android"));
    }
    if !medium.direct || medium.alignment.is_some_and(|a| a.memory == 0) {
        let why = match medium.direct {
            false => "the descriptor is not O_DIRECT",
            true => {
                "the file system has no direct I/O for this file (compressed, encrypted or with \
                 data=journal)"
            }
        };
        return Err(refuse(
            Code::Unsupported,
            format!("{why}: the page cache would be measured, not the disk"),
        )
        .remedy("open it with O_RDWR | O_DIRECT, on a file system that can"));
    }
    if medium.append {
        return Err(refuse(
            Code::InvalidRequest,
            "the descriptor is O_APPEND: every write would go to the end",
        )
        .remedy("open it without O_APPEND"));
    }
    Ok(())
}

fn check_sizes(request: &Request, medium: &Descriptor) -> Result<()> {
    // A file that is too short is made longer; a device is not.
    if medium.kind == Kind::Block && medium.size < request.length {
        return Err(refuse(
            Code::OutOfRange,
            format!(
                "the device has {}, {} were asked for",
                medium.size, request.length
            ),
        )
        .remedy("ask for less"));
    }
    let Some(alignment) = medium.alignment.filter(|a| a.offset != 0) else {
        return Ok(());
    };
    for block in [request.block, request.sequential_block] {
        if block.0 % u64::from(alignment.offset) != 0 {
            return Err(refuse(
                Code::InvalidRequest,
                format!(
                    "a block of {block} is no multiple of the {} that direct I/O wants here",
                    Bytes(u64::from(alignment.offset))
                ),
            )
            .errno(Errno::EINVAL)
            .remedy(format!("use a multiple of {}", alignment.offset)));
        }
    }
    Ok(())
}

fn notes(medium: &Descriptor, queue: &Queue) -> Vec<String> {
    let mut notes = Vec::new();
    notes.push(match &queue.disk {
        Fact::Known { value, .. } => format!("disk {value}: {}", queue.meaning()),
        Fact::Unknown { .. } => queue.meaning(),
    });
    notes.push(
        "FUA was not turned off anywhere: mainline kernels have no switch for it (queue/fua is \
         read-only). Path direct asks for no durability, path fua for it with each write \
         (RWF_DSYNC), path flush after each write (fdatasync)"
            .to_owned(),
    );
    notes.push(
        "FUA changes no read: what lies between the paths of a read pattern is the noise of this \
         measurement"
            .to_owned(),
    );
    if medium.kind == Kind::File {
        notes.push(
            "measured through a file system: an fdatasync may also write its metadata".to_owned(),
        );
    }
    if medium.alignment.is_none() {
        notes.push(
            "this kernel does not say whether the file really has direct I/O (statx, Linux 6.1)"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
