//! Which commands do the erasing, and what that is worth.

use super::quirks::Quirks;
use super::refuse::refuse;
use crate::device::ext_csd::ExtCsd;
use crate::error::{Code, Failure, Result};
use crate::reset::request::{Assurance, Method, Physical};

/// How a part of a range is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// CMD35/36/38 with each of these arguments in turn, each over the whole part.
    Commands(&'static [u32]),
    /// BLKSECDISCARD (true) or BLKDISCARD on the partition's node.
    Discard(bool),
    /// Direct writes.
    Overwrite,
}

/// A method, worked out for one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method; never `Auto`.
    pub method: Method,
    /// Whole erase groups (or all of the range where `grouped` is false).
    pub middle: Way,
    /// Ragged ends.
    pub edges: Way,
    /// Whether the middle is made of whole erase groups.
    pub grouped: bool,
    /// Whether SANITIZE follows: it reaches pages that earlier discards unmapped.
    pub sanitize: bool,
    /// What this choice passed over, for the reader.
    pub notes: Vec<String>,
}

const SECURE_ERASE: &[u32] = &[0x8000_0000];
/// Mark, then purge what is marked.
const SECURE_TRIM: &[u32] = &[0x8000_0001, 0x8000_8000];
const ERASE: &[u32] = &[0x0000_0000];
const TRIM: &[u32] = &[0x0000_0001];

/// What a card offers.
struct Offers {
    secure_erase: bool,
    secure_trim: bool,
    trim: bool,
    sanitize: bool,
}

/// Chooses for an eMMC. `ignore_quirks` sends what the kernel's lists forbid.
///
/// # Errors
/// `UNSUPPORTED` for a method that the card does not offer, or that its firmware does not survive.
pub fn choose(
    asked: Method,
    csd: &ExtCsd,
    quirks: Quirks,
    ignore_quirks: bool,
    card: &str,
) -> Result<Choice> {
    let secure = csd.has_secure_erase();
    let forbid = |broken: bool| broken && !ignore_quirks;
    let offers = Offers {
        secure_erase: secure && !forbid(quirks.secure_broken),
        secure_trim: secure
            && csd.has_trim()
            && !forbid(quirks.secure_broken)
            && !forbid(quirks.trim_broken),
        trim: csd.has_trim() && !forbid(quirks.trim_broken),
        sanitize: csd.has_sanitize(),
    };
    let method = match asked {
        Method::Auto if offers.secure_erase => Method::SecureErase,
        Method::Auto => Method::Erase,
        method => method,
    };
    check(method, &offers, csd, quirks, ignore_quirks, card)?;
    let edges = if offers.secure_trim {
        Way::Commands(SECURE_TRIM)
    } else {
        Way::Overwrite
    };
    let (middle, edges, grouped) = match method {
        Method::SecureErase => (Way::Commands(SECURE_ERASE), edges, true),
        Method::SecureTrim => (Way::Commands(SECURE_TRIM), edges, false),
        Method::Erase => (Way::Commands(ERASE), Way::Overwrite, true),
        Method::Trim => (Way::Commands(TRIM), Way::Overwrite, false),
        _ => (Way::Overwrite, Way::Overwrite, false),
    };
    let mut notes = Vec::new();
    if quirks.secure_broken && secure {
        notes.push(if ignore_quirks {
            format!("{card} is on the kernel's list of cards that secure erase can kill; that was overridden")
        } else {
            format!("{card} is on the kernel's list of cards that secure erase can kill: it is not used")
        });
    }
    if quirks.trim_broken && csd.has_trim() && !ignore_quirks {
        notes.push(format!(
            "{card} is on the kernel's list of cards with a broken trim: it is not used"
        ));
    }
    Ok(Choice {
        method,
        middle,
        edges,
        grouped,
        sanitize: offers.sanitize,
        notes,
    })
}

