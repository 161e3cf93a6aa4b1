//! Messages of the vfio-user protocol (QEMU, docs/interop/vfio-user.rst) and the constants of
//! <linux/vfio.h> that they use. Little endian, as on every host that runs the tests.

/// Bytes of a message header: id u16, command u16, size u32, flags u32, errno u32.
pub const HEADER: usize = 16;
/// Larger messages are refused.
pub const MAX_MESSAGE: usize = 1 << 21;
/// File descriptors accepted per message.
pub const MAX_FDS: usize = 16;

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const DEVICE_GET_INFO: u16 = 4;
pub const DEVICE_GET_REGION_INFO: u16 = 5;
pub const DEVICE_GET_IRQ_INFO: u16 = 7;
pub const DEVICE_SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const DEVICE_RESET: u16 = 13;

/// Header flags: bits 3:0 are the type.
pub const TYPE_MASK: u32 = 0xf;
pub const TYPE_COMMAND: u32 = 0;
pub const TYPE_REPLY: u32 = 1;
pub const NO_REPLY: u32 = 1 << 4;
pub const ERROR: u32 = 1 << 5;

/// Capabilities in the answer to VERSION.
pub const CAPABILITIES: &str =
    r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096}}"#;

/// DMA_MAP flags.
pub const DMA_WRITE: u32 = 1 << 1;
/// DMA_UNMAP flags.
pub const UNMAP_DIRTY_BITMAP: u32 = 1;
pub const UNMAP_ALL: u32 = 1 << 1;

/// Device flags: can be reset, is a PCI device.
pub const DEVICE_FLAGS: u32 = 1 | 1 << 1;
pub const PCI_REGIONS: u32 = 9;
pub const PCI_BAR0: u32 = 0;
pub const PCI_CONFIG: u32 = 7;
/// Region flags: readable, writable.
pub const REGION_READ_WRITE: u32 = 1 | 1 << 1;
pub const PCI_IRQS: u32 = 5;
pub const PCI_INTX: u32 = 0;
/// IRQ flags: eventfd, maskable, masks itself when it fires.
pub const IRQ_LEVEL: u32 = 1 | 1 << 1 | 1 << 2;
/// SET_IRQS flags.
pub const IRQ_DATA_NONE: u32 = 1;
pub const IRQ_DATA_EVENTFD: u32 = 1 << 2;
pub const IRQ_MASK: u32 = 1 << 3;
pub const IRQ_UNMASK: u32 = 1 << 4;
pub const IRQ_TRIGGER: u32 = 1 << 5;

pub use rustix::io::Errno;

/// Header of a message.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub id: u16,
    pub command: u16,
    pub size: u32,
    pub flags: u32,
}

impl Header {
    pub fn parse(b: &[u8; HEADER]) -> Self {
        Header {
            id: u16::from_le_bytes([b[0], b[1]]),
            command: u16::from_le_bytes([b[2], b[3]]),
            size: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            flags: u32::from_le_bytes([b[8], b[9], b[10], b[11]]),
        }
    }

    /// A whole reply message.
    pub fn reply(&self, result: Result<Vec<u8>, Errno>) -> Vec<u8> {
        let (flags, errno, payload) = match result {
            Ok(payload) => (TYPE_REPLY, 0, payload),
            Err(e) => (TYPE_REPLY | ERROR, e.raw_os_error(), Vec::new()),
        };
        let mut out = Vec::with_capacity(HEADER + payload.len());
        out.extend(self.id.to_le_bytes());
        out.extend(self.command.to_le_bytes());
        out.extend(((HEADER + payload.len()) as u32).to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(errno.to_le_bytes());
        out.extend(payload);
        out
    }
}

/// Reads a payload field by field.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u32(&mut self) -> Result<u32, Errno> {
        let b = self.bytes(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub fn u64(&mut self) -> Result<u64, Errno> {
        let low = self.u32()?;
        Ok(u64::from(self.u32()?) << 32 | u64::from(low))
    }
}

/// A payload of 32-bit fields.
pub fn words(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_le_bytes()).collect()
}
