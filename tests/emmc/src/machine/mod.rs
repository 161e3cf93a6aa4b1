//! A machine with one eMMC in virtual time: the product's [`Storage`] over a [`Card`], with
//! what the Linux MMC block driver does in between.
//!
//! As in Linux: MMC_IOC_MULTI_CMD is one uninterrupted sequence that ends at its first failing
//! command; R1b commands are waited for by the host controller or by CMD13 polls, whose OR
//! replaces the response; a command without response is ETIMEDOUT; error bits in a response
//! are no errno. The raw path asks for CAP_SYS_RAWIO and a whole disk and for nothing else.
//! Partition and disk have page caches of their own; O_DIRECT writes dirty pages of its own
//! node and range back first; the last close writes back and drops.
//!
//! Simpler than Linux: no retries and no card reset after an I/O error (EIO at once), no
//! read-ahead, no background write-back (see [`Buffered::write_back`]), no overhead per command:
//! time is what the card's model and the kernel's own sleeps take.
mod bus;
mod handles;
mod journal;
mod kernel;
mod sysfs;
mod tree;

pub use bus::Cut;
pub use handles::Buffered;
pub use journal::{Calls, Event, Journal};
pub use kernel::Kernel;
pub use sysfs::FakeSysfs;
pub use tree::Partition;

use crate::card::{Card, Log};
use crate::report::Report;
use crate::store::NamedRange;
use blockd::device::{Access, Block, Mmc, Storage, Sysfs};
use bus::{Bus, Node};
use handles::{Descriptor, RawCard};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Name of the disk.
pub const DISK: &str = "mmcblk0";

/// How long an SDHCI with a 52 MHz time-out clock can wait for DAT0: 2^27 cycles.
pub const MAX_BUSY: Duration = Duration::from_millis(2581);

struct Shared {
    bus: Mutex<Bus>,
    sysfs: FakeSysfs,
}

impl Shared {
    fn bus(&self) -> MutexGuard<'_, Bus> {
        self.bus.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The machine. Clones share everything.
#[derive(Clone)]
pub struct Machine(Arc<Shared>);

impl Machine {
    /// Boots with `card` as `mmcblk0` and `partitions` as `mmcblk0p1` and so on. The card's
    /// log starts after the identification.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn new(card: Card, partitions: &[Partition]) -> Result<Machine, Errno> {
        let mut nodes = BTreeMap::new();
        nodes.insert(DISK.to_owned(), Node::new(0, card.sectors(), None));
        for (number, p) in (1u32..).zip(partitions) {
            let node = Node::new(p.start, p.sectors, Some(number));
            nodes.insert(format!("{DISK}p{number}"), node);
        }
        let mut bus = Bus {
            card,
            now: Duration::ZERO,
            kernel: Kernel::default(),
            write_back: false,
            raw_io: true,
            max_busy: MAX_BUSY,
            cut: None,
            nodes,
            journal: Journal::default(),
        };
        bus.identify()?;
        bus.card.log.reset();
        let sysfs = FakeSysfs::default();
        bus.write_back = tree::populate(&sysfs, &bus.card, partitions);
        let bus = Mutex::new(bus);
        Ok(Machine(Arc::new(Shared { bus, sysfs })))
    }

    /// /sys and /proc, for a test that changes them.
    pub fn files(&self) -> &FakeSysfs {
        &self.0.sysfs
    }

    /// Chooses another kernel; the default is the newest.
    pub fn set_kernel(&self, kernel: Kernel) {
        self.0.bus().kernel = kernel;
    }

    /// Takes CAP_SYS_RAWIO away, or gives it back.
    pub fn set_raw_io(&self, allowed: bool) {
        self.0.bus().raw_io = allowed;
    }

    /// What root would do with queue/write_cache.
    pub fn set_write_back(&self, write_back: bool) {
        self.0.bus().write_back = write_back;
        let text = tree::write_cache(write_back);
        let path = format!("/sys/block/{DISK}/queue/write_cache");
        self.0.sysfs.set(&path, text);
    }

    /// BLKROSET.
    ///
    /// # Errors
    /// ENOENT.
    pub fn set_read_only(&self, node: &str, read_only: bool) -> Result<(), Errno> {
        self.0.bus().node(node)?.read_only = read_only;
        let path = format!("/sys/class/block/{node}/ro");
        self.0.sysfs.set(&path, u8::from(read_only));
        Ok(())
    }

    /// Looks at the card, or changes it.
    pub fn with_card<R>(&self, f: impl FnOnce(&mut Card) -> R) -> R {
        f(&mut self.0.bus().card)
    }

    /// A copy of the card's log.
    pub fn log(&self) -> Log {
        self.0.bus().card.log.clone()
    }

    /// A copy of the journal.
    pub fn journal(&self) -> Journal {
        self.0.bus().journal.clone()
    }

