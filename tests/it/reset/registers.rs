//! Registers that make no sense: each field of EXT_CSD that the planner goes by, zero, full, or against
//! what the kernel knows. The card is sound; what CMD8 brings is changed on its way (a fake, since no
//! kernel sets a card up that answers so).

use super::layout::{expect_erased_exactly, expect_untouched, machine, place, plain_fields, GROUP};
use crate::case::{Case, Outcome};
use blockd::device::{Access, Block, Command, Mmc, Storage, Sysfs};
use blockd::error::Code;
use blockd::reset::request::Request;
use blockd::reset::Reset;
use emmc::card::ext_csd::Fields;
use emmc::card::{Config, Csd};
use emmc::machine::Machine;
use emmc::store::NamedRange;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::registers_that_make_no_sense", all),
        Case::new("reset::a_small_card_with_a_large_sec_count", small),
    ]
}

/// What a row must end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// `DEVICE_FAILED` at `plan`, with this in its text; no command but reads.
    Refused(&'static str),
    /// The field is of no consequence to what is erased.
    Erased,
    /// The card does not do what the register says: found while erasing or after it. Nothing outside
    /// has changed.
    Found(Code),
}
use Verdict::{Erased, Found, Refused};

/// Bytes of the register, by their JEDEC names, and the verdict on `ragged`.
type Row = (&'static str, &'static [(usize, u8)], Verdict);

const SENSE: &str = "makes no sense";
const KERNEL: &str = "the kernel";

const ROWS: [Row; 33] = [
    ("EXT_CSD_REV 0", &[(192, 0)], Refused("EXT_CSD_REV is 0")),
    ("EXT_CSD_REV 10", &[(192, 10)], Refused("EXT_CSD_REV is 10")),
    ("EXT_CSD_REV ff", &[(192, 0xff)], Refused(SENSE)),
    (
        "SEC_COUNT 0",
        &[(212, 0), (213, 0), (214, 0), (215, 0)],
        Refused("SEC_COUNT is 0"),
    ),
    ("SEC_COUNT half", &[(214, 0x80), (215, 0)], Refused(KERNEL)),
    ("SEC_COUNT more", &[(212, 1)], Refused(KERNEL)),
    (
        "SEC_COUNT ff",
        &[(212, 0xff), (213, 0xff), (214, 0xff), (215, 0xff)],
        Refused(KERNEL),
    ),
    ("ERASE_GROUP_DEF 0", &[(175, 0)], Refused("by the CSD")),
    ("ERASE_GROUP_DEF ff", &[(175, 0xff)], Erased),
    (
        "HC_ERASE_GRP_SIZE 0",
        &[(224, 0)],
        Refused("HC_ERASE_GRP_SIZE is 0"),
    ),
    ("HC_ERASE_GRP_SIZE 2", &[(224, 2)], Refused("by EXT_CSD")),
    (
        "HC_ERASE_GRP_SIZE ff",
        &[(224, 0xff)],
        Refused("by EXT_CSD"),
    ),
    (
        "both of the group 0",
        &[(175, 0), (224, 0)],
        Refused("by the CSD"),
    ),
    ("ERASE_TIMEOUT_MULT 0", &[(223, 0)], Erased),
    ("ERASE_TIMEOUT_MULT ff", &[(223, 0xff)], Erased),
    ("SEC_ERASE_MULT 0", &[(230, 0)], Erased),
    ("SEC_ERASE_MULT ff", &[(230, 0xff)], Erased),
    ("SEC_TRIM_MULT 0", &[(229, 0)], Erased),
    ("SEC_TRIM_MULT ff", &[(229, 0xff)], Erased),
    ("TRIM_MULT 0", &[(232, 0)], Erased),
    ("TRIM_MULT ff", &[(232, 0xff)], Erased),
    (
        "all multipliers ff",
        &[(223, 0xff), (229, 0xff), (230, 0xff), (232, 0xff)],
        Erased,
    ),
    ("SEC_FEATURE_SUPPORT 0", &[(231, 0)], Erased),
    (
        "SEC_FEATURE_SUPPORT ff",
        &[(231, 0xff)],
        Found(Code::DeviceFailed),
    ),
    (
        "SEC_FEATURE_SUPPORT trim",
        &[(231, 0x15)],
        Found(Code::DeviceFailed),
    ),
    (
        "SEC_FEATURE_SUPPORT sanitize",
        &[(231, 0x45)],
        Found(Code::DeviceFailed),
    ),
    ("ERASED_MEM_CONT 1", &[(181, 1)], Found(Code::NotVerified)),
    ("ERASED_MEM_CONT fe", &[(181, 0xfe)], Erased),
    (
        "CACHE_SIZE 0",
        &[(249, 0), (250, 0), (251, 0), (252, 0)],
        Erased,
    ),
    (
        "CACHE_SIZE ff",
        &[(249, 0xff), (250, 0xff), (251, 0xff), (252, 0xff)],
        Erased,
    ),
    ("CACHE_CTRL 0", &[(33, 0)], Erased),
    ("CACHE_CTRL ff", &[(33, 0xff)], Erased),
    (
        "HC_WP_GRP_SIZE, REL_WR_SEC_C ff",
        &[(221, 0xff), (222, 0xff)],
        Erased,
    ),
];

