//! eMMC test equipment.
//!
//! * [`store`]: the medium (RAM or sparse file, with a computed initial pattern) and its scan.
//! * [`card`]: an eMMC 5.1 card. No threads, no clock: the caller passes `now`, so unit tests
//!   run it in virtual time and a guest runs the same code in real time.
//! * [`sdhci`]: an SDHCI 3.0 host controller with the card in its slot.
//! * [`report`]: counters, modelled time and scan as one JSON document.
//! * `machine` (feature of that name, on by default): the product's device traits over a card,
//!   in virtual time.
//! * [`server`]: puts the controller behind QEMU's `vfio-user-pci` device.
//!
//! `unsafe` is confined to `dma.rs`, the mappings of guest memory.
#![deny(unsafe_code)]

pub mod card;
#[allow(unsafe_code)]
mod dma;
#[cfg(feature = "machine")]
pub mod machine;
pub mod report;
pub mod sdhci;
pub mod server;
pub mod store;
mod vfio;