    /// Forgets the card's log and the journal.
    pub fn reset_logs(&self) {
        let mut bus = self.0.bus();
        bus.card.log.reset();
        bus.journal = Journal::default();
    }

    /// Counters, modelled time and scan.
    ///
    /// # Errors
    /// As [`Report::new`].
    pub fn report(&self, ranges: &[NamedRange]) -> io::Result<Report> {
        Report::new(&self.0.bus().card, ranges, false)
    }

    /// Plans a power cut. Every access fails from then on, until [`Machine::reboot`].
    pub fn cut_power(&self, cut: Cut) {
        self.0.bus().cut = Some(cut);
    }

    /// True unless the power has gone.
    pub fn powered(&self) -> bool {
        self.0.bus().card.powered()
    }

    /// Starts again after a power cut (or cuts the power now): RAM is lost, the medium stays.
    /// Descriptors from before must be dropped first.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn reboot(&self) -> Result<(), Errno> {
        let mut bus = self.0.bus();
        bus.cut = None;
        let now = bus.now;
        bus.card.power_cut(now);
        bus.forget_ram();
        bus.identify()
    }

    /// Opens a node as a buffered user does.
    ///
    /// # Errors
    /// ENOENT.
    pub fn open_buffered(&self, node: &str) -> Result<Buffered, Errno> {
        self.0.bus().node(node)?.opens += 1;
        Ok(Buffered {
            shared: self.0.clone(),
            node: node.to_owned(),
        })
    }

    /// Mounts a node: claimed, and listed in /proc/self/mountinfo.
    ///
    /// # Errors
    /// ENOENT, EBUSY.
    pub fn mount(&self, node: &str, place: &str) -> Result<(), Errno> {
        self.hold(node, "mount")?;
        let device = self.0.sysfs.read(&format!("/sys/class/block/{node}/dev"));
        let device = device.map_err(|_| Errno::ENOENT)?;
        let line =
            format!("36 25 {device} / {place} rw,relatime shared:1 - ext4 /dev/block/{node} rw");
        self.0.sysfs.append("/proc/self/mountinfo", &line);
        Ok(())
    }

    /// Swap on a node: claimed, and listed in /proc/swaps.
    ///
    /// # Errors
    /// ENOENT, EBUSY.
    pub fn swap_on(&self, node: &str) -> Result<(), Errno> {
        self.hold(node, "swap")?;
        let line = format!("/dev/block/{node} partition 1024 0 -2");
        self.0.sysfs.append("/proc/swaps", &line);
        Ok(())
    }

    /// A device-mapper device `dm` of that name on a node: claimed, and listed in holders/.
    ///
    /// # Errors
    /// ENOENT, EBUSY.
    pub fn map_on(&self, node: &str, dm: &str, name: &str) -> Result<(), Errno> {
        self.hold(node, "device-mapper")?;
        let sysfs = &self.0.sysfs;
        sysfs.link(dm, &format!("/sys/block/{dm}"));
        sysfs.set(&format!("/sys/block/{dm}/dm/name"), name);
        sysfs.set(&format!("/sys/class/block/{node}/holders/{dm}"), "");
        Ok(())
    }

    /// A loop device on a node: in use, but not claimed.
    ///
    /// # Errors
    /// ENOENT.
    pub fn loop_on(&self, node: &str, device: &str) -> Result<(), Errno> {
        self.0.bus().node(node)?.opens += 1;
        let sysfs = &self.0.sysfs;
        sysfs.link(device, &format!("/sys/block/{device}"));
        let path = format!("/sys/block/{device}/loop/backing_file");
        sysfs.set(&path, format!("/dev/block/{node}"));
        Ok(())
    }

    fn hold(&self, node: &str, holder: &str) -> Result<(), Errno> {
        let mut bus = self.0.bus();
        bus.claim(node, holder)?;
        bus.node(node)?.opens += 1;
        Ok(())
    }
}

impl Storage for Machine {
    fn sysfs(&self) -> &dyn Sysfs {
        &self.0.sysfs
    }

    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.0.bus().node(disk)?;
        Ok(Box::new(RawCard {
            shared: self.0.clone(),
            node: disk.to_owned(),
        }))
    }

    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        let mut bus = self.0.bus();
        let claim = matches!(access, Access::Claim | Access::Update);
        let result = match claim {
            true => bus.claim(name, "O_EXCL"),
            false => bus.node(name).map(drop),
        };
        bus.journal.add(Event::Open {
            node: name.to_owned(),
            claim,
            errno: result.err().map_or(0, |e| e as i32),
        });
        result?;
        bus.node(name)?.opens += 1;
        Ok(Box::new(Descriptor {
            shared: self.0.clone(),
            node: name.to_owned(),
            claim,
            fua: access == Access::Update,
        }))
    }

    fn now(&self) -> Duration {
        self.0.bus().now
    }

    fn sleep(&self, time: Duration) {
        self.0.bus().sleep(time);
    }
}