/// What becomes of the register on its way.
type Change = Arc<dyn Fn(&mut [u8; 512]) + Send + Sync>;

/// A machine on which CMD8 brings something else.
struct Garbled {
    machine: Machine,
    change: Change,
}

struct GarbledMmc {
    mmc: Box<dyn Mmc>,
    change: Change,
}

impl Mmc for GarbledMmc {
    fn cmd(&self, command: &mut Command) -> Result<(), Errno> {
        self.mmc.cmd(command)
    }
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno> {
        self.mmc.multi_cmd(commands)
    }
    fn ext_csd(&self) -> Result<[u8; 512], Errno> {
        let mut register = self.mmc.ext_csd()?;
        (self.change)(&mut register);
        Ok(register)
    }
}

impl Storage for Garbled {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        Ok(Box::new(GarbledMmc {
            mmc: self.machine.open_mmc(disk)?,
            change: Arc::clone(&self.change),
        }))
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        self.machine.open_block(name, access)
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        self.machine.sleep(time);
    }
}

/// A card whose CSD has other groups than its EXT_CSD.
fn card() -> Config {
    Config {
        csd: Csd {
            erase_grp_mult: 15,
            ..Csd::default()
        },
        ..plain_fields().into()
    }
}

/// One row; an error says what was otherwise.
fn judge(
    verdict: Verdict,
    change: impl Fn(&mut [u8; 512]) + Send + Sync + 'static,
) -> Result<(), String> {
    let machine = machine(card());
    let storage = Garbled {
        machine: machine.clone(),
        change: Arc::new(change),
    };
    machine.reset_logs();
    let result = Arc::new(Reset::new(Arc::new(storage))).run(&Request::new(&["ragged"]), None);
    match (verdict, result) {
        (Erased, Ok(_)) => expect_erased_exactly(&machine, &["ragged"]),
        (Refused(text), Err(failure)) => {
            let named = failure.code == Code::DeviceFailed && failure.step == "plan";
            if !named || !failure.message.contains(text) || failure.remedy.is_empty() {
                return Err(format!("{failure:?}"));
            }
            expect_untouched(&machine);
        }
        (Found(code), Err(failure)) if failure.code == code => outside_is_whole(&machine)?,
        (_, Ok(_)) => return Err("success was said".to_owned()),
        (_, Err(failure)) => return Err(format!("{failure:?}")),
    }
    Ok(())
}

fn outside_is_whole(machine: &Machine) -> Result<(), String> {
    let ragged = place("ragged");
    let end = ragged.start + ragged.sectors;
    let capacity = machine.with_card(|card| card.sectors());
    let report = machine
        .report(&[
            NamedRange::new("before", 0, ragged.start),
            NamedRange::new("after", end, capacity - end),
        ])
        .map_err(|e| e.to_string())?;
    match report
        .scan
        .ranges
        .iter()
        .find(|r| r.pattern != r.range.sectors)
    {
        Some(range) => Err(format!("changed: {range:?}")),
        None => Ok(()),
    }
}

fn all() -> Outcome {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut row = |name: &str, verdict: Verdict, result: Result<(), String>| {
        let class = match verdict {
            Refused(_) => "refused",
            Erased => "erased",
            Found(_) => "found",
        };
        match result {
            Ok(()) => *counts.entry(class).or_default() += 1,
            Err(why) => wrong.push(format!("{name}, wanted {verdict:?}: {why}")),
        }
    };
    for byte in [0, 0x55, 0xff] {
        let result = judge(Refused(SENSE), move |register| register.fill(byte));
        row(&format!("every byte {byte:#04x}"), Refused(SENSE), result);
    }
    for (name, bytes, verdict) in ROWS {
        let result = judge(verdict, move |register| {
            for (at, value) in bytes {
                register[*at] = *value;
            }
        });
        row(name, verdict, result);
    }
    println!("registers: {counts:?}");
    if !wrong.is_empty() {
        return Err(format!("{} rows:\n{}", wrong.len(), wrong.join("\n")));
    }
    assert_eq!(counts.values().sum::<u32>() as usize, 3 + ROWS.len());
    assert!(counts.values().all(|count| *count >= 4), "{counts:?}");
    Ok(())
}

/// A card that counts in bytes, and a SEC_COUNT that says it counts in sectors: what is meant for sector
/// n would reach byte n, in somebody else's partition.
fn small() -> Outcome {
    let fields = Fields {
        sectors: 1 << 21,
        ..plain_fields()
    };
    let machine = machine(fields.into());
    let storage = Garbled {
        machine: machine.clone(),
        change: Arc::new(|register| register[215] = 1),
    };
    machine.reset_logs();
    let failure = Arc::new(Reset::new(Arc::new(storage)))
        .run(&Request::new(&["userdata"]), None)
        .err()
        .ok_or("it was erased")?;
    assert_eq!(failure.code, Code::DeviceFailed, "{failure:?}");
    assert!(failure.message.contains("the kernel says"), "{failure:?}");
    expect_untouched(&machine);
    assert!(
        place("userdata").start >= GROUP,
        "the layout has room before it"
    );
    Ok(())
}
