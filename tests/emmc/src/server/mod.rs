//! The card behind QEMU: `-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":…}}'`
//! together with a shared memory backend for the guest's RAM.
//!
//! One thread serves the socket, one lets time pass. The server takes one client at a time and
//! goes on after it: a client that leaves, in whatever way, is a power cut. The medium stays.
//!
//! Firmware with an SDHCI driver of its own (SeaBIOS) talks to the card before the kernel does;
//! [`Log::reset`](crate::card::Log::reset) lets a test count from a later point.
mod device;

use crate::card::Card;
use crate::sdhci::Sdhci;
use crate::vfio::{self, Device, DmaMap};
use device::PciCard;
use rustix::event::{poll, PollFd, PollFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// State under the one lock.
struct State {
    device: PciCard,
    /// The client; a second handle, to shut it down from outside.
    client: Option<UnixStream>,
    /// Clients so far.
    clients: u64,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    /// The timer has something new to look at.
    timer: Condvar,
    /// A client came or went.
    client: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // a panic in another thread is that thread's failure; join() reports it
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    socket: PathBuf,
    /// Dropped to end the wait for a client.
    wake: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Puts `card` behind a new socket at `socket`. A file that is there is replaced.
    ///
    /// # Errors
    /// Of the socket.
    pub fn start(card: Card, socket: &Path) -> io::Result<Server> {
        Self::start_with(Sdhci::new(card), socket)
    }

    /// The same with a controller made by the caller.
    ///
    /// # Errors
    /// Of the socket.
    pub fn start_with(host: Sdhci, socket: &Path) -> io::Result<Server> {
        match std::fs::remove_file(socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        let (wake, waken) = UnixStream::pair()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                device: PciCard::new(host),
                client: None,
                clients: 0,
                stopping: false,
            }),
            timer: Condvar::new(),
            client: Condvar::new(),
        });
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(run)
        };
        let (a, b) = (shared.clone(), shared.clone());
        let mut server = Server {
            shared,
            socket: socket.to_owned(),
            wake: Some(wake),
            threads: Vec::new(),
        };
        server.threads.push(spawn(
            "emmc-socket",
            Box::new(move || accept(&a, &listener, &waken)),
        )?);
        server
            .threads
            .push(spawn("emmc-timer", Box::new(move || timer(&b)))?);
        Ok(server)
    }

    /// Where QEMU connects.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Looks at the card, or changes it, between two of the guest's accesses.
    pub fn with_card<R>(&self, f: impl FnOnce(&mut Card) -> R) -> R {
        let mut state = self.shared.lock();
        state.device.tick();
        let result = f(&mut state.device.host.card);
        drop(state);
        self.shared.timer.notify_one();
        result
    }

    /// The card's clock.
    pub fn now(&self) -> Duration {
        self.shared.lock().device.now()
    }

    /// Cuts the card's power under the running guest, which sees a card that does not answer
    /// until the host controller turns the power off and on.
    pub fn power_cut(&self) {
        let mut state = self.shared.lock();
        let now = state.device.now();
        state.device.host.card.power_cut(now);
        drop(state);
        self.shared.timer.notify_one();
    }

    /// Clients that have connected so far.
    pub fn clients(&self) -> u64 {
        self.shared.lock().clients
    }

    /// True while a client is connected.
    pub fn connected(&self) -> bool {
        self.shared.lock().client.is_some()
    }

    /// Waits until at least `n` clients have connected since the start; false at the time-out.
    pub fn wait_clients(&self, n: u64, timeout: Duration) -> bool {
        self.wait(timeout, |s| s.clients >= n)
    }

    /// Waits until no client is connected; false at the time-out.
    pub fn wait_disconnected(&self, timeout: Duration) -> bool {
        self.wait(timeout, |s| s.client.is_none())
    }

    fn wait(&self, timeout: Duration, done: impl Fn(&State) -> bool) -> bool {
        let state = self.shared.lock();
        let result = self
            .shared
            .client
            .wait_timeout_while(state, timeout, |s| !done(s));
        let (state, _) = result.unwrap_or_else(|e| e.into_inner());
        done(&state)
    }

    /// Disconnects the client, ends the threads, removes the socket and returns the card,
    /// without power.
    ///
    /// # Panics
    /// If a thread of the server panicked.
    pub fn stop(mut self) -> Card {
        let panicked = self.shutdown();
        assert!(!panicked, "a thread of the card server panicked");
        let shared = self.shared.clone();
        drop(self);
        let Ok(shared) = Arc::try_unwrap(shared) else {
            unreachable!("the threads that shared it have ended");
        };
        let state = shared.state.into_inner();
        let state = state.unwrap_or_else(|e| e.into_inner());
        state.device.host.into_card()
    }

    /// True if a thread panicked.
    fn shutdown(&mut self) -> bool {
        if self.threads.is_empty() {
            return false;
        }
        let mut state = self.shared.lock();
        state.stopping = true;
        if let Some(client) = &state.client {
            // an error means that it has gone already
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.wake = None;
        self.shared.timer.notify_one();
        let results: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        // somebody else may have cleaned up the directory
        let _ = std::fs::remove_file(&self.socket);
        results.iter().any(Result::is_err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Socket thread: one client after the other.
fn accept(shared: &Shared, listener: &UnixListener, waken: &UnixStream) {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(waken, PollFlags::IN),
        ];
        if let Err(e) = poll(&mut fds, None) {
            log::debug!("poll: {e}");
            continue;
        }
        if shared.lock().stopping {
            return;
        }
        let client = listener.accept().and_then(|(stream, _)| {
            let second = stream.try_clone()?;
            Ok((stream, second))
        });
        match client {
            Ok((stream, second)) => client_session(shared, &stream, second),
            Err(e) => log::error!("accept: {e}"),
        }
    }
}

fn client_session(shared: &Shared, stream: &UnixStream, second: UnixStream) {
    let mut state = shared.lock();
    if state.stopping {
        return;
    }
    state.client = Some(second);
    state.clients += 1;
    drop(state);
    shared.client.notify_all();
    match vfio::serve(stream, &mut Locked(shared)) {
        Ok(()) => log::info!("client gone"),
        Err(e) => log::info!("client gone: {e}"),
    }
    let mut state = shared.lock();
    state.device.client_gone();
    state.client = None;
    drop(state);
    shared.client.notify_all();
}

/// Timer thread: ends busy phases and read delays.
fn timer(shared: &Shared) {
    let mut state = shared.lock();
    while !state.stopping {
        let wait = state.device.tick();
        state = match wait {
            Some(wait) => {
                let result = shared.timer.wait_timeout(state, wait);
                result.unwrap_or_else(|e| e.into_inner()).0
            }
            None => shared.timer.wait(state).unwrap_or_else(|e| e.into_inner()),
        };
    }
}

/// The device behind the lock.
struct Locked<'a>(&'a Shared);

