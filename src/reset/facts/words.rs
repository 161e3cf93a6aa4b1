//! The facts of a disk in words, as `card info` prints them.

use super::Disk;
use crate::device::ext_csd::{Addressing, ExtCsd};
use crate::fact::{Fact, NamedFact};

impl Disk {
    fn addressing_fact(&self) -> Fact<Addressing> {
        match (self.addressing(), &self.ext_csd) {
            (Some(addressing), _) => Fact::known(addressing, "SEC_COUNT, C_SIZE of the CSD"),
            (None, Fact::Unknown { reason, errno }) => Fact::unknown(reason.clone(), *errno),
            (None, Fact::Known { .. }) => Fact::unknown(
                "at most 2 GiB, and C_SIZE of the CSD does not say that it counts in bytes",
                None,
            ),
        }
    }

    /// The facts in the order in which they are worth reading.
    pub fn named(&self) -> Vec<NamedFact> {
        let csd =
            |name: &str, text: fn(&ExtCsd) -> String| NamedFact::new(name, &self.ext_csd, text);
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        vec![
            NamedFact::new("type", &self.kind, String::clone),
            NamedFact::new("card_name", &self.card_name, String::clone),
            NamedFact::new("manfid", &self.manfid, |id| format!("{id:#08x}")),
            NamedFact::new("cid", &self.cid, String::clone),
            NamedFact::new("rca", &self.rca, |rca| format!("{rca:#06x}")),
            NamedFact::new(
                "capacity_bytes",
                &Fact::known(self.capacity, format!("/sys/block/{}/size", self.name)),
                |sectors| sectors.to_bytes().0.to_string(),
            ),
            NamedFact::new("read_only", &self.read_only, |ro| yes_no(*ro)),
            NamedFact::new("erase_group_bytes", &self.erase_size, |b| b.0.to_string()),
            csd("ext_csd_rev", |e| e.rev().to_string()),
            csd("sec_count", |e| e.sec_count().0.to_string()),
            NamedFact::new("addressing", &self.addressing_fact(), |addressing| {
                format!("{addressing:?}").to_lowercase()
            }),
            csd("secure_erase", |e| {
                if e.has_secure_erase() { "yes" } else { "no" }.to_owned()
            }),
            csd("trim", |e| {
                if e.has_trim() { "yes" } else { "no" }.to_owned()
            }),
            csd("sanitize", |e| {
                if e.has_sanitize() { "yes" } else { "no" }.to_owned()
            }),
            csd("erased_value", |e| e.erased_value().to_string()),
            csd("erase_timeout_mult", |e| e.erase_timeout_mult().to_string()),
            csd("sec_erase_mult", |e| e.sec_erase_mult().to_string()),
            csd("cache_kilobits", |e| e.cache_kilobits().to_string()),
            csd("cache_on", |e| {
                if e.cache_on() { "yes" } else { "no" }.to_owned()
            }),
            NamedFact::new("discard_max_bytes", &self.discard_max, |b| b.0.to_string()),
            NamedFact::new("write_cache", &self.write_cache, String::clone),
            NamedFact::new("fua", &self.fua, String::clone),
        ]
    }
}
