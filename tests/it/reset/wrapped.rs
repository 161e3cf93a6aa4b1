//! A machine with one thing changed: what no card does and what a test must be able to time.

use blockd::device::{Access, Block, Command, Mmc, Storage, Sysfs};
use blockd::units::Bytes;
use emmc::machine::Machine;
use nix::errno::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Called at each pause of a run.
pub type OnSleep = Box<dyn Fn() + Send + Sync>;

/// The machine.
pub struct Wrapped {
    machine: Machine,
    on_sleep: OnSleep,
    fragile: Option<&'static str>,
    fault: Fault,
    calls: Arc<Calls>,
}

/// How often the devices were called, and the call at which the process dies.
#[derive(Default)]
struct Calls {
    made: AtomicU64,
    last: Option<u64>,
}

/// What a process that is killed unwinds with; no panic hook sees it.
pub struct Killed;

impl Calls {
    fn count(&self) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if self.last.is_some_and(|last| made > last) {
            std::panic::resume_unwind(Box::new(Killed));
        }
    }
}

/// What is left out: broken variants of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The page caches are not dropped.
    Stale,
    /// Canaries that are still there are not seen.
    Blind,
}

impl Wrapped {
    /// Unchanged.
    pub fn new(machine: &Machine) -> Wrapped {
        Wrapped {
            machine: machine.clone(),
            on_sleep: Box::new(|| {}),
            fragile: None,
            fault: Fault::None,
            calls: Arc::default(),
        }
    }

    /// The process is killed after so many calls of devices: descriptors are closed, nothing else.
    pub fn killed_after(mut self, calls: u64) -> Wrapped {
        self.calls = Arc::new(Calls {
            last: Some(calls),
            ..Calls::default()
        });
        self
    }

    /// Calls of devices so far.
    pub fn calls(&self) -> u64 {
        self.calls.made.load(Ordering::Relaxed)
    }

    /// Leaves something out.
    pub fn leave_out(mut self, fault: Fault) -> Wrapped {
        self.fault = fault;
        self
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
        Ok(Box::new(Raw {
            mmc: self.machine.open_mmc(disk)?,
            calls: Arc::clone(&self.calls),
        }))
    }
    fn open_block(&self, name: &str, access: Access) -> Result<Box<dyn Block>, Errno> {
        let block = self.machine.open_block(name, access)?;
        Ok(Box::new(Changed {
            block,
            fragile: self.fragile == Some(name),
            written: Arc::default(),
            fault: self.fault,
            calls: Arc::clone(&self.calls),
        }))
    }
    fn now(&self) -> Duration {
        self.machine.now()
    }
    fn sleep(&self, time: Duration) {
        (self.on_sleep)();
        self.machine.sleep(time);
    }
}

/// Its raw command path.
struct Raw {
    mmc: Box<dyn Mmc>,
    calls: Arc<Calls>,
}

impl Mmc for Raw {
    fn multi_cmd(&self, commands: &mut [Command]) -> Result<(), Errno> {
        self.calls.count();
        self.mmc.multi_cmd(commands)
    }
    fn cmd(&self, command: &mut Command) -> Result<(), Errno> {
        self.calls.count();
        self.mmc.cmd(command)
    }
    fn ext_csd(&self) -> Result<[u8; 512], Errno> {
        self.calls.count();
        self.mmc.ext_csd()
    }
}

/// A node of it.
struct Changed {
    block: Box<dyn Block>,
    fragile: bool,
    written: Arc<AtomicBool>,
    fault: Fault,
    calls: Arc<Calls>,
}

impl Block for Changed {
    fn read_at(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), Errno> {
        self.calls.count();
        if self.fragile && self.written.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        self.block.read_at(offset, buffer)?;
        if self.fault == Fault::Blind {
            for sector in buffer.chunks_mut(512) {
                if sector.starts_with(b"blockd canary") {
                    sector.fill(0);
                }
            }
        }
        Ok(())
    }
    fn write_at(&self, offset: Bytes, data: &[u8]) -> Result<(), Errno> {
        self.calls.count();
        self.block.write_at(offset, data)?;
        self.written.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn sync(&self) -> Result<(), Errno> {
        self.calls.count();
        self.block.sync()
    }
    fn discard(&self, offset: Bytes, length: Bytes, secure: bool) -> Result<(), Errno> {
        self.calls.count();
        self.block.discard(offset, length, secure)
    }
    fn flush_buffers(&self) -> Result<(), Errno> {
        self.calls.count();
        if self.fault == Fault::Stale {
            return Ok(());
        }
        self.block.flush_buffers()
    }
    fn read_only(&self) -> Result<bool, Errno> {
        self.block.read_only()
    }
    fn size(&self) -> Result<Bytes, Errno> {
        self.block.size()
    }
    fn logical_block_size(&self) -> Result<u32, Errno> {
        self.block.logical_block_size()
    }
}
