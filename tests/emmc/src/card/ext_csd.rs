//! EXT_CSD: the bytes that the model knows, and the fields they are made of.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;

/// Offsets of bytes (JESD84-B51 §7.4); multi-byte fields are little endian from here on.
pub mod index {
    /// FLUSH_CACHE, bit 0 starts it.
    pub const FLUSH_CACHE: usize = 32;
    /// CACHE_CTRL, bit 0 = on.
    pub const CACHE_CTRL: usize = 33;
    /// POWER_OFF_NOTIFICATION.
    pub const POWER_OFF_NOTIFICATION: usize = 34;
    /// PARTITIONING_SUPPORT.
    pub const PARTITIONING_SUPPORT: usize = 160;
    /// BKOPS_EN.
    pub const BKOPS_EN: usize = 163;
    /// SANITIZE_START.
    pub const SANITIZE_START: usize = 165;
    /// WR_REL_PARAM, bit 2 = EN_REL_WR: reliable writes of any size.
    pub const WR_REL_PARAM: usize = 166;
    /// WR_REL_SET.
    pub const WR_REL_SET: usize = 167;
    /// ERASE_GROUP_DEF, bit 0 = high-capacity groups.
    pub const ERASE_GROUP_DEF: usize = 175;
    /// BOOT_BUS_CONDITIONS.
    pub const BOOT_BUS_CONDITIONS: usize = 177;
    /// PARTITION_CONFIG.
    pub const PARTITION_CONFIG: usize = 179;
    /// ERASED_MEM_CONT: 0 = erased bits read 0, 1 = they read 1.
    pub const ERASED_MEM_CONT: usize = 181;
    /// BUS_WIDTH.
    pub const BUS_WIDTH: usize = 183;
    /// HS_TIMING.
    pub const HS_TIMING: usize = 185;
    /// POWER_CLASS.
    pub const POWER_CLASS: usize = 187;
    /// EXT_CSD_REV.
    pub const REV: usize = 192;
    /// CSD_STRUCTURE.
    pub const CSD_STRUCTURE: usize = 194;
    /// DEVICE_TYPE.
    pub const DEVICE_TYPE: usize = 196;
    /// SEC_COUNT, 4 bytes.
    pub const SEC_COUNT: usize = 212;
    /// S_A_TIMEOUT.
    pub const S_A_TIMEOUT: usize = 217;
    /// HC_WP_GRP_SIZE.
    pub const HC_WP_GRP_SIZE: usize = 221;
    /// REL_WR_SEC_C.
    pub const REL_WR_SEC_C: usize = 222;
    /// ERASE_TIMEOUT_MULT, 300 ms per group.
    pub const ERASE_TIMEOUT_MULT: usize = 223;
    /// HC_ERASE_GRP_SIZE, 512 KiB.
    pub const HC_ERASE_GRP_SIZE: usize = 224;
    /// BOOT_SIZE_MULT, 128 KiB.
    pub const BOOT_SIZE_MULT: usize = 226;
    /// SEC_TRIM_MULT.
    pub const SEC_TRIM_MULT: usize = 229;
    /// SEC_ERASE_MULT.
    pub const SEC_ERASE_MULT: usize = 230;
    /// SEC_FEATURE_SUPPORT: bit 0 secure erase, 4 trim, 6 sanitize.
    pub const SEC_FEATURE_SUPPORT: usize = 231;
    /// TRIM_MULT.
    pub const TRIM_MULT: usize = 232;
    /// INI_TIMEOUT_AP.
    pub const INI_TIMEOUT_AP: usize = 241;
    /// POWER_OFF_LONG_TIME.
    pub const POWER_OFF_LONG_TIME: usize = 247;
    /// GENERIC_CMD6_TIME.
    pub const GENERIC_CMD6_TIME: usize = 248;
    /// CACHE_SIZE in kibibits, 4 bytes.
    pub const CACHE_SIZE: usize = 249;
    /// FIRMWARE_VERSION, 8 bytes.
    pub const FIRMWARE_VERSION: usize = 254;
    /// PRE_EOL_INFO, then DEVICE_LIFE_TIME_EST_TYP_A and B.
    pub const PRE_EOL_INFO: usize = 267;
    /// S_CMD_SET.
    pub const S_CMD_SET: usize = 504;
}

/// SEC_FEATURE_SUPPORT bit 0, SECURE_ER_EN.
pub const SECURE_ER_EN: u8 = 1;
/// SEC_FEATURE_SUPPORT bit 4, SEC_GB_CL_EN: trim.
pub const SEC_GB_CL_EN: u8 = 1 << 4;
/// SEC_FEATURE_SUPPORT bit 6, SEC_SANITIZE.
pub const SEC_SANITIZE: u8 = 1 << 6;
/// WR_REL_PARAM bit 2, EN_REL_WR.
pub const EN_REL_WR: u8 = 1 << 2;

/// EXT_CSD_REV from which CMD38 knows discard (4.5).
pub const REV_4_5: u8 = 6;

/// The 512 bytes of CMD8.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtCsd(pub [u8; 512]);

