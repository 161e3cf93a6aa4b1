//! What the kernel's refusals mean.

use super::plan::ActivatePlan;
use crate::error::{Code, Failure, Result};
use crate::images::Step;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The errno inside a standard library error.
pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Writes the tree, and nothing behind it.
pub(super) fn store(file: &File, tree: &[u8]) -> Result<()> {
    file.set_len(tree.len() as u64)
        .and_then(|()| file.write_all_at(tree, 0))
        .and_then(|()| file.sync_data())
        .map_err(|error| {
            let text = "cannot write the hash tree";
            let failure = Step::HashTree.fail(Code::DeviceFailed, text);
            failure
                .errno(errno(&error))
                .remedy("see whether the file system is full or read-only")
        })
}

pub(super) fn mount_code(errno: Errno) -> Code {
    match errno {
        Errno::EACCES | Errno::EPERM => Code::Permission,
        Errno::EBUSY => Code::InUse,
        Errno::EROFS => Code::ReadOnly,
        Errno::ENODEV => Code::Unsupported,
        _ => Code::DeviceFailed,
    }
}

pub(super) fn mount_failure(plan: &ActivatePlan, errno: Errno) -> Failure {
    let text = format!(
        "cannot mount the {} image at {}",
        plan.file_system,
        plan.mount_point.display()
    );
    let remedy = match errno {
        Errno::ENODEV => "the kernel does not have the file system: load its module",
        Errno::EPERM | Errno::EACCES => {
            "mounting needs CAP_SYS_ADMIN; on Android only apexd's domain may mount an APEX: call \
             libblockd there, or blockctl --connect local; see `dmesg | grep avc`"
        }
        Errno::EIO => "the image is damaged, or dm-verity refused a block: `dmesg | grep verity`",
        _ => "the image is damaged or has features that this kernel lacks: see `dmesg`",
    };
    // A read error under dm-verity means that a digest did not match.
    let code = match errno {
        Errno::EIO if plan.verity.is_some() => Code::BadSignature,
        errno => mount_code(errno),
    };
    Step::Mount.fail(code, text).errno(errno).remedy(remedy)
}
