//! What is known of a device, and from where; or why it is not known.

use nix::errno::Errno;

/// A fact. "Unknown" is an answer: a build may lack the right to look, and then the verdict is
/// "cannot tell here", never a guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// Read.
    Known {
        /// The value.
        value: T,
        /// Where it was read: a path, a register.
        source: String,
    },
    /// Not to be had.
    Unknown {
        /// Why.
        reason: String,
        /// What the kernel said, if it did.
        errno: Option<Errno>,
    },
}

impl<T> Fact<T> {
    /// A fact that was read from `source`.
    pub fn known(value: T, source: impl Into<String>) -> Fact<T> {
        Fact::Known {
            value,
            source: source.into(),
        }
    }

    /// A fact that could not be read.
    pub fn unknown(reason: impl Into<String>, errno: Option<Errno>) -> Fact<T> {
        Fact::Unknown {
            reason: reason.into(),
            errno,
        }
    }

    /// The value, where it is known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Fact::Known { value, .. } => Some(value),
            Fact::Unknown { .. } => None,
        }
    }

    /// Applies `parse` to a known value; a value that it refuses becomes unknown, with its words.
    pub fn parse<U>(self, parse: impl FnOnce(T) -> Result<U, String>) -> Fact<U> {
        match self {
            Fact::Known { value, source } => match parse(value) {
                Ok(value) => Fact::Known { value, source },
                Err(reason) => Fact::unknown(format!("{source}: {reason}"), None),
            },
            Fact::Unknown { reason, errno } => Fact::Unknown { reason, errno },
        }
    }
}

/// A fact in words, as `card info` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFact {
    /// Name in snake case.
    pub name: String,
    /// The value in words, or why it is unknown.
    pub fact: Fact<String>,
}

impl NamedFact {
    /// `fact` under `name`, its value in the words of `text`.
    pub fn new<T>(name: &str, fact: &Fact<T>, text: impl FnOnce(&T) -> String) -> NamedFact {
        NamedFact {
            name: name.to_owned(),
            fact: match fact {
                Fact::Known { value, source } => Fact::known(text(value), source.clone()),
                Fact::Unknown { reason, errno } => Fact::unknown(reason.clone(), *errno),
            },
        }
    }
}
