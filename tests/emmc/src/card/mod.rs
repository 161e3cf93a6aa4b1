//! An eMMC 5.1 card (JESD84-B51), user area only.
//!
//! No threads and no clock: every entry point takes `now`, any clock that does not run
//! backwards. Operations take the time of the [`Timing`] model; they reach the medium when
//! their time is over, so a power cut in between leaves them torn.
//!
//! Modelled: identification, reads and writes with CMD12 or CMD23, all CMD38 arguments,
//! volatile cache, reliable write, power loss. Not modelled: boot, RPMB and general purpose
//! partitions (their size registers are 0), write protection, lock, HPI, BKOPS, command
//! queue, HS200 and above, CRC errors. What is not modelled is not advertised and is refused.
mod area;
mod cache;
mod command;
mod config;
mod data;
mod erase;
pub mod ext_csd;
mod fault;
mod log;
mod operation;
mod outage;
mod protect;
mod registers;
mod status;
mod switch;
mod timing;

pub use config::{Config, ConfigError};
pub use data::DataError;
pub use erase::argument;
pub use ext_csd::{ExtCsd, Fields};
pub use fault::{Effect, Fault, Lies};
pub use log::{Counters, Entry, EraseCount, Log, DEFAULT_CAPACITY};
pub use outage::{Moment, Outage};
pub use registers::{Cid, Csd, MAX_BYTE_ADDRESSED};
pub use status::{bits, Response, State};
pub use timing::Timing;

use crate::store::{RangeSet, Store};
pub use area::Area;
use area::Aside;
use cache::Cache;
use data::Transfer;
use erase::Sequence;
use ext_csd::index;
use log::Token;
use operation::InFlight;
use std::ops::Range;
use std::time::Duration;

/// The card.
pub struct Card {
    /// Commands and counters.
    pub log: Log,
    /// Armed faults; [`Fault::nth`] counts from the moment of arming.
    pub faults: Vec<Fault>,
    /// Broken variant.
    pub lies: Lies,
    /// Delays.
    pub timing: Timing,
    cid: Cid,
    csd: Csd,
    ext: ExtCsd,
    store: Box<dyn Store>,
    cache: Cache,
    state: State,
    rca: u16,
    powered: bool,
    /// Error bits for the next R1.
    errors: u32,
    /// CMD23: block count, reliable.
    block_count: Option<(u32, bool)>,
    transfer: Transfer,
    sequence: Sequence,
    in_flight: Option<InFlight>,
    /// Where the time of the current data command is booked.
    token: Option<Token>,
    /// Sectors marked by secure trim step 1.
    marked: RangeSet,
    /// Sectors that a discard unmapped and nothing has written since.
    discarded: RangeSet,
    /// The power failure to come.
    outage: Option<Box<dyn Outage>>,
    /// It has chosen the operation that begins next.
    tearing: outage::Tearing,
    mains_failed: bool,
    /// Sectors of write-protected groups.
    protected: RangeSet,
    /// What PARTITION_ACCESS selects; `store` is its medium.
    area: Area,
    aside: Aside,
    /// State of the draw that chooses which cache lines leave; `None` = the lowest, and only when
    /// there is no room.
    eviction: Option<u64>,
}

impl Card {
    /// A powered card in idle state.
    ///
    /// # Errors
    /// If SEC_COUNT is 0 or exceeds the store.
    pub fn new(config: Config, mut store: Box<dyn Store>) -> Result<Self, ConfigError> {
        let sectors = config.ext_csd.sectors();
        if sectors == 0 {
            return Err(ConfigError::Empty);
        }
        if store.sectors() < sectors {
            return Err(ConfigError::StoreTooSmall {
                store: store.sectors(),
                card: sectors,
            });
        }
        store.set_erased_value(config.ext_csd.erased_value());
        let mut card = Card {
            log: Log::with_capacity(config.log_capacity),
            faults: config.faults,
            lies: config.lies,
            timing: config.timing,
            cid: config.cid,
            csd: config.csd,
            ext: config.ext_csd,
            store,
            cache: Cache::default(),
            state: State::Idle,
            rca: 1,
            powered: true,
            errors: 0,
            block_count: None,
            transfer: Transfer::None,
            sequence: Sequence::None,
            in_flight: None,
            token: None,
            marked: RangeSet::new(),
            discarded: RangeSet::new(),
            outage: None,
            tearing: None,
            mains_failed: false,
            protected: RangeSet::new(),
            area: Area::User,
            aside: Aside::default(),
            eviction: config.eviction_seed,
        };
        card.reset_registers();
        Ok(card)
    }

