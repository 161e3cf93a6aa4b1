//! Diagnostics: what is known of a card, and what this machine allows.

pub mod card;
mod doctor;

pub use doctor::{doctor, without_cards};

use crate::named_enum;

named_enum! {
    /// How bad a finding is.
    Severity {
        /// As it should be.
        Ok = 0 "ok",
        /// Works, but not fully.
        Warning = 1 "warning",
        /// Something cannot work.
        Problem = 2 "problem",
        /// Cannot be told here.
        Unknown = 3 "unknown",
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub topic: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What was found.
    pub text: String,
    /// What shows it.
    pub evidence: String,
    /// What to do; empty where nothing is to be done.
    pub remedy: String,
}

impl Finding {
    fn new(topic: &'static str, severity: Severity, text: String, evidence: String) -> Finding {
        Finding {
            topic,
            severity,
            text,
            evidence,
            remedy: String::new(),
        }
    }

    fn remedy(mut self, remedy: &str) -> Finding {
        self.remedy = remedy.to_owned();
        self
    }
}
