//! The virtual machine: set-up, the guest's root, one run.

pub mod apt;
pub mod cpio;
pub mod initramfs;
pub mod machine;
pub mod modules;
pub mod setup;
pub mod tools;

/// Which of the two systems of a device boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The ordinary system.
    System,
    /// Recovery: only the classes default and hal.
    Recovery,
}
