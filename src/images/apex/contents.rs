//! All that an APEX says of itself, read and compared; nothing of it is trusted yet.

use super::manifest::{Manifest, MAX_MANIFEST};
use super::{broken, find_payload, Directory, Entry, Source, Step, Window};
use crate::error::{Code, Result};
use crate::units::Bytes;

/// Largest key that is read: RSA-8192 has 2056 bytes.
const MAX_KEY: u32 = 4096;

/// The archive, entry by entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The payload.
    pub payload: Window,
    /// Entries of the archive.
    pub entries: usize,
    /// The manifest.
    pub manifest: Manifest,
    /// The bytes of `apex_manifest.pb`.
    pub manifest_bytes: Vec<u8>,
    /// `apex_pubkey`, an AVB key blob; a claim of the file's.
    pub public_key: Option<Vec<u8>>,
    /// The file system of the payload, where it is a known one.
    pub file_system: Option<FileSystem>,
}

/// A file system by its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The kernel's name.
    pub name: &'static str,
    /// Bytes of a block; `None` where the superblock says nothing possible.
    pub block_size: Option<u32>,
}

impl Contents {
    /// Reads the archive: every local header, the manifest and the key.
    ///
    /// # Errors
    /// As [`find_payload`]; `NOT_AN_APEX` for entries that overlap or share a name, and for a
    /// manifest that cannot be.
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Contents> {
        let payload = find_payload(source)?;
        let directory = Directory::read(source)?;
        let limit = directory.offset;
        let mut entries: Vec<Entry<'_>> = Vec::new();
        directory.for_each(|entry| {
            entries.push(entry);
            Ok(())
        })?;
        check_layout(source, &entries, limit)?;
        let named = |name: &[u8]| entries.iter().find(|entry| entry.name == name);
        let (manifest, manifest_bytes) = match named(b"apex_manifest.pb") {
            Some(entry) => {
                let bytes = entry.contents(source, limit, MAX_MANIFEST)?;
                let manifest = Manifest::parse(&bytes).map_err(|(at, why)| {
                    let why = format!("byte {at} of apex_manifest.pb: {why}");
                    broken("central directory entry", entry.position, &why)
                })?;
                (manifest, bytes)
            }
            None if named(b"apex_manifest.json").is_some() => {
                let text = "an APEX of before Android 10: apex_manifest.json and no .pb";
                let remedy = "build it again by an apexer of Android 10 or newer";
                return Err(Step::Apex.fail(Code::Unsupported, text).remedy(remedy));
            }
            None => {
                let why = "the archive has no apex_manifest.pb";
                return Err(broken("central directory", limit, why));
            }
        };
        let public_key = named(b"apex_pubkey")
            .map(|entry| entry.contents(source, limit, MAX_KEY))
            .transpose()?;
        Ok(Contents {
            payload,
            entries: entries.len(),
            manifest,
            manifest_bytes,
            public_key,
            file_system: file_system(source, payload)?,
        })
    }
}

/// No two entries share a name or a byte.
fn check_layout(source: &(impl Source + ?Sized), entries: &[Entry<'_>], limit: u64) -> Result<()> {
    let mut names: Vec<_> = entries.iter().map(|e| (e.name, e.position)).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let why = "another entry has the same name";
        return Err(broken("central directory entry", pair[1].1, why));
    }
    let mut spans = Vec::with_capacity(entries.len());
    for entry in entries {
        let data = entry.locate(source, limit)?;
        spans.push(entry.span(source, limit, data)?);
    }
    spans.sort_unstable();
    match spans.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(broken(
            "local header",
            pair[1].0,
            "it lies inside another entry",
        )),
        None => Ok(()),
    }
}

/// Where all known superblocks lie, ext4's magic being the furthest part.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_READ: usize = 64;

/// What the first bytes of a window say.
///
/// # Errors
/// `DEVICE_FAILED` where they cannot be read.
pub(in crate::images) fn file_system(
    source: &(impl Source + ?Sized),
    payload: Window,
) -> Result<Option<FileSystem>> {
    let mut block = [0; SUPERBLOCK_READ];
    if payload.length.0 < SUPERBLOCK + SUPERBLOCK_READ as u64 {
        return Ok(None);
    }
    let at = payload.offset.0 + SUPERBLOCK;
    source.read_at(Bytes(at), &mut block).map_err(|errno| {
        let text = format!("cannot read the superblock at byte {at}");
        let remedy = "the file became shorter or its disk fails: see the kernel log";
        let failure = Step::Apex.fail(Code::DeviceFailed, text);
        failure.errno(errno).remedy(remedy)
    })?;
    let word =
        |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    // Blocks of 512 bytes to 64 KiB are what the three can have.
    let power = |bits: u32| (9..=16).contains(&bits).then(|| 1 << bits);
    let known = |name, bits| FileSystem {
        name,
        block_size: power(bits),
    };
    Ok(if word(0) == 0xe0f5_e1e2 {
        Some(known("erofs", u32::from(block[12])))
    } else if word(0) == 0xf2f5_2010 {
        Some(known("f2fs", word(16)))
    } else if block[56..58] == [0x53, 0xef] {
        Some(known("ext4", word(24).saturating_add(10)))
    } else {
        None
    })
}