fn check(
    method: Method,
    offers: &Offers,
    csd: &ExtCsd,
    quirks: Quirks,
    ignore_quirks: bool,
    card: &str,
) -> Result<()> {
    let offered = match method {
        Method::SecureErase => offers.secure_erase,
        Method::SecureTrim => offers.secure_trim,
        Method::Trim => offers.trim,
        Method::SecureDiscard | Method::Discard => {
            return Err(refuse(
                Code::Unsupported,
                format!("the kernel's {method} is for storage that is not eMMC"),
            )
            .remedy("use auto, secure-erase, secure-trim, erase, trim or overwrite"))
        }
        _ => true,
    };
    if offered {
        return Ok(());
    }
    let secure = matches!(method, Method::SecureErase | Method::SecureTrim);
    let listed = !ignore_quirks
        && ((secure && quirks.secure_broken)
            || (method != Method::SecureErase && quirks.trim_broken));
    Err(if listed && has(method, csd) {
        refuse(
            Code::Unsupported,
            format!(
                "{card} is on the kernel's list of cards whose firmware does not survive {method}"
            ),
        )
        .remedy("use auto; --ignore-quirks sends it all the same, at the card's peril")
    } else {
        not_offered(method, csd, card)
    })
}

fn has(method: Method, csd: &ExtCsd) -> bool {
    match method {
        Method::SecureErase => csd.has_secure_erase(),
        Method::SecureTrim => csd.has_secure_erase() && csd.has_trim(),
        _ => csd.has_trim(),
    }
}

fn not_offered(method: Method, csd: &ExtCsd, card: &str) -> Failure {
    refuse(
        Code::Unsupported,
        format!(
            "the card {card} does not offer {method} (SEC_FEATURE_SUPPORT is {:#04x})",
            csd.0[crate::device::ext_csd::field::SEC_FEATURE_SUPPORT]
        ),
    )
    .remedy("use auto, which takes the strongest that the card has; nothing is ever downgraded silently")
}

/// Chooses for a disk that is no eMMC.
///
/// # Errors
/// `UNSUPPORTED` for methods made of MMC commands.
pub fn choose_other(asked: Method, disk: &str) -> Result<Choice> {
    let (method, middle) = match asked {
        Method::Auto | Method::Overwrite => (Method::Overwrite, Way::Overwrite),
        Method::SecureDiscard => (Method::SecureDiscard, Way::Discard(true)),
        Method::Discard => (Method::Discard, Way::Discard(false)),
        method => return Err(refuse(
            Code::NotEmmc,
            format!("{disk} is not an eMMC: {method} is made of MMC commands"),
        )
        .remedy(
            "use auto, overwrite, secure-discard or discard; the purge of UFS and the sanitize \
                 of NVMe have no interface in this kernel that blockd could use",
        )),
    };
    Ok(Choice {
        method,
        middle,
        edges: Way::Overwrite,
        grouped: false,
        sanitize: false,
        notes: vec![format!(
            "{disk} is not an eMMC: nothing is claimed about its physical blocks"
        )],
    })
}

impl Choice {
    /// What the card will have claimed for a plan with edges or without, with a middle or without.
    pub fn physical(&self, has_edges: bool, has_middle: bool) -> Physical {
        if self.sanitize {
            return Physical::Sanitize;
        }
        let of = |way: Way| match way {
            Way::Commands(arguments) if arguments == SECURE_ERASE => Physical::SecureErase,
            Way::Commands(arguments) if arguments == SECURE_TRIM => Physical::SecureTrim,
            _ => Physical::None,
        };
        let middle = has_middle.then(|| of(self.middle));
        let edges = has_edges.then(|| of(self.edges));
        middle
            .into_iter()
            .chain(edges)
            .min()
            .unwrap_or(Physical::None)
    }
}

/// NIST's word for what a card claims.
pub fn assurance(physical: Physical) -> Assurance {
    match physical {
        Physical::None => Assurance::Clear,
        _ => Assurance::Purge,
    }
}
