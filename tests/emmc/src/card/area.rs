//! The areas of a card: user area, two boot partitions, RPMB. PARTITION_ACCESS of PARTITION_CONFIG
//! selects the one that data and erase commands mean (JESD84-B51 §7.4.69).
use super::ext_csd::index;
use super::Card;
use crate::store::{MemStore, Store};

/// Sectors of one unit of BOOT_SIZE_MULT: 128 KiB.
const BOOT_UNIT: u64 = 256;

/// What PARTITION_ACCESS selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Area {
    /// The user area.
    #[default]
    User,
    /// Boot partition 1.
    Boot1,
    /// Boot partition 2.
    Boot2,
}

impl Area {
    pub(super) fn is_user(self) -> bool {
        self == Area::User
    }
}

/// The media of the areas that are not selected.
#[derive(Default)]
pub(super) struct Aside {
    user: Option<Box<dyn Store>>,
    boot: [Option<Box<dyn Store>>; 2],
}

impl Card {
    /// The selected area.
    pub fn area(&self) -> Area {
        self.area
    }

    /// Sectors of each boot partition.
    pub fn boot_sectors(&self) -> u64 {
        u64::from(self.ext.0[index::BOOT_SIZE_MULT]) * BOOT_UNIT
    }

    /// Selects an area; false where the card does not have it. RPMB takes only frames of its own
    /// protocol, which is not modelled: it cannot be selected.
    pub(super) fn select(&mut self, access: u8) -> bool {
        let wanted = match access {
            0 => Area::User,
            1 => Area::Boot1,
            2 => Area::Boot2,
            _ => return false,
        };
        if wanted == self.area {
            return true;
        }
        if !wanted.is_user() && self.boot_sectors() == 0 {
            return false;
        }
        // The cache and the marks are of one area: nothing of it may reach another.
        if let Err(e) = self.write_back(usize::MAX) {
            ::log::error!("medium: {e}");
        }
        let erased = self.ext.erased_value();
        let size = self.boot_sectors();
        let fresh = || -> Box<dyn Store> {
            let mut store = MemStore::new(size);
            store.set_erased_value(erased);
            Box::new(store)
        };
        let next = match wanted {
            Area::User => self.aside.user.take(),
            Area::Boot1 => Some(self.aside.boot[0].take().unwrap_or_else(fresh)),
            Area::Boot2 => Some(self.aside.boot[1].take().unwrap_or_else(fresh)),
        };
        let Some(next) = next else {
            return false;
        };
        let before = std::mem::replace(&mut self.store, next);
        match self.area {
            Area::User => self.aside.user = Some(before),
            Area::Boot1 => self.aside.boot[0] = Some(before),
            Area::Boot2 => self.aside.boot[1] = Some(before),
        }
        self.area = wanted;
        true
    }

    /// Sectors of the selected area.
    pub(super) fn area_sectors(&self) -> u64 {
        match self.area {
            Area::User => self.sectors(),
            Area::Boot1 | Area::Boot2 => self.boot_sectors(),
        }
    }
}
