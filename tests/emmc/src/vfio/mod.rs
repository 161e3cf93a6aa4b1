//! The part of the vfio-user protocol that QEMU needs for a PCI device with one register BAR
//! and INTx: VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION_INFO, GET_IRQ_INFO, SET_IRQS,
//! REGION_READ, REGION_WRITE, RESET. Everything else is answered with ENOTSUP.
mod wire;

use rustix::cmsg_space;
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use wire::{words, Errno, Header, Reader, HEADER};

/// A device as the client sees it.
pub trait Device {
    /// Length of BAR 0.
    fn bar_len(&self) -> u64;
    /// Length of the configuration space.
    fn config_len(&self) -> u64;
    /// Reads registers of BAR 0.
    fn bar_read(&mut self, offset: u64, out: &mut [u8]);
    /// Writes registers of BAR 0.
    fn bar_write(&mut self, offset: u64, data: &[u8]);
    /// Reads the configuration space.
    fn config_read(&mut self, offset: u64, out: &mut [u8]);
    /// Writes the configuration space.
    fn config_write(&mut self, offset: u64, data: &[u8]);
    /// Guest memory appears. Without `fd` it is not accessible (ROM and the like).
    ///
    /// # Errors
    /// If it cannot be mapped.
    fn map(&mut self, map: DmaMap, fd: Option<OwnedFd>) -> io::Result<()>;
    /// Guest memory of a range disappears.
    fn unmap(&mut self, address: u64, len: u64);
    /// All guest memory disappears.
    fn unmap_all(&mut self);
    /// INTx is delivered through this eventfd from now on, or not at all.
    fn set_interrupt(&mut self, eventfd: Option<OwnedFd>);
    /// INTx is masked or unmasked.
    fn mask_interrupt(&mut self, masked: bool);
    /// Device reset.
    fn reset(&mut self);
}

/// A range of guest memory.
#[derive(Clone, Copy, Debug)]
pub struct DmaMap {
    /// Guest physical address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The device may write.
    pub writable: bool,
}

/// Serves one client until it leaves.
///
/// # Errors
/// A message that cannot be parsed or answered. A client that closes its end between two
/// messages is no error.
pub fn serve(stream: &UnixStream, device: &mut dyn Device) -> io::Result<()> {
    while let Some((header, mut fds)) = receive_header(stream)? {
        let size = header.size as usize;
        if !(HEADER..=wire::MAX_MESSAGE).contains(&size) {
            let what = format!("message of {size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut payload = vec![0; size - HEADER];
        let mut reader = stream;
        reader.read_exact(&mut payload)?;
        if header.flags & wire::TYPE_MASK != wire::TYPE_COMMAND {
            continue; // we send no commands, so nothing waits for a reply
        }
        let result = handle(header.command, &payload, &mut fds, device);
        if let Err(e) = &result {
            log::warn!("vfio-user command {}: {e}", header.command);
        }
        if header.flags & wire::NO_REPLY == 0 {
            let mut writer = stream;
            writer.write_all(&header.reply(result))?;
        }
    }
    Ok(())
}

/// The next header with the descriptors that came along; `None` at the end.
fn receive_header(stream: &UnixStream) -> io::Result<Option<(Header, Vec<OwnedFd>)>> {
    let mut header = [0; HEADER];
    let mut fds = Vec::new();
    let mut got = 0;
    while got < HEADER {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(wire::MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header[got..])];
        let message = match recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = item {
                fds.extend(more);
            }
        }
        match message.bytes {
            0 if got == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => got += n,
        }
    }
    Ok(Some((Header::parse(&header), fds)))
}

fn handle(
    command: u16,
    payload: &[u8],
    fds: &mut Vec<OwnedFd>,
    device: &mut dyn Device,
) -> Result<Vec<u8>, Errno> {
    let mut r = Reader(payload);
    match command {
        wire::VERSION => {
            let version = r.u32()?; // major in the low half, minor in the high one
            if version & 0xffff != 0 {
                return Err(Errno::NOTSUP);
            }
            let mut reply = version.to_le_bytes().to_vec();
            reply.extend(wire::CAPABILITIES.as_bytes());
            reply.push(0);
            Ok(reply)
        }
        wire::DMA_MAP => map(&mut r, fds, device),
        wire::DMA_UNMAP => unmap(&mut r, device).map(|()| payload.to_vec()),
        wire::DEVICE_GET_INFO => Ok(words(&[
            HEADER as u32, // four words, by chance the header's length
            wire::DEVICE_FLAGS,
            wire::PCI_REGIONS,
            wire::PCI_IRQS,
        ])),
        wire::DEVICE_GET_REGION_INFO => region_info(&mut r, device),
        wire::DEVICE_GET_IRQ_INFO => {
            let (_argsz, _flags, index) = (r.u32()?, r.u32()?, r.u32()?);
            let (flags, count) = match index {
                wire::PCI_INTX => (wire::IRQ_LEVEL, 1),
                _ => (0, 0),
            };
            Ok(words(&[16, flags, index, count]))
        }
        wire::DEVICE_SET_IRQS => set_irqs(&mut r, fds, device).map(|()| Vec::new()),
        wire::REGION_READ | wire::REGION_WRITE => access(command, payload, device),
        wire::DEVICE_RESET => {
            device.reset();
            Ok(Vec::new())
        }
        _ => Err(Errno::NOTSUP),
    }
}

