//! A machine with two partitions over the pattern.
use super::SEED;
use blockd::device::mmc::Reply;
use blockd::device::{Access, Command, DirectBuffer, Storage};
use blockd::units::Bytes;
use emmc::card::{argument, Card, Config, Fields, Timing};
use emmc::machine::{Machine, Partition, DISK};
use emmc::store::{MemStore, NamedRange, Pattern, SECTOR};
use nix::errno::Errno;
use std::time::Duration;

pub const P1: &str = "mmcblk0p1";
pub const P2: &str = "mmcblk0p2";
/// userdata: 4 MiB from sector 8192.
pub const START: u64 = 8192;
pub const SECTORS: u64 = 8192;

pub fn machine_of(config: Config) -> Machine {
    let sectors = config.ext_csd.sectors();
    let store = MemStore::with_pattern(sectors, Pattern { seed: SEED });
    let card = Card::new(config, Box::new(store)).expect("configuration");
    let table = [
        Partition::new("misc", 2048, 2048),
        Partition::new("userdata", START, SECTORS),
    ];
    Machine::new(card, &table).expect("boot")
}

pub fn machine() -> Machine {
    machine_of(Fields::default().into())
}

pub fn timed(erase: Duration) -> Machine {
    let timing = Timing {
        erase_us: erase.as_micros() as u64,
        ..Timing::zero()
    };
    machine_of(Config {
        timing,
        ..Fields::default().into()
    })
}

/// CMD35/36/38 over userdata.
pub fn sequence(reply: Reply, timeout: Option<Duration>) -> [Command; 3] {
    let last = (START + SECTORS - 1) as u32;
    let mut commands = [
        Command::new(35, START as u32, Reply::R1),
        Command::new(36, last, Reply::R1),
        Command::new(38, argument::SECURE_ERASE, reply),
    ];
    commands[2].timeout = timeout;
    commands
}

pub fn multi(m: &Machine, commands: &mut [Command]) -> Result<(), Errno> {
    m.open_mmc(DISK).expect("card").multi_cmd(commands)
}

/// (still pattern, erased, other) of userdata.
pub fn userdata(m: &Machine) -> (u64, u64, u64) {
    let range = NamedRange::new("userdata", START, SECTORS);
    let report = m.report(&[range]).expect("scan");
    let r = report.scan.range("userdata").expect("range");
    (r.pattern, r.erased, r.other)
}

pub fn read(m: &Machine, node: &str, sector: u64) -> DirectBuffer {
    let block = m.open_block(node, Access::Read).expect("open");
    let mut buffer = DirectBuffer::new(SECTOR);
    let offset = Bytes(sector * SECTOR as u64);
    block.read_at(offset, &mut buffer).expect("read");
    buffer
}