/// The fields that tests vary; everything else of the register is fixed or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fields {
    /// SEC_COUNT: capacity in sectors of 512 bytes.
    pub sectors: u32,
    /// EXT_CSD_REV, 8 = eMMC 5.1.
    pub rev: u8,
    /// SEC_FEATURE_SUPPORT.
    pub sec_feature_support: u8,
    /// HC_ERASE_GRP_SIZE, unit 512 KiB.
    pub hc_erase_grp_size: u8,
    /// HC_WP_GRP_SIZE.
    pub hc_wp_grp_size: u8,
    /// ERASE_TIMEOUT_MULT, unit 300 ms.
    pub erase_timeout_mult: u8,
    /// SEC_ERASE_MULT.
    pub sec_erase_mult: u8,
    /// SEC_TRIM_MULT.
    pub sec_trim_mult: u8,
    /// TRIM_MULT.
    pub trim_mult: u8,
    /// CACHE_SIZE in kibibits (mmc-utils prints 4096 as 512 KiB); 0 = no cache.
    pub cache_size_kibit: u32,
    /// REL_WR_SEC_C.
    pub rel_wr_sec_c: u8,
    /// WR_REL_PARAM.
    pub wr_rel_param: u8,
    /// ERASED_MEM_CONT.
    pub erased_mem_cont: u8,
    /// BOOT_SIZE_MULT, unit 128 KiB: size of each boot partition.
    pub boot_size_mult: u8,
}

impl Default for Fields {
    fn default() -> Self {
        Fields {
            sectors: 8 << 21,
            rev: 8,
            sec_feature_support: 0x55,
            hc_erase_grp_size: 1,
            hc_wp_grp_size: 1,
            erase_timeout_mult: 1,
            sec_erase_mult: 1,
            sec_trim_mult: 1,
            trim_mult: 1,
            cache_size_kibit: 32768,
            rel_wr_sec_c: 1,
            wr_rel_param: 0x14,
            erased_mem_cont: 0,
            boot_size_mult: 0,
        }
    }
}

impl From<Fields> for ExtCsd {
    fn from(f: Fields) -> Self {
        let mut e = ExtCsd([0; 512]);
        let mut set = |at: usize, bytes: &[u8]| e.0[at..at + bytes.len()].copy_from_slice(bytes);
        set(index::WR_REL_PARAM, &[f.wr_rel_param, 0x1f]);
        set(index::ERASED_MEM_CONT, &[f.erased_mem_cont]);
        set(index::REV, &[f.rev]);
        set(index::CSD_STRUCTURE, &[2]); // CSD version 1.2
        set(index::DEVICE_TYPE, &[0x03]); // high speed, 26 and 52 MHz
        set(index::SEC_COUNT, &f.sectors.to_le_bytes());
        set(index::S_A_TIMEOUT, &[0x10]);
        set(
            index::HC_WP_GRP_SIZE,
            &[
                f.hc_wp_grp_size,
                f.rel_wr_sec_c,
                f.erase_timeout_mult,
                f.hc_erase_grp_size,
            ],
        );
        set(
            index::SEC_TRIM_MULT,
            &[
                f.sec_trim_mult,
                f.sec_erase_mult,
                f.sec_feature_support,
                f.trim_mult,
            ],
        );
        set(index::BOOT_SIZE_MULT, &[f.boot_size_mult]);
        set(index::INI_TIMEOUT_AP, &[0x0a]);
        set(index::POWER_OFF_LONG_TIME, &[0x0a, 0x19]);
        set(index::CACHE_SIZE, &f.cache_size_kibit.to_le_bytes());
        set(index::FIRMWARE_VERSION, &[1]);
        set(index::PRE_EOL_INFO, &[1, 1, 1]); // normal, 0–10 % used
        set(index::S_CMD_SET, &[1]);
        e
    }
}

impl ExtCsd {
    /// The default card with another size.
    pub fn new(sectors: u32) -> Self {
        Fields {
            sectors,
            ..Fields::default()
        }
        .into()
    }

    /// Reads a file of exactly 512 bytes, for instance a dump of a real card.
    ///
    /// # Errors
    /// Of the file system; another length is `InvalidData`.
    pub fn load(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let len = bytes.len();
        match bytes.try_into() {
            Ok(bytes) => Ok(ExtCsd(bytes)),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("EXT_CSD has 512 bytes, {} has {len}", path.display()),
            )),
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Capacity in sectors.
    pub fn sectors(&self) -> u64 {
        self.u32_at(index::SEC_COUNT).into()
    }

    /// Sets SEC_COUNT.
    pub fn set_sectors(&mut self, sectors: u32) {
        self.0[index::SEC_COUNT..index::SEC_COUNT + 4].copy_from_slice(&sectors.to_le_bytes());
    }

    /// CACHE_SIZE in bytes.
    pub fn cache_bytes(&self) -> u64 {
        u64::from(self.u32_at(index::CACHE_SIZE)) * 1024 / 8
    }

    /// True if SEC_FEATURE_SUPPORT has all of `bits`.
    pub fn secure_feature(&self, bits: u8) -> bool {
        self.0[index::SEC_FEATURE_SUPPORT] & bits == bits
    }

    /// What erased bytes read as.
    pub fn erased_value(&self) -> u8 {
        if self.0[index::ERASED_MEM_CONT] & 1 != 0 {
            0xff
        } else {
            0
        }
    }

    /// Sets the bytes back that a power cycle or CMD0 sets back.
    pub(super) fn reset_volatile(&mut self) {
        for at in [
            index::FLUSH_CACHE,
            index::CACHE_CTRL,
            index::POWER_OFF_NOTIFICATION,
            index::SANITIZE_START,
            index::ERASE_GROUP_DEF,
            index::BUS_WIDTH,
            index::HS_TIMING,
            index::POWER_CLASS,
        ] {
            self.0[at] = 0;
        }
        self.0[index::PARTITION_CONFIG] &= !7; // PARTITION_ACCESS
    }
}

impl fmt::Debug for ExtCsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.0.iter().enumerate().filter(|(_, b)| **b != 0);
        f.debug_map().entries(set).finish()
    }
}
