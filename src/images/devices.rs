//! The use case: attach, detach, list.

/// Image devices on one machine.
#[derive(Default)]
pub struct Images {}

impl Images {
    /// Image devices by this machine's loop driver.
    pub fn new() -> Images {
        Images::default()
    }

    /// What is worth doing ahead of the first call: creating loop devices, in the background.
    pub fn prepare(&self) {}
}
