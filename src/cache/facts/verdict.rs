//! One verdict: does what an fsync acknowledged survive a power cut?

use super::{CardCache, Facts, Layer};
use crate::fact::Fact;

crate::named_enum! {
    /// What the facts say together.
    Verdict {
        /// Acknowledged data are on the medium, or flushed to it.
        Safe = 0 "safe",
        /// The same, at a price that need not be paid.
        SafeButSlow = 1 "safe but slow",
        /// A power cut can lose what an fsync acknowledged.
        DataAtRisk = 2 "data at risk",
        /// The facts do not tell.
        CannotTell = 3 "cannot tell",
    }
}

/// The verdict, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Sentences; what would tell, where it cannot be told.
    pub reasons: Vec<String>,
}

const WOULD_TELL: &str =
    "the card's EXT_CSD would tell: run as root with CAP_SYS_RAWIO, in a domain that may use MMC_IOC_CMD";

/// Judges the facts.
pub fn judge(facts: &Facts) -> Judgement {
    let card = facts.card_cache();
    let mut reasons = vec![card_words(facts, card)];
    let leaks = leaks(facts);
    let unread = unread(facts);
    let verdict = match (card, leaks.is_empty(), unread.is_empty()) {
        // Nothing volatile lies below: whether flushes are sent does not matter.
        (Some(CardCache::None), ..) => Verdict::Safe,
        (Some(CardCache::Off), ..) => Verdict::SafeButSlow,
        (Some(CardCache::On), false, _) => Verdict::DataAtRisk,
        (_, true, true) => Verdict::Safe,
        _ => Verdict::CannotTell,
    };
    match verdict {
        Verdict::Safe | Verdict::SafeButSlow if card.is_some_and(|c| c != CardCache::On) => {
            let idle = leaks
                .into_iter()
                .map(|leak| format!("{leak}: without effect here"));
            reasons.extend(idle);
        }
        Verdict::Safe => reasons.push(
            "the kernel flushes the disk's cache at each fsync, and no file system is told not to"
                .to_owned(),
        ),
        _ => {
            reasons.extend(leaks);
            reasons.extend(unread);
        }
    }
    if verdict == Verdict::CannotTell && card.is_none() {
        reasons.push(WOULD_TELL.to_owned());
    }
    reasons.extend(remarks(facts, card));
    Judgement { verdict, reasons }
}

fn card_words(facts: &Facts, card: Option<CardCache>) -> String {
    match (card, &facts.ext_csd) {
        (Some(CardCache::None), _) => "the card has no volatile cache (CACHE_SIZE)".to_owned(),
        (Some(CardCache::Off), _) => {
            "the card has a volatile cache, which is off (CACHE_CTRL 0)".to_owned()
        }
        (Some(CardCache::On), _) => "the card's volatile cache is on (CACHE_CTRL 1)".to_owned(),
        (None, Fact::Unknown { reason, .. }) => {
            format!("whether the disk has a volatile cache is not known: {reason}")
        }
        (None, Fact::Known { .. }) => {
            "whether the disk has a volatile cache is not known".to_owned()
        }
    }
}

/// Where flushes get lost.
fn leaks(facts: &Facts) -> Vec<String> {
    let through = |word: &Fact<String>| word.value().is_some_and(|word| word != "write back");
    let mut leaks = Vec::new();
    if through(&facts.write_cache) {
        leaks.push(format!(
            "queue/write_cache of {} says `{}`: the kernel sends the card neither flushes nor FUA",
            facts.disk,
            facts.write_cache.value().map_or("", String::as_str)
        ));
    }
    let swallows = |layer: &&Layer| !layer.read_only && through(&layer.write_cache);
    for layer in facts.layers.iter().filter(swallows) {
        leaks.push(format!(
            "queue/write_cache of {} says `write through`: flushes of what lies above it end there",
            layer.node
        ));
    }
    for mount in facts.mounts.value().into_iter().flatten() {
        if let (Some(option), false) = (mount.without_barriers(), mount.read_only()) {
            leaks.push(format!(
                "{} is mounted with {option}: fsync does not flush",
                mount.place
            ));
        }
    }
    leaks
}

/// What could not be read and may hide a leak.
fn unread(facts: &Facts) -> Vec<String> {
    let reason = |fact: &Fact<String>| match fact {
        Fact::Unknown { reason, .. } => Some(format!("not known: {reason}")),
        Fact::Known { .. } => None,
    };
    let mut unread: Vec<String> = reason(&facts.write_cache).into_iter().collect();
    let written = facts.layers.iter().filter(|layer| !layer.read_only);
    unread.extend(written.filter_map(|layer| reason(&layer.write_cache)));
    if let Fact::Unknown { reason, .. } = &facts.mounts {
        unread.push(format!("mount options are not known: {reason}"));
    }
    unread
}

/// What changes no verdict and should be known.
fn remarks(facts: &Facts, card: Option<CardCache>) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (Some(is), Some(default)) = (facts.write_cache.value(), facts.default_write_cache()) {
        if is != default {
            remarks.push(format!(
                "queue/write_cache was changed: the kernel's default for this card is `{default}`"
            ));
        }
    }
    if card == Some(CardCache::Off) {
        remarks.push(
            "the cache was turned off, or the kernel left it off (a card with a broken HPI): each \
             write waits for the medium; Linux turns caches on when it finds the card"
                .to_owned(),
        );
    }
    if card == Some(CardCache::None) && facts.fua.value().is_some_and(|fua| fua == "1") {
        remarks.push(
            "queue/fua is 1: FUA writes are reliable writes, which keep old or new data in a cut"
                .to_owned(),
        );
    }
    for mount in facts.mounts.value().into_iter().flatten() {
        if mount.data_writeback() {
            remarks.push(format!(
                "{} is mounted with data=writeback: after a crash files that were not synced may \
                 hold old data",
                mount.place
            ));
        }
    }
    remarks
}