impl Locked<'_> {
    fn with<R>(&self, f: impl FnOnce(&mut PciCard) -> R) -> R {
        f(&mut self.0.lock().device)
    }
}

impl Device for Locked<'_> {
    fn bar_len(&self) -> u64 {
        self.with(|d| d.bar_len())
    }
    fn config_len(&self) -> u64 {
        self.with(|d| d.config_len())
    }
    fn bar_read(&mut self, offset: u64, out: &mut [u8]) {
        self.with(|d| d.bar_read(offset, out));
    }
    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        self.with(|d| d.bar_write(offset, data));
        self.0.timer.notify_one();
    }
    fn config_read(&mut self, offset: u64, out: &mut [u8]) {
        self.with(|d| d.config_read(offset, out));
    }
    fn config_write(&mut self, offset: u64, data: &[u8]) {
        self.with(|d| d.config_write(offset, data));
    }
    fn map(&mut self, map: DmaMap, fd: Option<OwnedFd>) -> io::Result<()> {
        self.with(|d| d.map(map, fd))
    }
    fn unmap(&mut self, address: u64, len: u64) {
        self.with(|d| d.unmap(address, len));
    }
    fn unmap_all(&mut self) {
        self.with(|d| d.unmap_all());
    }
    fn set_interrupt(&mut self, eventfd: Option<OwnedFd>) {
        self.with(|d| d.set_interrupt(eventfd));
    }
    fn mask_interrupt(&mut self, masked: bool) {
        self.with(|d| d.mask_interrupt(masked));
    }
    fn reset(&mut self) {
        self.with(|d| d.reset());
    }
}
