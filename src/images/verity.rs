//! dm-verity: the table, by plan, and the hash tree where the payload does not bring it.

use super::avb::sha::{sha256, sha512};
use super::avb::{hex, HashtreeDescriptor};
use super::source::Source;
use super::{Step, Window};
use crate::device::mapper::{DeviceNumber, Target};
use crate::error::{Code, Failure, Result};
use crate::units::{Bytes, Sectors, SECTOR_SIZE};

/// Bytes of data that are hashed at a time; a multiple of every block size.
const CHUNK: u64 = 1 << 20;

/// Where the hash tree lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreePlace {
    /// Behind the image, on the same device, from this block on.
    Stored(u64),
    /// In a file of the client's, from its beginning: it is built first.
    Built,
}

impl TreePlace {
    /// Where the tree of a descriptor must come from.
    pub fn of(tree: &HashtreeDescriptor) -> TreePlace {
        let block = u64::from(tree.hash_block_size);
        match tree.tree_size {
            // One block of data has no tree: its digest is the root.
            0 if tree.full_tree_size() == 0 => TreePlace::Stored(0),
            0 => TreePlace::Built,
            _ => TreePlace::Stored(tree.tree_offset / block),
        }
    }

    /// First block of the tree on its device.
    fn start(self) -> u64 {
        match self {
            TreePlace::Stored(block) => block,
            TreePlace::Built => 0,
        }
    }
}

/// The table (Documentation/admin-guide/device-mapper/verity.rst): a device as large as what the
/// tree covers. A block whose digest is that of zeros reads as zeros, as apexd has it; one that
/// does not match reads as EIO.
pub fn table(
    tree: &HashtreeDescriptor,
    place: TreePlace,
    data: DeviceNumber,
    hash: DeviceNumber,
) -> Target {
    let blocks = tree.image_size / u64::from(tree.data_block_size);
    let salt = match tree.salt.is_empty() {
        true => "-".to_owned(),
        false => hex(&tree.salt),
    };
    Target {
        start: Sectors(0),
        length: Sectors(tree.image_size / SECTOR_SIZE),
        kind: "verity",
        arguments: format!(
            "{} {data} {hash} {} {} {blocks} {} {} {} {salt} 1 ignore_zero_blocks",
            tree.dm_verity_version,
            tree.data_block_size,
            tree.hash_block_size,
            place.start(),
            tree.hash_algorithm,
            hex(&tree.root_digest),
        ),
    }
}

type Digest = fn(&[&[u8]]) -> Vec<u8>;

fn digest_of(algorithm: &str) -> Option<Digest> {
    match algorithm {
        "sha256" => Some(|parts| sha256(parts).to_vec()),
        "sha512" => Some(|parts| sha512(parts).to_vec()),
        _ => None,
    }
}

fn failed(code: Code, text: String) -> Failure {
    Step::HashTree.fail(code, text)
}

/// Builds the tree over the image that begins at `payload`, topmost level first, and compares its
/// root with the descriptor's. Holds the tree in memory, 1/128 of the image.
///
/// # Errors
/// `UNSUPPORTED` for an algorithm that is not built here, `BAD_SIGNATURE` for another root,
/// `DEVICE_FAILED` where the file cannot be read.
pub fn build(
    source: &(impl Source + ?Sized),
    payload: Window,
    tree: &HashtreeDescriptor,
) -> Result<Vec<u8>> {
    let digest = digest_of(&tree.hash_algorithm).ok_or_else(|| {
        let text = format!("a hash tree of {} is not built here", tree.hash_algorithm);
        failed(Code::Unsupported, text).remedy("use an APEX that brings its hash tree")
    })?;
    let hash_block = tree.hash_block_size as usize;
    let mut level = data_digests(source, payload, tree, digest)?;
    let mut levels = Vec::new();
    while level.len() > tree.root_digest.len() {
        pad(&mut level, hash_block);
        let above = level.chunks(hash_block);
        let above: Vec<u8> = above.flat_map(|b| digest(&[&tree.salt, b])).collect();
        levels.push(std::mem::replace(&mut level, above));
    }
    if level != tree.root_digest {
        let text = format!(
            "the payload's root digest is {}, not {} as was signed",
            hex(&level),
            hex(&tree.root_digest)
        );
        let remedy = "do not use the file: it is damaged, or was changed after signing";
        return Err(failed(Code::BadSignature, text).remedy(remedy));
    }
    Ok(levels.into_iter().rev().flatten().collect())
}

/// Level 0: the digests of all data blocks.
fn data_digests(
    source: &(impl Source + ?Sized),
    payload: Window,
    tree: &HashtreeDescriptor,
    digest: Digest,
) -> Result<Vec<u8>> {
    let block = tree.data_block_size as usize;
    let mut level = Vec::new();
    let mut buffer = vec![0; CHUNK.min(tree.image_size) as usize];
    let mut at = 0;
    while at < tree.image_size {
        let length = CHUNK.min(tree.image_size - at) as usize;
        let position = Bytes(payload.offset.0 + at);
        source
            .read_at(position, &mut buffer[..length])
            .map_err(|errno| {
                let text = format!("cannot read the payload at byte {}", position.0);
                failed(Code::DeviceFailed, text).errno(errno)
            })?;
        for data in buffer[..length].chunks(block) {
            level.extend(digest(&[&tree.salt, data]));
        }
        at += length as u64;
    }
    Ok(level)
}

fn pad(level: &mut Vec<u8>, block: usize) {
    level.resize(level.len().next_multiple_of(block), 0);
}

#[cfg(test)]
mod tests;
