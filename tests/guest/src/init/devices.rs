//! Block device nodes and links as ueventd makes them.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    bind, recv, setsockopt, socket, sockopt, AddressFamily, MsgFlags, NetlinkAddr, SockFlag,
    SockProtocol, SockType,
};
use nix::sys::stat::{makedev, mknod, Mode, SFlag};
use std::os::fd::{AsRawFd, OwnedFd};

use super::log;

/// The multicast group on which the kernel itself sends uevents.
const KERNEL_GROUP: u32 = 1;
/// Room for a burst of events, bytes (ueventd uses 16 MiB).
const RECEIVE_BUFFER: usize = 16 << 20;
/// Longest uevent (the kernel's UEVENT_BUFFER_SIZE is 2048).
const LONGEST_EVENT: usize = 8192;

/// The kernel's uevents.
#[derive(Debug)]
pub struct Uevents(OwnedFd);

impl Uevents {
    /// Opens the socket; events from now on are kept in it.
    pub fn open() -> nix::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkKObjectUEvent,
        )?;
        setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self(fd))
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Handles all events that wait.
    pub fn handle(&self) {
        let mut buffer = vec![0; LONGEST_EVENT];
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => handle_event(&buffer[..length]),
                Err(Errno::EAGAIN) => return,
                // Events were lost: look at everything again.
                Err(Errno::ENOBUFS) => coldboot(),
                Err(e) => return log::error(&format!("uevent socket: {e}")),
            }
        }
    }
}

fn handle_event(event: &[u8]) {
    let text = String::from_utf8_lossy(event);
    let fields: Vec<_> = text.split('\0').collect();
    if value(&fields, "SUBSYSTEM") != Some("block") {
        return;
    }
    let Some(name) = value(&fields, "DEVNAME") else {
        return;
    };
    match value(&fields, "ACTION") {
        Some("add" | "change") => report(name, add(name, &fields)),
        Some("remove") => report(name, remove(name, value(&fields, "PARTNAME"))),
        _ => {}
    }
}

/// The value of a field `KEY=VALUE`.
fn value<'a>(fields: &[&'a str], key: &str) -> Option<&'a str> {
    fields
        .iter()
        .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
}

/// Makes the nodes of all block devices that exist now.
pub fn coldboot() {
    let Ok(entries) = fs::read_dir("/sys/class/block") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("/sys/class/block/{name}/uevent");
        let Ok(uevent) = fs::read_to_string(path) else {
            continue;
        };
        let fields: Vec<_> = uevent.lines().collect();
        report(&name, add(&name, &fields));
    }
}

fn report(name: &str, result: io::Result<()>) {
    if let Err(e) = result {
        log::error(&format!("device {name}: {e}"));
    }
}

/// Makes /dev/block/NAME and, for a partition with a name, /dev/block/by-name/PARTNAME.
fn add(name: &str, fields: &[&str]) -> io::Result<()> {
    let number = |key| value(fields, key).and_then(|v| v.parse().ok()).unwrap_or(0);
    let node = Path::new("/dev/block").join(name);
    if !node.exists() {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let device = makedev(number("MAJOR"), number("MINOR"));
        mknod(&node, SFlag::S_IFBLK, mode, device)?;
    }
    if let Some(partition) = value(fields, "PARTNAME") {
        let link = Path::new("/dev/block/by-name").join(partition);
        if !link.exists() {
            symlink(&node, link)?;
        }
    }
    Ok(())
}

fn remove(name: &str, partition: Option<&str>) -> io::Result<()> {
    let ignore_absent = |result: io::Result<()>| match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    ignore_absent(fs::remove_file(Path::new("/dev/block").join(name)))?;
    match partition {
        Some(partition) => ignore_absent(fs::remove_file(
            Path::new("/dev/block/by-name").join(partition),
        )),
        None => Ok(()),
    }
}

/// Makes /dev/virtio-ports/NAME for every named virtio-serial port (udev's links).
pub fn link_virtio_ports() -> io::Result<()> {
    fs::create_dir_all("/dev/virtio-ports")?;
    let Ok(entries) = fs::read_dir("/sys/class/virtio-ports") else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = fs::read_to_string(entry.path().join("name"))?;
        let link = Path::new("/dev/virtio-ports").join(name.trim_end());
        symlink(Path::new("/dev").join(entry.file_name()), link)?;
    }
    Ok(())
}
