//! What is known of a card, in the order in which it is worth reading.

use crate::device::cid::Cid;
use crate::device::ext_csd::{standard, ExtCsd};
use crate::device::Storage;
use crate::error::Result;
use crate::fact::{Fact, NamedFact};
use crate::reset::facts::{self, Disk};
use crate::reset::plan::quirks::Quirks;

/// Everything about one card.
pub struct Card {
    /// Kernel name of the disk.
    pub disk: String,
    /// The facts.
    pub facts: Vec<NamedFact>,
    /// The register, where it could be read.
    pub ext_csd: Option<ExtCsd>,
}

/// Looks at `disk`, or at the only eMMC.
///
/// # Errors
/// `NO_SUCH_DEVICE`; `NOT_EMMC` and `INVALID_REQUEST` where no disk was named and there is none, or
/// more than one.
pub fn look(storage: &dyn Storage, disk: Option<&str>) -> Result<Card> {
    let name = facts::choose(storage.sysfs(), disk)?;
    let disk = facts::gather_disk(storage, &name)?;
    let mut facts = identity(&disk);
    // Those of a reset begin with the registers that the identity was made of.
    facts.extend(disk.named());
    facts.extend(register(&disk.ext_csd));
    Ok(Card {
        disk: name,
        facts,
        ext_csd: disk.ext_csd.value().cloned(),
    })
}

/// The facts of a register that was saved, without its card.
pub fn saved(csd: &ExtCsd, source: &str) -> Vec<NamedFact> {
    register(&Fact::known(csd.clone(), source))
}

/// The CID in words, and what the kernel's lists say of such a card.
fn identity(disk: &Disk) -> Vec<NamedFact> {
    let cid = disk.cid.clone().parse(|text| Cid::parse(&text));
    let rev = disk.ext_csd.value().map(ExtCsd::rev);
    let date = cid.clone().parse(|cid| {
        let rev = rev.ok_or("the year needs EXT_CSD_REV, which could not be read")?;
        cid.date(rev)
            .ok_or(format!("MDT {:#04x} has no month", cid.mdt))
    });
    vec![
        NamedFact::new("maker", &cid, |cid| {
            format!(
                "{} (MID {:#04x})",
                cid.maker().unwrap_or("not known"),
                cid.mid
            )
        }),
        NamedFact::new("product_name", &cid, |cid| cid.pnm.clone()),
        NamedFact::new("product_revision", &cid, |cid| {
            format!("{}.{}", cid.prv >> 4, cid.prv & 0xf)
        }),
        NamedFact::new("serial_number", &cid, |cid| format!("{:#010x}", cid.psn)),
        NamedFact::new("made", &date, String::clone),
        NamedFact::new("oem_id", &cid, |cid| format!("{:#04x}", cid.oid)),
        NamedFact::new("package", &cid, |cid| cid.package().to_owned()),
        NamedFact::new("quirks", &quirks(disk), String::clone),
    ]
}

fn quirks(disk: &Disk) -> Fact<String> {
    let (manfid, name) = match (&disk.manfid, &disk.card_name) {
        (Fact::Known { value: manfid, .. }, Fact::Known { value: name, .. }) => (*manfid, name),
        (Fact::Unknown { reason, errno }, _) | (_, Fact::Unknown { reason, errno }) => {
            return Fact::unknown(reason.clone(), *errno)
        }
    };
    let quirks = Quirks::of(manfid, name);
    let listed: Vec<&str> = [
        (
            quirks.secure_broken,
            "secure erase and secure trim are broken",
        ),
        (quirks.trim_broken, "trim is broken"),
        (quirks.inand, "erases need EXT_CSD byte 113"),
    ]
    .into_iter()
    .filter_map(|(set, text)| set.then_some(text))
    .collect();
    let text = match listed.is_empty() {
        true => "none".to_owned(),
        false => listed.join(", "),
    };
    Fact::known(text, "manfid and name in the kernel's lists")
}

/// What the register says beyond what a reset asks for.
fn register(csd: &Fact<ExtCsd>) -> Vec<NamedFact> {
    let by_name = |fact: &str, register: &'static str| {
        let meaning = csd.clone().parse(|csd| match csd.means(register) {
            Some(meaning) => Ok(meaning),
            None => Err(format!("EXT_CSD_REV {} has no {register}", csd.rev())),
        });
        let meaning = match meaning {
            Fact::Known { value, .. } => Fact::known(value, register),
            unknown => unknown,
        };
        NamedFact::new(fact, &meaning, String::clone)
    };
    let of = |fact: &str, words: fn(&ExtCsd) -> String| NamedFact::new(fact, csd, words);
    vec![
        of("standard", |csd| standard(csd.rev()).to_owned()),
        of("plausible", |csd| {
            csd.implausible().unwrap_or_else(|| "yes".to_owned())
        }),
        by_name("write_protect_group", "HC_WP_GRP_SIZE"),
        by_name("boot_area_size", "BOOT_SIZE_MULT"),
        by_name("rpmb_size", "RPMB_SIZE_MULT"),
        by_name("cache_size", "CACHE_SIZE"),
        by_name("reliable_write", "WR_REL_PARAM"),
        by_name("reliable_write_areas", "WR_REL_SET"),
        by_name("firmware_version", "FIRMWARE_VERSION"),
        by_name("reserved_blocks", "PRE_EOL_INFO"),
        by_name("life_time_a", "DEVICE_LIFE_TIME_EST_TYP_A"),
        by_name("life_time_b", "DEVICE_LIFE_TIME_EST_TYP_B"),
    ]
}
