//! The server as a client sees it, without QEMU: the protocol, the controller's registers,
//! DMA, the interrupt, several clients, the end.
mod common;
use common::SEED;
use emmc::card::{argument, Card, Config, Fields, Timing};
use emmc::server::Server;
use emmc::store::{MemStore, Pattern, SECTOR};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Where the client maps its memory.
const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 1 << 20;
const BAR: u32 = 0;
const CONFIG: u32 = 7;

/// A vfio-user client with 1 MiB of memory and an interrupt.
struct Client {
    stream: UnixStream,
    memory: File,
    interrupt: File,
    id: u16,
}

fn words(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_le_bytes()).collect()
}

impl Client {
    fn connect(socket: &Path) -> Client {
        let memory = memfd_create("ram", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&memory, RAM_LEN).expect("size");
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut client = Client {
            stream: UnixStream::connect(socket).expect("connect"),
            memory: memory.into(),
            interrupt: interrupt.expect("eventfd").into(),
            id: 0,
        };
        client
            .stream
            .set_read_timeout(Some(PATIENCE))
            .expect("timeout");
        let mut version = words(&[0]);
        version.extend(b"{\"capabilities\":{}}\0");
        let reply = client.call(1, &version, None).expect("VERSION");
        assert!(reply.ends_with(b"}\0"));
        let mut map = words(&[32, 3]);
        for field in [0, RAM, RAM_LEN] {
            map.extend(field.to_le_bytes());
        }
        let fd = client.memory.as_fd().try_clone_to_owned().expect("dup");
        client.call(2, &map, Some(fd)).expect("DMA_MAP");
        let fd = client.interrupt.as_fd().try_clone_to_owned().expect("dup");
        client
            .call(8, &words(&[20, 0x24, 0, 0, 1]), Some(fd))
            .expect("SET_IRQS");
        client
    }

