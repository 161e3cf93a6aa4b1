//! A machine with one thing changed: what no card does and what a test must be able to time.

use blockd::device::{Access, Block, Mmc, Storage, Sysfs};
use blockd::units::Bytes;
use emmc::machine::Machine;
use nix::errno::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Called at each pause of a run.
pub type OnSleep = Box<dyn Fn() + Send + Sync>;

/// The machine.
pub struct Wrapped {
    machine: Machine,
    on_sleep: OnSleep,
    fragile: Option<&'static str>,
}

impl Wrapped {
    /// Unchanged.
    pub fn new(machine: &Machine) -> Wrapped {
        Wrapped {
            machine: machine.clone(),
            on_sleep: Box::new(|| {}),
            fragile: None,
        }
    }

    /// Calls `act` whenever the run waits for the card.
    pub fn on_sleep(mut self, act: OnSleep) -> Wrapped {
        self.on_sleep = act;
        self
    }

    /// The node `name` can be written once, and nothing of it be read after that.
    pub fn fragile(mut self, name: &'static str) -> Wrapped {
        self.fragile = Some(name);
        self
    }
}

impl Storage for Wrapped {
    fn sysfs(&self) -> &dyn Sysfs {
        self.machine.sysfs()
    }
    fn open_mmc(&self, disk: &str) -> Result<Box<dyn Mmc>, Errno> {
        self.machine.open_mmc(disk)
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        let block = self.machine.open_block(name, access)?;
        Ok(if self.fragile == Some(name) {
            Box::new(Fragile(block, Arc::default()))
        } else {
            block
        })
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        (self.on_sleep)();
        self.machine.sleep(time);
    }
}

/// See [`Wrapped::fragile`].
struct Fragile(Box<dyn Block>, Arc<AtomicBool>);

impl Block for Fragile {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        self.0.write_at(offset, data)?;
        self.1.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn sync(&self) -> Result<(), Errno> {
        self.0.sync()
    }
    fn discard(&self, offset: Bytes, length: Bytes, secure: bool) -> Result<(), Errno> {
        self.0.discard(offset, length, secure)
    }
    fn flush_buffers(&self) -> Result<(), Errno> {
        self.0.flush_buffers()
    }
    fn read_only(&self) -> Result<bool, Errno> {
        self.0.read_only()
    }
    fn size(&self) -> Result<Bytes, Errno> {
        self.0.size()
    }
    fn logical_block_size(&self) -> Result<u32, Errno> {
        self.0.logical_block_size()
    }
}
