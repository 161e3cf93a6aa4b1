//! One erase sequence: sent as one ioctl, every answer judged, waited for until the card is ready.

use super::{Claimed, Run};
use crate::device::mmc::{status, Command};
use crate::error::{Code, Failure, Result};
use crate::reset::plan::Chunk;
use crate::reset::step::Step;
use crate::units::SectorRange;
use nix::errno::Errno;
use std::time::Duration;

/// Sends one CMD35/36/38 sequence and judges every answer. Where the first thing that the card
/// complains of is a command in between (the ioctl path does not hold periodic retuning off), it is
/// sent once more.
pub(super) fn erase(run: &mut Run<'_>, claimed: &Claimed, chunk: &Chunk) -> Result<Vec<Command>> {
    let failure = match sequence(run, claimed, chunk) {
        Ok(commands) => return Ok(commands),
        Err((failure, Disturbed(false))) => return Err(failure),
        Err((failure, Disturbed(true))) => failure,
    };
    run.warnings
        .push(format!("{}; the sequence was sent again", failure.message));
    sequence(run, claimed, chunk).map_err(|(failure, _)| failure)
}

/// Whether a sequence failed because something came in between.
struct Disturbed(bool);

/// One sequence.
fn sequence(
    run: &mut Run<'_>,
    claimed: &Claimed,
    chunk: &Chunk,
) -> std::result::Result<Vec<Command>, (Failure, Disturbed)> {
    let Some(mmc) = &claimed.mmc else {
        return Ok(Vec::new());
    };
    let start = run.storage.now();
    let mut commands = chunk.commands.clone();
    let result = mmc.multi_cmd(&mut commands);
    if let Some(bad) = commands.iter().find(|c| status::has_error(c.response)) {
        let names = status::error_names(bad.response);
        let what = format!("{bad} was answered with {:#010x}: {names}", bad.response);
        const RESET: u32 = status::ERASE_RESET | status::ERASE_SEQ_ERROR;
        let disturbed = Disturbed(bad.response & RESET != 0);
        return Err((erase_failed(chunk.range, what, result.err()), disturbed));
    }
    match result {
        Ok(()) => {}
        // The host gave up waiting; the card may still be at it (SDHCI's own timer, kernels that
        // ignore cmd_timeout_ms). CMD13 tells, and reading back decides.
        Err(Errno::ETIMEDOUT) => run.warnings.push(format!(
            "the kernel stopped waiting for the erase of {} after {:.1} s; blockd waited on",
            chunk.range,
            (run.storage.now() - start).as_secs_f64()
        )),
        Err(Errno::EPERM) => {
            let failure = Failure::new(
                Code::Permission,
                Step::Erase.name(),
                "the kernel refused MMC_IOC_MULTI_CMD",
            )
            .errno(Errno::EPERM)
            .remedy(
                "CAP_SYS_RAWIO is needed, and in SELinux the ioctl 0xb301 on the disk; no erase \
                 was sent to the card",
            );
            return Err((failure, Disturbed(false)));
        }
        Err(errno) => {
            let what = "MMC_IOC_MULTI_CMD failed".to_owned();
            return Err((
                erase_failed(chunk.range, what, Some(errno)),
                Disturbed(false),
            ));
        }
    }
    let what = format!("erasing {}", chunk.range);
    let end = start + chunk.limit;
    match wait_ready(run, claimed, Step::Erase, &what, end) {
        Ok(poll) => {
            commands.extend(poll);
            Ok(commands)
        }
        Err(failure) => Err((failure, Disturbed(false))),
    }
}

/// Polls CMD13 until the card is back in the transfer state. Kernels before 5.15.46 and 5.19 wait
/// 10 s whatever they were told, 4.14 does not wait at all.
pub(super) fn wait_ready(
    run: &Run<'_>,
    claimed: &Claimed,
    step: Step,
    what: &str,
    end: Duration,
) -> Result<Option<Command>> {
    let (Some(mmc), Some(rca)) = (&claimed.mmc, run.plan.rca) else {
        return Ok(None);
    };
    let mut pause = Duration::from_millis(1);
    loop {
        let mut poll = Command::send_status(rca);
        let result = mmc.cmd(&mut poll);
        let word = poll.response;
        if result.is_ok() && status::has_error(word) {
            let names = status::error_names(word);
            let text = format!("{what}: CMD13 after it says {word:#010x}: {names}");
            return Err(undone(step, text, None));
        }
        if result.is_ok() && status::is_ready(word) {
            return Ok(Some(poll));
        }
        if let Err(errno) = result {
            if !passes(errno) {
                let text = format!("{what}: the card cannot be asked any more");
                return Err(undone(step, text, Some(errno)));
            }
        }
        if run.cancelled() {
            return Err(Failure::new(
                Code::Cancelled,
                step.name(),
                format!(
                    "{what}: cancelled while the card was busy with it; the card goes on by itself"
                ),
            )
            .remedy("the range must be taken for neither kept nor erased: run the reset again"));
        }
        if run.storage.now() >= end {
            let text = format!("{what}: the card is still busy (last status {word:#010x})");
            return Err(undone(step, text, result.err()));
        }
        run.storage.sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Errors of CMD13 that a busy card, or a host that retunes, may give and that pass.
fn passes(errno: Errno) -> bool {
    matches!(
        errno,
        // No answer in time, a wrong CRC, the host's own trouble.
        Errno::ETIMEDOUT | Errno::EILSEQ | Errno::EIO | Errno::EBUSY
            // Said of this call, not of the card.
            | Errno::EAGAIN | Errno::EINTR | Errno::ENOMEM
    )
}

fn erase_failed(range: SectorRange, what: String, errno: Option<Errno>) -> Failure {
    undone(Step::Erase, format!("erasing {range}: {what}"), errno)
}

/// A failure that leaves the range neither kept nor erased.
fn undone(step: Step, what: String, errno: Option<Errno>) -> Failure {
    let mut failure = Failure::new(Code::DeviceFailed, step.name(), what);
    failure.errno = errno;
    failure.remedy("the range must be taken for neither kept nor erased: run the reset again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_gone_or_denied_is_not_polled() {
        for errno in [Errno::ETIMEDOUT, Errno::EILSEQ, Errno::EIO, Errno::EINTR] {
            assert!(passes(errno), "{errno}");
        }
        let ends = [
            Errno::ENODEV,
            Errno::ENXIO,
            Errno::ENOMEDIUM,
            Errno::EPERM,
            Errno::EACCES,
            Errno::ENOTTY,
            Errno::EINVAL,
            Errno::EBADF,
            Errno::EOPNOTSUPP,
        ];
        for errno in ends {
            assert!(!passes(errno), "{errno}");
        }
    }
}
