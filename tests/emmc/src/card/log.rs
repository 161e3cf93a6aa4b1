//! What the card was asked, and how long it was busy with it.
use super::status::Response;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Entries kept unless the configuration says otherwise; later ones are only counted.
pub const DEFAULT_CAPACITY: usize = 200_000;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The caller's clock, microseconds.
    pub at_us: u64,
    /// Command index.
    pub command: u8,
    /// Argument.
    pub argument: u32,
    /// What the card answered.
    pub response: Response,
    /// Modelled time that the command and its data cost, microseconds.
    pub busy_us: u64,
}

/// Count and extent of CMD38 with one argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EraseCount {
    /// Commands executed.
    pub commands: u64,
    /// Sectors they covered, after rounding (before any [lie](super::Lies)).
    pub sectors: u64,
}

/// Counters since creation or the last [`Log::reset`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Commands received per index, also refused ones.
    pub commands: BTreeMap<u8, u64>,
    /// CMD38 per argument.
    #[serde(with = "hex_keys")]
    pub erases: BTreeMap<u32, EraseCount>,
    /// Modelled time per command index, microseconds: busy on DAT0 and read access time.
    pub busy_us: BTreeMap<u8, u64>,
    /// Bytes read from the user area.
    pub read_bytes: u64,
    /// Bytes written to the user area or the cache.
    pub written_bytes: u64,
    /// Reliable writes that were honoured.
    pub reliable_writes: u64,
    /// Writes with the reliable bit whose size or address the card has no such write for.
    pub unreliable_writes: u64,
    /// FLUSH_CACHE commands.
    pub flushes: u64,
    /// Cache lines written back, for any reason.
    pub flushed_lines: u64,
    /// Cache lines written back because the cache was full.
    pub evicted_lines: u64,
    /// Cache lines lost at a power cut.
    pub lost_lines: u64,
    /// Commands refused as illegal.
    pub illegal: u64,
    /// Power cuts.
    pub power_cuts: u64,
}

/// Keys like "0x80000000" in JSON.
mod hex_keys {
    use super::{BTreeMap, EraseCount};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<u32, EraseCount>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_map(map.iter().map(|(k, v)| (format!("{k:#010x}"), v)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<u32, EraseCount>, D::Error> {
        BTreeMap::<String, EraseCount>::deserialize(d)?
            .into_iter()
            .map(|(k, v)| {
                let digits = k.trim_start_matches("0x");
                let key = u32::from_str_radix(digits, 16).map_err(D::Error::custom)?;
                Ok((key, v))
            })
            .collect()
    }
}

/// Where the time of a command is booked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    command: u8,
    entry: Option<usize>,
    /// Tells entries from before a reset.
    epoch: u64,
}

/// Command log with counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Log {
    /// The first commands since the last reset, in order.
    pub entries: Vec<Entry>,
    /// Commands that are counted but had no room in `entries`.
    pub dropped: u64,
    /// Counters.
    pub counters: Counters,
    capacity: usize,
    #[serde(skip)]
    epoch: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self::with_capacity(DEFAULT_CAPACITY)
    }
}

impl Log {
    /// An empty log for so many entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Log {
            entries: Vec::new(),
            dropped: 0,
            counters: Counters::default(),
            capacity,
            epoch: 0,
        }
    }

    /// Forgets entries and counters, for instance those of the firmware's own boot.
    pub fn reset(&mut self) {
        let epoch = self.epoch + 1;
        *self = Self::with_capacity(self.capacity);
        self.epoch = epoch;
    }

    /// Commands of that index.
    pub fn count(&self, command: u8) -> u64 {
        self.counters.commands.get(&command).copied().unwrap_or(0)
    }

    /// CMD38 executed with that argument.
    pub fn erases(&self, argument: u32) -> EraseCount {
        let erases = &self.counters.erases;
        erases.get(&argument).copied().unwrap_or_default()
    }

    /// Modelled time of all commands.
    pub fn busy(&self) -> Duration {
        Duration::from_micros(self.counters.busy_us.values().sum())
    }

    /// Modelled time of the commands of one index.
    pub fn busy_of(&self, command: u8) -> Duration {
        let us = self.counters.busy_us.get(&command).copied();
        Duration::from_micros(us.unwrap_or(0))
    }

    pub(super) fn begin(&mut self, now: Duration, command: u8, argument: u32) -> Token {
        *self.counters.commands.entry(command).or_default() += 1;
        let entry = (self.entries.len() < self.capacity).then_some(self.entries.len());
        if entry.is_some() {
            self.entries.push(Entry {
                at_us: now.as_micros() as u64,
                command,
                argument,
                response: Response::None,
                busy_us: 0,
            });
        } else {
            self.dropped += 1;
        }
        Token {
            command,
            entry,
            epoch: self.epoch,
        }
    }

    fn entry(&mut self, token: Token) -> Option<&mut Entry> {
        let index = token.entry.filter(|_| token.epoch == self.epoch)?;
        self.entries.get_mut(index)
    }

    pub(super) fn respond(&mut self, token: Token, response: Response) {
        if let Some(e) = self.entry(token) {
            e.response = response;
        }
    }

    pub(super) fn add_busy(&mut self, token: Token, us: u64) {
        if us == 0 {
            return;
        }
        *self.counters.busy_us.entry(token.command).or_default() += us;
        if let Some(e) = self.entry(token) {
            e.busy_us += us;
        }
    }
}
