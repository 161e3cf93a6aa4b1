//! Binding on kernels without LOOP_CONFIGURE: as few calls that freeze the queue as can be.

use super::Setup;
use crate::uapi::{block, loops};
use nix::errno::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Tries of a call that answers `EAGAIN`: with the pauses some 2.5 s, as util-linux has it.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(100);

/// Cleared by the first kernel that refuses a block size before the bind. All that are known do.
static EARLY_BLOCK_SIZE: AtomicBool = AtomicBool::new(true);

/// LOOP_SET_FD, LOOP_SET_STATUS64, and LOOP_SET_BLOCK_SIZE where the size is not right already.
pub(super) fn bind(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    setup: &Setup,
) -> Result<(), Errno> {
    if setup.block_size != 0 && EARLY_BLOCK_SIZE.load(Ordering::Relaxed) {
        // It would save a freeze (M. Coenen's patch of 2019-08-14). What it answers is not
        // relied on: the size is read before anything is set after the bind.
        if loops::set_block_size(device, setup.block_size) == Err(Errno::ENXIO) {
            EARLY_BLOCK_SIZE.store(false, Ordering::Relaxed);
        }
    }
    loops::set_fd(device, file)?;
    finish(device, setup).map_err(|errno| {
        // Bound by us a moment ago, and by nobody else since: ours to undo.
        let _ = loops::clear(device);
        errno
    })
}

fn finish(device: BorrowedFd<'_>, setup: &Setup) -> Result<(), Errno> {
    patiently(device, || loops::set_status(device, &setup.request()))?;
    if setup.block_size != 0 && block::logical_block_size(device)? != setup.block_size {
        patiently(device, || loops::set_block_size(device, setup.block_size))?;
    }
    // Whoever reacted to the uevent of LOOP_SET_FD has read the file from its first byte, and
    // those pages would now be taken for the window's.
    block::flush_buffers(device)
}

/// Linux up to 5.10 answers `EAGAIN` as long as pages of the device are cached.
fn patiently(
    device: BorrowedFd<'_>,
    mut call: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    for _ in 1..TRIES {
        match call() {
            Err(Errno::EAGAIN) => block::flush_buffers(device)?,
            result => return result,
        }
        thread::sleep(PAUSE);
    }
    call()
}
