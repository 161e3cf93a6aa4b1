//! A power failure of the whole machine, at an instant that the observer of the commands chooses.
//!
//! [`Card::power_cut`] cuts when its caller likes; behind a real host nobody could hit a given
//! command with it. An [`Outage`] is asked at every command instead.
use super::operation::Share;
use super::Card;
use std::time::Duration;

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the card hears the command.
    Before,
    /// While the command, or the data that follow it, are carried out: this much of the operation
    /// has reached the medium or the cache, per mille. A command without one counts as `Before`.
    During(u16),
}

/// Chooses the instant.
pub trait Outage: Send {
    /// The host sends a command; `Some` ends the power.
    fn command(&mut self, command: u8, argument: u32) -> Option<Moment>;

    /// True if a dirty cache line had been written back when the power failed: a card does so in
    /// an order of its own.
    fn written_back(&mut self, line: u64) -> bool;

    /// The card has taken these data of a write, wherever it puts them: for whoever wants to know
    /// later what the card was sent.
    fn written(&mut self, _sector: u64, _data: &[u8]) {}
}

/// The operation that is torn when it begins.
pub(super) type Tearing = Option<Share>;

impl Card {
    /// The power fails when `outage` says so, and stays away until [`Card::mains_back`].
    pub fn fail_by(&mut self, outage: Box<dyn Outage>) {
        self.outage = Some(outage);
    }

    /// True once an outage has come.
    pub fn mains_failed(&self) -> bool {
        self.mains_failed
    }

    /// Ends an outage; the card is still off until the host controller turns it on. One that has
    /// not come yet is forgotten.
    pub fn mains_back(&mut self) {
        self.mains_failed = false;
        self.outage = None;
    }

    /// Asks the outage; true if the power is gone now.
    pub(super) fn outage_at(&mut self, now: Duration, command: u8, argument: u32) -> bool {
        let asked = self.outage.as_mut();
        match asked.and_then(|outage| outage.command(command, argument)) {
            None => false,
            Some(Moment::During(share)) if matches!(command, 6 | 24 | 25 | 38) => {
                self.tearing = Some(Share::per_mille(share));
                false
            }
            Some(_) => {
                self.fail(now);
                true
            }
        }
    }

    /// The power is gone: some of the cache had been written back, the rest is lost.
    pub(super) fn fail(&mut self, now: Duration) {
        self.tearing = None;
        self.mains_failed = true;
        if let Some(mut outage) = self.outage.take() {
            let done = self
                .cache
                .write_back_some(|line| outage.written_back(line), &mut *self.store);
            match done {
                Ok(lines) => self.log.counters.flushed_lines += lines,
                Err(e) => ::log::error!("medium: {e}"),
            }
        }
        self.power_cut(now);
    }
}