    /// Sends a command and returns the payload of its reply, or its errno.
    fn call(&mut self, command: u16, payload: &[u8], fd: Option<OwnedFd>) -> Result<Vec<u8>, u32> {
        self.send(command, payload, fd, 0);
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).expect("reply");
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        assert_eq!(word(0), u32::from(self.id) | u32::from(command) << 16);
        let mut reply = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut reply).expect("payload");
        assert_eq!(word(8) & 0xf, 1, "type");
        match word(8) & 0x20 {
            0 => Ok(reply),
            _ => Err(word(12)),
        }
    }

    fn send(&mut self, command: u16, payload: &[u8], fd: Option<OwnedFd>, flags: u32) {
        self.id += 1;
        let mut message = Vec::new();
        message.extend(self.id.to_le_bytes());
        message.extend(command.to_le_bytes());
        message.extend((16 + payload.len() as u32).to_le_bytes());
        message.extend(words(&[flags, 0]));
        message.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        // the header in two pieces: a server must not rely on one read
        let (a, b) = message.split_at(7);
        let flags = SendFlags::empty();
        let sent = sendmsg(&self.stream, &[IoSlice::new(a)], &mut control, flags);
        assert_eq!(sent, Ok(a.len()));
        self.stream.write_all(b).expect("send");
    }

    fn get(&mut self, region: u32, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let mut payload = offset.to_le_bytes().to_vec();
        payload.extend(words(&[region, len]));
        let reply = self.call(9, &payload, None)?;
        assert_eq!(reply.len(), 16 + len as usize);
        Ok(reply[16..].to_vec())
    }

    fn put(&mut self, region: u32, offset: u64, data: &[u8]) {
        let mut payload = offset.to_le_bytes().to_vec();
        payload.extend(words(&[region, data.len() as u32]));
        payload.extend(data);
        if self.id.is_multiple_of(2) {
            self.send(10, &payload, None, 1 << 4); // posted, as QEMU does
        } else {
            self.call(10, &payload, None).expect("REGION_WRITE");
        }
    }

    fn reg(&mut self, offset: u64) -> u32 {
        let b = self.get(BAR, offset, 4).expect("register");
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    fn set(&mut self, offset: u64, value: u32) {
        self.put(BAR, offset, &value.to_le_bytes());
    }

    /// Waits for an interrupt bit and clears it; panics on an error interrupt.
    fn await_int(&mut self, bit: u32) {
        for _ in 0..20_000 {
            let status = self.reg(0x30);
            assert_eq!(status >> 16, 0, "interrupt status {status:#x}");
            if status & bit != 0 {
                return self.set(0x30, bit);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no interrupt {bit:#x}");
    }

    /// A command without data: response type 0 none, 1 R2, 2 R1, 3 R1b.
    fn cmd(&mut self, index: u32, argument: u32, kind: u32) -> u32 {
        self.set(0x08, argument);
        self.set(0x0c, (index << 8 | kind) << 16);
        self.await_int(1);
        if kind == 3 {
            self.await_int(2);
        }
        self.reg(0x10)
    }

    /// Turns power and interrupts on and brings the card to transfer state.
    fn init(&mut self) {
        self.set(0x34, u32::MAX); // status enable
        self.set(0x38, u32::MAX); // signal enable
        self.put(BAR, 0x29, &[0x0f]); // power on, 3.3 V
        self.put(BAR, 0x2e, &[0x0e]); // longest time-out
        self.put(BAR, 0x28, &[0x10]); // ADMA2
        self.cmd(0, 0, 0);
        let ocr = self.cmd(1, 0x40ff_8080, 2);
        assert_eq!(ocr, 0xc0ff_8080);
        self.cmd(2, 0, 1);
        assert_eq!(self.reg(0x1c), 0x00fe_0142, "CID bits 127:104");
        self.cmd(3, 1 << 16, 2);
        self.cmd(7, 1 << 16, 2);
        self.cmd(6, 0x03af_0101, 3);
        self.cmd(6, 0x0321_0101, 3);
    }

    /// CMD18 or CMD25 with Auto CMD23 over a table of two descriptors; data at RAM + 4096.
    fn transfer(&mut self, index: u32, sector: u32, sectors: u32) {
        let half = sectors * SECTOR as u32 / 2;
        for (i, attributes) in [(0u32, 0x21u32), (1, 0x23)] {
            let address = RAM as u32 + 4096 + i * half;
            let d = words(&[attributes | half << 16, address]);
            self.memory.write_all_at(&d, u64::from(i) * 8).expect("ram");
        }
        self.set(0x58, RAM as u32);
        self.set(0x00, sectors);
        self.set(0x04, SECTOR as u32 | sectors << 16);
        self.set(0x08, sector);
        let read = u32::from(index == 18) << 4;
        let mode = 1 | 2 | 2 << 2 | read | 1 << 5;
        self.set(0x0c, mode | (index << 8 | 0x22) << 16);
        self.await_int(1);
        self.await_int(2);
    }

    fn data(&mut self, sectors: usize) -> Vec<u8> {
        let mut data = vec![0; sectors * SECTOR];
        self.memory.read_exact_at(&mut data, 4096).expect("ram");
        data
    }

    /// Interrupts since the last call.
    fn interrupts(&mut self) -> u64 {
        let mut count = [0; 8];
        match self.interrupt.read_exact(&mut count) {
            Ok(()) => u64::from_ne_bytes(count),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => panic!("eventfd: {e}"),
        }
    }
}

fn card(timing: Timing) -> Card {
    let fields = Fields::default();
    let pattern = Pattern { seed: SEED };
    let store = MemStore::with_pattern(fields.sectors.into(), pattern);
    let config = Config {
        timing,
        ..fields.into()
    };
    Card::new(config, Box::new(store)).expect("card")
}

#[test]
fn a_client_drives_the_card() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("vfu.sock");
    std::fs::write(&socket, "stale").expect("stale file");
    let timing = Timing {
        erase_us: 20_000,
        ..Timing::zero()
    };
    let server = Server::start(card(timing), &socket).expect("server");
    assert!(!server.connected());
    let mut c = Client::connect(&socket);
    assert!(server.wait_clients(1, PATIENCE) && server.connected());

    // what QEMU asks at start
    let info = c.call(4, &words(&[16, 0, 0, 0]), None).expect("GET_INFO");
    assert_eq!(info, words(&[16, 3, 9, 5]));
    for (index, size, flags) in [(BAR, 256u32, 3), (1, 0, 0), (CONFIG, 256, 3)] {
        let ask = words(&[32, 0, index, 0, 0, 0, 0, 0]);
        let info = c.call(5, &ask, None).expect("GET_REGION_INFO");
        assert_eq!(info, words(&[32, flags, index, 0, size, 0, 0, 0]));
    }
    for (index, count, flags) in [(0, 1, 7), (1, 0, 0)] {
        let info = c.call(7, &words(&[16, 0, index, 0]), None);
        assert_eq!(info, Ok(words(&[16, flags, index, count])));
    }
    let id = c.get(CONFIG, 0, 12).expect("config");
    assert_eq!(id[..4], [0x36, 0x1b, 0x07, 0x00]);
    assert_eq!(id[9..], [0x01, 0x05, 0x08]);
    // BAR sizing: only the bits above 256 bytes stick
    c.put(CONFIG, 0x10, &[0xff; 4]);
    assert_eq!(c.get(CONFIG, 0x10, 4), Ok(vec![0, 0xff, 0xff, 0xff]));
    // refused, and the stream goes on
    assert!(c.get(BAR, 255, 2).is_err());
    assert!(c.get(3, 0, 4).is_err());
    assert!(c.call(11, &[0; 16], None).is_err());
    assert!(c.call(2, &[0; 3], None).is_err());

    c.init();
    c.transfer(18, 100, 4);
    let pattern = Pattern { seed: SEED };
    let want: Vec<u8> = (100..104).flat_map(|s| pattern.sector(s)).collect();
    assert!(c.data(4) == want, "CMD18 by ADMA");
    c.memory.write_all_at(&[9; 2048], 4096).expect("ram");
    c.transfer(25, 2000, 4);
    assert_eq!(server.with_card(|card| card.dirty_sectors(0..4096)), 4);
    c.cmd(6, 0x0320_0101, 3);
    assert_eq!(server.with_card(|card| card.dirty_lines()), 0);

    // a busy erase: interrupt at its end, modelled time in the log
    server.with_card(|card| card.log.reset());
    c.cmd(35, 1024, 2);
    c.cmd(36, 2047, 2);
    c.interrupts();
    c.call(8, &words(&[20, 0x11, 0, 0, 1]), None)
        .expect("UNMASK");
    c.cmd(38, argument::SECURE_ERASE, 3);
    assert!(c.interrupts() > 0);
    let (busy, erases) = server.with_card(|card| {
        let erases = card.log.erases(argument::SECURE_ERASE);
        (card.log.busy(), erases)
    });
    assert_eq!(busy, Duration::from_millis(20));
    assert_eq!((erases.commands, erases.sectors), (1, 1024));
    c.transfer(18, 2000, 4);
    assert!(c.data(4).iter().all(|b| *b == 0));

    // the line stays high until the driver clears the cause: an unmask fires again
    c.set(0x08, 1 << 16);
    c.set(0x0c, (13 << 8 | 2) << 16);
    let unmask = words(&[20, 0x11, 0, 0, 1]);
    c.call(8, &unmask, None).expect("UNMASK");
    c.interrupts();
    c.call(8, &unmask, None).expect("UNMASK");
    assert_eq!(c.interrupts(), 1);
    c.set(0x30, u32::MAX);
    c.call(8, &unmask, None).expect("UNMASK");
    assert_eq!(c.interrupts(), 0);
    // what the status enable register masks is not even latched
    c.set(0x34, 0);
    c.set(0x0c, (13 << 8 | 2) << 16);
    assert_eq!(c.reg(0x30), 0);
    c.set(0x34, u32::MAX);

    // memory that is gone is an ADMA error
    let mut unmap = words(&[24, 0]);
    unmap.extend(RAM.to_le_bytes());
    unmap.extend(RAM_LEN.to_le_bytes());
    c.call(3, &unmap, None).expect("DMA_UNMAP");
    c.set(0x08, 0);
    c.set(0x0c, 0x33 | (18 << 8 | 0x22) << 16);
    let mut status = 0;
    for _ in 0..1000 {
        status |= c.reg(0x30);
    }
    assert_eq!(status >> 16, 1 << 9, "ADMA error");

    drop(c);
    assert!(server.wait_disconnected(PATIENCE));
    let card = server.stop();
    assert!(!card.powered());
    assert!(!socket.exists());
}

#[test]
fn the_medium_outlives_its_clients_and_the_cache_does_not() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("vfu.sock");
    let server = Server::start(card(Timing::zero()), &socket).expect("server");
    let mut c = Client::connect(&socket);
    c.init();
    c.memory.write_all_at(&[9; 4096], 4096).expect("ram");
    c.transfer(25, 0, 2);
    c.cmd(6, 0x0320_0101, 3);
    c.transfer(25, 8, 2); // not flushed
    drop(c);
    assert!(server.wait_disconnected(PATIENCE));
    assert_eq!(server.clients(), 1);

    let mut c = Client::connect(&socket);
    assert!(server.wait_clients(2, PATIENCE));
    c.init();
    c.transfer(18, 0, 2);
    assert!(c.data(2).iter().all(|b| *b == 9));
    c.transfer(18, 8, 2);
    assert!(Pattern { seed: SEED }.matches(8, &c.data(2)[..SECTOR]));

    // a power cut under the client: no response, until the host turns the power off and on
    server.power_cut();
    c.set(0x08, 1 << 16);
    c.set(0x0c, (13 << 8 | 2) << 16);
    let status = c.reg(0x30);
    assert_eq!(status >> 16, 1, "command time-out");
    c.set(0x30, u32::MAX);
    c.put(BAR, 0x29, &[0]);
    c.init();

    // stopped with a client on the line
    let card = server.stop();
    assert_eq!(card.log.counters.lost_lines, 1);
    assert!(matches!(c.stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn dropping_a_server_ends_it() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("vfu.sock");
    let server = Server::start(card(Timing::zero()), &socket).expect("server");
    assert!(!server.wait_clients(1, Duration::ZERO));
    assert!(server.wait_disconnected(Duration::ZERO));
    drop(server);
    assert!(!socket.exists());
}

#[test]
fn the_controller_times_a_busy_card_out() {
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("vfu.sock");
    let timing = Timing {
        erase_us: 60_000_000,
        ..Timing::zero()
    };
    let server = Server::start(card(timing), &socket).expect("server");
    let mut c = Client::connect(&socket);
    c.init();
    c.put(BAR, 0x2e, &[0]); // 2^13 cycles, 157 µs
    c.cmd(35, 0, 2);
    c.cmd(36, 0, 2);
    c.set(0x08, 0);
    c.set(0x0c, (38 << 8 | 3) << 16);
    let mut status = 0;
    while status >> 16 == 0 {
        status = c.reg(0x30);
    }
    assert_eq!(status >> 16, 1 << 4, "data time-out");
    assert_eq!(c.reg(0x24) >> 20 & 1, 0, "DAT0 is still low");
    assert!(server.with_card(|card| card.busy_until().is_some()));
}
