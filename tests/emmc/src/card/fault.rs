//! Deliberate faults: errors that a conforming card reports, and lies that none would tell.
use serde::{Deserialize, Serialize};

/// What happens to the command that a [`Fault`] hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The command is executed; its own response shows these bits (type R).
    Response(u32),
    /// The command is not executed; its own response shows these bits (type R).
    Refuse(u32),
    /// The command is executed; the next response shows these bits (type X).
    Later(u32),
    /// The command is executed, but its response is lost.
    NoResponse,
    /// The card does not hear the command.
    Deaf,
}

/// A fault that fires once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Command index.
    pub command: u8,
    /// Fires on the nth such command from now on, counted from 1.
    pub nth: u64,
    /// What happens then.
    pub effect: Effect,
}

impl Fault {
    /// A fault on the `nth` command `command` from the moment it is added to a card.
    pub fn new(command: u8, nth: u64, effect: Effect) -> Self {
        Fault {
            command,
            nth,
            effect,
        }
    }
}

/// Takes the effect that is due for this command, counting down all its faults.
pub(super) fn due(faults: &mut Vec<Fault>, command: u8) -> Option<Effect> {
    let mut hit = None;
    faults.retain_mut(|f| {
        if f.command != command {
            return true;
        }
        f.nth = f.nth.saturating_sub(1);
        if f.nth == 0 {
            hit = hit.or(Some(f.effect));
        }
        f.nth != 0
    });
    hit
}

/// Ways in which the card breaks the standard without saying so. A test suite that still
/// passes with one of them does not test what it claims. Default: honest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lies {
    /// Every CMD38 leaves these erase groups (numbered from the start of the card) as they are.
    pub skip_groups: Vec<u64>,
    /// Every CMD38 leaves each n-th of its groups, counted from 1 within the command, as it is.
    pub skip_every: Option<u64>,
    /// FLUSH_CACHE takes its time and reports success, but writes nothing back.
    pub ignore_flush: bool,
    /// Reliable writes go to the volatile cache like others.
    pub ignore_reliable: bool,
    /// Erases are exact to the sector: addresses are not rounded to groups (as in QEMU's card).
    pub no_rounding: bool,
    /// Erases take this many more groups at either end.
    pub widen_groups: u64,
}
