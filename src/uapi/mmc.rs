//! `linux/mmc/ioctl.h`, and the response flags of the kernel's `linux/mmc/core.h`.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `MMC_RSP_SPI_R1 | MMC_RSP_R1 | MMC_CMD_AC`: a command that answers and is done.
pub const MMC_RSP_R1: u32 = 0x95;
/// `MMC_RSP_SPI_R1B | MMC_RSP_R1B | MMC_CMD_AC`: answers, then holds DAT0 low while busy.
pub const MMC_RSP_R1B: u32 = 0x49d;
/// `MMC_RSP_SPI_R1 | MMC_RSP_R1 | MMC_CMD_ADTC`: answers, then sends data.
pub const MMC_RSP_R1_ADTC: u32 = 0xb5;

/// Commands that fit into one [`multi_cmd`] of ours. The kernel's own limit is 255.
pub const MAX_COMMANDS: usize = 8;

/// `struct mmc_ioc_cmd`. One layout for 32 and 64 bit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types, missing_docs)]
pub struct mmc_ioc_cmd {
    pub write_flag: i32,
    pub is_acmd: i32,
    pub opcode: u32,
    pub arg: u32,
    pub response: [u32; 4],
    pub flags: u32,
    pub blksz: u32,
    pub blocks: u32,
    pub postsleep_min_us: u32,
    pub postsleep_max_us: u32,
    pub data_timeout_ns: u32,
    pub cmd_timeout_ms: u32,
    pub __pad: u32,
    pub data_ptr: u64,
}

/// `struct mmc_ioc_multi_cmd` with room for [`MAX_COMMANDS`] behind its flexible array.
#[repr(C)]
pub struct MultiCmd {
    num_of_cmds: u64,
    cmds: [mmc_ioc_cmd; MAX_COMMANDS],
}

// The size inside MMC_IOC_MULTI_CMD's number is that of the header without the flexible array.
const MMC_IOC_MULTI_CMD: nix::sys::ioctl::ioctl_num_type = nix::request_code_readwrite!(179, 1, 8);

/// The calls as nix makes them.
mod raw {
    #![allow(missing_docs)]
    use super::{mmc_ioc_cmd, MultiCmd, MMC_IOC_MULTI_CMD};

    nix::ioctl_readwrite!(ioc_cmd, 179, 0, mmc_ioc_cmd);
    nix::ioctl_readwrite_bad!(ioc_multi_cmd, MMC_IOC_MULTI_CMD, MultiCmd);
}

/// `MMC_IOC_MULTI_CMD`: the commands as one request of the block layer, nothing in between.
/// The first command that fails ends it; responses are written back into `commands`.
///
/// # Errors
/// `EINVAL` for more than [`MAX_COMMANDS`] commands or one with a data phase, else the kernel's:
/// `EPERM` without CAP_SYS_RAWIO or on a partition, `ENOTTY`/`EINVAL` where the disk is no MMC,
/// `ETIMEDOUT` where a command got no answer or the card stayed busy.
pub fn multi_cmd(fd: BorrowedFd<'_>, commands: &mut [mmc_ioc_cmd]) -> Result<(), Errno> {
    if commands.len() > MAX_COMMANDS || commands.iter().any(|c| c.data_ptr != 0) {
        return Err(Errno::EINVAL);
    }
    let mut multi = MultiCmd {
        num_of_cmds: commands.len() as u64,
        cmds: [mmc_ioc_cmd::default(); MAX_COMMANDS],
    };
    multi.cmds[..commands.len()].copy_from_slice(commands);
    // SAFETY:
    // - `multi` outlives the call and is exclusively ours; the kernel reads and writes
    //   `num_of_cmds` entries, which is at most MAX_COMMANDS;
    // - no command has a data pointer, so the kernel touches no other memory of ours;
    // - the kernel keeps no pointer after it returns.
    let result = unsafe { raw::ioc_multi_cmd(fd.as_raw_fd(), &mut multi) };
    commands.copy_from_slice(&multi.cmds[..commands.len()]);
    result.map(drop)
}

/// `MMC_IOC_CMD` without a data phase.
///
/// # Errors
/// As [`multi_cmd`].
pub fn cmd(fd: BorrowedFd<'_>, command: &mut mmc_ioc_cmd) -> Result<(), Errno> {
    if command.data_ptr != 0 || command.blksz != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `command` is a valid, exclusively borrowed struct of the size inside the number,
    // has no data pointer, and the kernel keeps no pointer to it.
    unsafe { raw::ioc_cmd(fd.as_raw_fd(), command) }.map(drop)
}

/// `MMC_IOC_CMD` that reads one block of 512 bytes, as CMD8 SEND_EXT_CSD does.
///
/// # Errors
/// As [`multi_cmd`].
pub fn cmd_read_block(
    fd: BorrowedFd<'_>,
    command: &mut mmc_ioc_cmd,
    block: &mut [u8; 512],
) -> Result<(), Errno> {
    command.blksz = 512;
    command.blocks = 1;
    command.data_ptr = block.as_mut_ptr() as u64;
    // SAFETY: `command` is valid for the kernel to read and write; its data pointer names
    // `block`, exclusively borrowed for the call and exactly blksz × blocks long, and
    // `write_flag` 0 makes the kernel copy to it; the kernel keeps neither pointer.
    let result = unsafe { raw::ioc_cmd(fd.as_raw_fd(), command) };
    command.data_ptr = 0;
    result.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    // The type of ioctl numbers differs between targets: a cast that is needed on Android.
    #[allow(clippy::unnecessary_cast)]
    #[test]
    fn numbers_and_sizes_are_the_header_s() {
        assert_eq!(MMC_IOC_MULTI_CMD as u64, 0xc008_b301);
        assert_eq!(
            nix::request_code_readwrite!(179, 0, size_of::<mmc_ioc_cmd>()) as u64,
            0xc048_b300
        );
        assert_eq!(size_of::<mmc_ioc_cmd>(), 72);
        let command = mmc_ioc_cmd::default();
        let base = std::ptr::addr_of!(command) as usize;
        assert_eq!(std::ptr::addr_of!(command.response) as usize - base, 16);
        assert_eq!(
            std::ptr::addr_of!(command.cmd_timeout_ms) as usize - base,
            56
        );
        assert_eq!(std::ptr::addr_of!(command.data_ptr) as usize - base, 64);
        assert_eq!(size_of::<MultiCmd>(), 8 + MAX_COMMANDS * 72);
    }
}