    /// What power-on and CMD0 set back.
    fn reset_registers(&mut self) {
        self.select(0);
        self.ext.reset_volatile();
        self.state = State::Idle;
        self.rca = 1;
        self.errors = 0;
        self.block_count = None;
        self.transfer = Transfer::None;
        self.sequence = Sequence::None;
        self.token = None;
    }

    /// EXT_CSD as CMD8 shows it now.
    pub fn ext_csd(&self) -> &ExtCsd {
        &self.ext
    }

    /// CID register.
    pub fn cid(&self) -> &Cid {
        &self.cid
    }

    /// CSD register, most significant byte first.
    pub fn csd_bytes(&self) -> [u8; 16] {
        self.csd.to_bytes(&self.ext)
    }

    /// Capacity of the user area in sectors.
    pub fn sectors(&self) -> u64 {
        self.ext.sectors()
    }

    /// True if CMD17…CMD38 take sector numbers, false if they take bytes.
    pub fn sector_addressed(&self) -> bool {
        self.sectors() > MAX_BYTE_ADDRESSED
    }

    /// Erase group in use, in sectors: HC_ERASE_GRP_SIZE with ERASE_GROUP_DEF = 1, the CSD's
    /// otherwise.
    pub fn erase_group_sectors(&self) -> u64 {
        let hc = u64::from(self.ext.0[index::HC_ERASE_GRP_SIZE]) * 1024;
        if self.ext.0[index::ERASE_GROUP_DEF] & 1 != 0 && hc > 0 {
            hc
        } else {
            self.csd.group_sectors()
        }
    }

    /// The medium. What the cache still holds is not in it.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The medium, for preparing its content behind the card's back.
    pub fn store_mut(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// Current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// True if CACHE_CTRL is on and there is a cache.
    pub fn cache_on(&self) -> bool {
        self.ext.0[index::CACHE_CTRL] & 1 != 0 && self.ext.cache_bytes() > 0
    }

    /// Dirty cache lines of 4 KiB.
    pub fn dirty_lines(&self) -> usize {
        self.cache.len()
    }

    /// Dirty cached sectors within a range.
    pub fn dirty_sectors(&self, range: Range<u64>) -> u64 {
        self.cache.dirty_in(&range)
    }

    /// Sectors that secure trim step 1 marked.
    pub fn marked(&self) -> &RangeSet {
        &self.marked
    }

    /// Arms a fault that counts commands from now on.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// False between a power cut and the next power-on.
    pub fn powered(&self) -> bool {
        self.powered
    }

    /// Sudden power loss: the cache is lost, the operation in flight is torn at the fraction
    /// of its time that has passed (an erase at a group, a trim or write at a sector, a flush
    /// at a line), and secure-trim marks are forgotten.
    pub fn power_cut(&mut self, now: Duration) {
        if !self.powered {
            return;
        }
        self.tick(now);
        self.tear(now);
        self.log.counters.power_cuts += 1;
        self.log.counters.lost_lines += self.cache.len() as u64;
        self.cache.clear();
        self.marked = RangeSet::new();
        self.reset_registers();
        self.powered = false;
    }

    /// Power returns; the card waits for CMD1. Without effect on a powered card, and while the
    /// [mains have failed](Card::mains_failed).
    pub fn power_on(&mut self) {
        if !self.powered && !self.mains_failed {
            self.powered = true;
            self.reset_registers();
        }
    }
}