fn map(
    r: &mut Reader<'_>,
    fds: &mut Vec<OwnedFd>,
    device: &mut dyn Device,
) -> Result<Vec<u8>, Errno> {
    let (_argsz, flags) = (r.u32()?, r.u32()?);
    let (offset, address, len) = (r.u64()?, r.u64()?, r.u64()?);
    let map = DmaMap {
        address,
        len,
        offset,
        writable: flags & wire::DMA_WRITE != 0,
    };
    device.map(map, fds.pop()).map_err(|e| {
        log::error!("{map:x?}: {e}");
        Errno::from_io_error(&e).unwrap_or(Errno::INVAL)
    })?;
    Ok(Vec::new())
}

fn unmap(r: &mut Reader<'_>, device: &mut dyn Device) -> Result<(), Errno> {
    let (_argsz, flags) = (r.u32()?, r.u32()?);
    let (address, len) = (r.u64()?, r.u64()?);
    if flags & wire::UNMAP_DIRTY_BITMAP != 0 {
        return Err(Errno::NOTSUP);
    }
    if flags & wire::UNMAP_ALL != 0 {
        device.unmap_all();
    } else {
        device.unmap(address, len);
    }
    Ok(())
}

fn region_info(r: &mut Reader<'_>, device: &mut dyn Device) -> Result<Vec<u8>, Errno> {
    let (_argsz, _flags, index) = (r.u32()?, r.u32()?, r.u32()?);
    let size = match index {
        wire::PCI_BAR0 => device.bar_len(),
        wire::PCI_CONFIG => device.config_len(),
        n if n < wire::PCI_REGIONS => 0,
        _ => return Err(Errno::INVAL),
    };
    let flags = if size > 0 { wire::REGION_READ_WRITE } else { 0 };
    // argsz, flags, index, cap_offset, size (u64), offset (u64)
    let mut reply = words(&[32, flags, index, 0]);
    reply.extend(size.to_le_bytes());
    reply.extend(0u64.to_le_bytes());
    Ok(reply)
}

fn set_irqs(
    r: &mut Reader<'_>,
    fds: &mut Vec<OwnedFd>,
    device: &mut dyn Device,
) -> Result<(), Errno> {
    let (_argsz, flags, index) = (r.u32()?, r.u32()?, r.u32()?);
    if index != wire::PCI_INTX {
        return Ok(()); // nothing there, so nothing to turn off
    }
    let none = flags & wire::IRQ_DATA_NONE != 0;
    if flags & wire::IRQ_TRIGGER != 0 && flags & wire::IRQ_DATA_EVENTFD != 0 {
        device.set_interrupt(fds.pop());
    } else if flags & wire::IRQ_TRIGGER != 0 && none {
        device.set_interrupt(None);
    } else if flags & wire::IRQ_MASK != 0 && none {
        device.mask_interrupt(true);
    } else if flags & wire::IRQ_UNMASK != 0 && none {
        device.mask_interrupt(false);
    } else {
        return Err(Errno::INVAL);
    }
    Ok(())
}

fn access(command: u16, payload: &[u8], device: &mut dyn Device) -> Result<Vec<u8>, Errno> {
    let mut r = Reader(payload);
    let (offset, region, count) = (r.u64()?, r.u32()?, r.u32()?);
    let size = match region {
        wire::PCI_BAR0 => device.bar_len(),
        wire::PCI_CONFIG => device.config_len(),
        _ => return Err(Errno::INVAL),
    };
    let end = offset.checked_add(count.into());
    if end.is_none_or(|end| end > size) {
        return Err(Errno::INVAL);
    }
    let mut reply = payload[..HEADER].to_vec(); // offset, region, count
    if command == wire::REGION_READ {
        let mut data = vec![0; count as usize];
        match region {
            wire::PCI_BAR0 => device.bar_read(offset, &mut data),
            _ => device.config_read(offset, &mut data),
        }
        reply.extend(data);
    } else {
        let data = r.bytes(count as usize)?;
        match region {
            wire::PCI_BAR0 => device.bar_write(offset, data),
            _ => device.config_write(offset, data),
        }
    }
    Ok(reply)
}
