//! What a half-made activation has made, and taking it away in reverse.

use super::mapper::remove_and_wait;
use crate::device::{Mapper, Mounts};
use crate::error::Failure;
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Something that was made.
pub(super) enum Made {
    /// A descriptor; a loop device goes with it.
    Device(OwnedFd),
    /// A device of device-mapper.
    Mapper(String),
    /// A folder.
    Folder(PathBuf),
    /// A mount.
    Mount(PathBuf),
}

/// All of it, in order. Where it is dropped without [`Undo::keep`] it takes everything away, so
/// that no early return forgets anything.
pub(super) struct Undo<'a> {
    mapper: &'a dyn Mapper,
    mounts: &'a dyn Mounts,
    made: Vec<Made>,
}

impl<'a> Undo<'a> {
    pub fn new(mapper: &'a dyn Mapper, mounts: &'a dyn Mounts) -> Undo<'a> {
        Undo {
            mapper,
            mounts,
            made: Vec::new(),
        }
    }

    pub fn made(&mut self, what: Made) {
        self.made.push(what);
    }

    /// The device that was made last.
    pub fn device(&self) -> Option<BorrowedFd<'_>> {
        self.made.iter().rev().find_map(|made| match made {
            Made::Device(device) => Some(device.as_fd()),
            _ => None,
        })
    }

    /// The activation is whole: only our own descriptors are closed. What is mounted keeps what is
    /// below it open.
    pub fn keep(mut self) {
        self.made.clear();
    }

    /// Takes everything away; what cannot be is told in the failure.
    pub fn back(mut self, mut failure: Failure) -> Failure {
        for left in self.reverse() {
            failure.message += &format!("; and {left}");
        }
        failure
    }

    fn reverse(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        while let Some(made) = self.made.pop() {
            let (what, result) = match made {
                Made::Device(device) => {
                    drop(device);
                    continue;
                }
                Made::Mapper(name) => {
                    let result = remove_and_wait(self.mapper, &name);
                    (format!("the device {name} stays"), result)
                }
                Made::Folder(path) => {
                    let result = self.mounts.remove_folder(&path);
                    (format!("the folder {} stays", path.display()), result)
                }
                Made::Mount(path) => {
                    let result = self.mounts.unmount(&path);
                    (format!("{} stays mounted", path.display()), result)
                }
            };
            match result {
                Ok(()) | Err(Errno::ENXIO | Errno::ENOENT) => {}
                Err(errno) => left.push(format!("{what}: {}", errno.desc())),
            }
        }
        left
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for left in self.reverse() {
            log::warn!("undoing an activation: {left}");
        }
    }
}
