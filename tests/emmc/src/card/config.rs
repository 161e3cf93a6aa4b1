//! What makes a card.
use super::ext_csd::{ExtCsd, Fields};
use super::fault::{Fault, Lies};
use super::log::DEFAULT_CAPACITY;
use super::registers::{Cid, Csd};
use super::timing::Timing;
use std::fmt;

/// Everything a [`Card`](super::Card) is made from, besides its store.
#[derive(Clone, Debug)]
pub struct Config {
    /// EXT_CSD at power-on; volatile bytes in it are ignored.
    pub ext_csd: ExtCsd,
    /// CID.
    pub cid: Cid,
    /// CSD.
    pub csd: Csd,
    /// Delays.
    pub timing: Timing,
    /// Faults armed from the start.
    pub faults: Vec<Fault>,
    /// Broken variant.
    pub lies: Lies,
    /// Entries that the log keeps.
    pub log_capacity: usize,
    /// With a seed the cache writes lines back whenever it likes, in any order, as a real one does,
    /// and a cut leaves any part of an operation done; without, the lowest first, lines only for want
    /// of room.
    pub eviction_seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Fields::default().into()
    }
}

impl From<ExtCsd> for Config {
    fn from(ext_csd: ExtCsd) -> Self {
        Config {
            ext_csd,
            cid: Cid::default(),
            csd: Csd::default(),
            timing: Timing::zero(),
            faults: Vec::new(),
            lies: Lies::default(),
            log_capacity: DEFAULT_CAPACITY,
            eviction_seed: None,
        }
    }
}

impl From<Fields> for Config {
    fn from(fields: Fields) -> Self {
        ExtCsd::from(fields).into()
    }
}

/// A card that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// SEC_COUNT is zero.
    Empty,
    /// The store is smaller than SEC_COUNT.
    StoreTooSmall {
        /// Sectors of the store.
        store: u64,
        /// SEC_COUNT.
        card: u64,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Empty => f.write_str("SEC_COUNT is 0"),
            ConfigError::StoreTooSmall { store, card } => {
                write!(f, "the store has {store} sectors, SEC_COUNT says {card}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
