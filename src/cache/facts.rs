//! What is known of the caches between a file system and the medium: what the kernel sends, what the
//! card keeps, what the file systems above ask for.

mod mounts;
#[cfg(test)]
mod tests;
mod verdict;

pub use mounts::{Layer, Mount};
pub use verdict::{judge, Judgement, Verdict};

use crate::device::block::errno;
use crate::device::ext_csd::ExtCsd;
use crate::device::{Storage, Sysfs};
use crate::error::Result;
use crate::fact::{Fact, NamedFact};
use crate::reset::facts;

/// The facts of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Kernel name of the disk.
    pub disk: String,
    /// queue/write_cache: with `write through` the kernel sends neither flushes nor FUA.
    pub write_cache: Fact<String>,
    /// queue/fua: 1 where the disk had FUA when it was found; on an eMMC a reliable write.
    pub fua: Fact<String>,
    /// The card's register.
    pub ext_csd: Fact<ExtCsd>,
    /// Device-mapper and loop devices above the disk.
    pub layers: Vec<Layer>,
    /// File systems on the disk, its partitions and the layers above.
    pub mounts: Fact<Vec<Mount>>,
}

/// What the card says of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardCache {
    /// CACHE_SIZE is 0, or the revision knows no caches.
    None,
    /// There is one, and it is off.
    Off,
    /// There is one, and it is on.
    On,
}

/// Revision that brought caches: eMMC 4.5.
const REV_OF_CACHES: u8 = 6;

impl Facts {
    /// Looks at `disk`, or at the only eMMC.
    ///
    /// # Errors
    /// `NO_SUCH_DEVICE`; `NOT_EMMC` and `INVALID_REQUEST` where none was named and there is none, or
    /// more than one.
    pub fn gather(storage: &dyn Storage, disk: Option<&str>) -> Result<Facts> {
        let sysfs = storage.sysfs();
        let name = facts::choose(sysfs, disk)?;
        let disk = facts::gather_disk(storage, &name)?;
        let (layers, mounts) = mounts::above(sysfs, &name);
        Ok(Facts {
            disk: name,
            write_cache: disk.write_cache,
            fua: disk.fua,
            ext_csd: disk.ext_csd.parse(|csd| match csd.implausible() {
                None => Ok(csd),
                Some(why) => Err(format!("the register makes no sense: {why}")),
            }),
            layers,
            mounts,
        })
    }

    /// The card's cache, where its register could be read.
    pub fn card_cache(&self) -> Option<CardCache> {
        let csd = self.ext_csd.value()?;
        Some(
            match (
                csd.rev() >= REV_OF_CACHES && csd.cache_kilobits() != 0,
                csd.cache_on(),
            ) {
                (false, _) => CardCache::None,
                (true, false) => CardCache::Off,
                (true, true) => CardCache::On,
            },
        )
    }

    /// What the kernel says by itself when it finds the card (drivers/mmc/core/block.c,
    /// mmc_blk_alloc_req): "write back" where the card's cache is on, or where it has reliable
    /// writes, which queue/fua shows. `None` where that cannot be told.
    pub fn default_write_cache(&self) -> Option<&'static str> {
        let fua = self.fua.value().map(|fua| fua == "1");
        match (fua, self.card_cache()) {
            (Some(true), Some(_)) | (_, Some(CardCache::On)) => Some("write back"),
            (Some(false), Some(_)) => Some("write through"),
            _ => None,
        }
    }

    /// The facts in words.
    pub fn named(&self) -> Vec<NamedFact> {
        let mut named = vec![
            NamedFact::new("write_cache", &self.write_cache, String::clone),
            NamedFact::new("write_cache_default", &self.default_fact(), |d| {
                (*d).to_owned()
            }),
            NamedFact::new("fua", &self.fua, String::clone),
        ];
        let by_name = |fact: &str, register: &'static str| {
            let meaning = self.ext_csd.clone().parse(|csd| {
                csd.means(register)
                    .ok_or(format!("EXT_CSD_REV {} has no {register}", csd.rev()))
            });
            let meaning = match meaning {
                Fact::Known { value, .. } => Fact::known(value, format!("EXT_CSD {register}")),
                unknown => unknown,
            };
            NamedFact::new(fact, &meaning, String::clone)
        };
        named.extend([
            by_name("card_cache_size", "CACHE_SIZE"),
            by_name("card_cache", "CACHE_CTRL"),
            by_name("card_flush_policy", "CACHE_FLUSH_POLICY"),
            by_name("card_barrier", "BARRIER_SUPPORT"),
            by_name("reliable_write", "WR_REL_PARAM"),
            by_name("reliable_write_areas", "WR_REL_SET"),
            by_name("reliable_write_sectors", "REL_WR_SEC_C"),
        ]);
        named.extend(self.layers.iter().map(|layer| {
            let name = format!("write_cache_{}", layer.node);
            NamedFact::new(&name, &layer.write_cache, String::clone)
        }));
        match &self.mounts {
            Fact::Known { value, source } => named.extend(value.iter().map(|mount| {
                let text = Fact::known(mount.to_string(), source.clone());
                NamedFact::new(&format!("mount_{}", mount.node), &text, String::clone)
            })),
            unknown => named.push(NamedFact::new("mounts", unknown, |_| String::new())),
        }
        named
    }

    fn default_fact(&self) -> Fact<&'static str> {
        match self.default_write_cache() {
            Some(word) => Fact::known(word, "the rule of mmc_blk_alloc_req"),
            None => Fact::unknown("needs queue/fua and the card's EXT_CSD", None),
        }
    }
}

fn text(sysfs: &dyn Sysfs, path: &str) -> Fact<String> {
    match sysfs.read(path) {
        Ok(text) => Fact::known(text.trim_end().to_owned(), path),
        Err(e) => {
            let errno = errno(e);
            Fact::unknown(format!("{path}: {}", errno.desc()), Some(errno))
        }
    }
}
