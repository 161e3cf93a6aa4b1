//! Descriptors of a vbmeta image (avb_descriptor.h, avb_hashtree_descriptor.h).

use super::{be32, be64, Bad};
use std::fmt;

/// The kinds that are read; others are stepped over.
const PROPERTY: u64 = 0;
const HASHTREE: u64 = 1;
/// Bytes of kind and length.
const HEADER: usize = 16;
const HASHTREE_LENGTH: usize = 180;
const PROPERTY_LENGTH: usize = 32;
/// dm-verity takes at most 256 bytes of salt.
const MAX_SALT: usize = 256;

/// The dm-verity parameters of a payload. All positions count from the payload's first byte.
#[derive(Clone, PartialEq, Eq)]
pub struct HashtreeDescriptor {
    /// dm-verity's on-disk version: 1.
    pub dm_verity_version: u32,
    /// Bytes that the tree covers: the file system.
    pub image_size: u64,
    /// First byte of the tree.
    pub tree_offset: u64,
    /// Bytes of the tree; 0 where it is not stored.
    pub tree_size: u64,
    /// Bytes of a data block.
    pub data_block_size: u32,
    /// Bytes of a hash block.
    pub hash_block_size: u32,
    /// Parity bytes of a FEC code word; 0 without FEC.
    pub fec_num_roots: u32,
    /// First byte of the FEC data.
    pub fec_offset: u64,
    /// Bytes of the FEC data.
    pub fec_size: u64,
    /// The kernel's name: sha1, sha256, sha512 or blake2b-256.
    pub hash_algorithm: String,
    /// Name of the partition; empty in an APEX.
    pub partition_name: String,
    /// Hashed before each block.
    pub salt: Vec<u8>,
    /// Digest of the tree's topmost block.
    pub root_digest: Vec<u8>,
    /// Bit 0: do not use an A/B suffix; bit 1: check at most once.
    pub flags: u32,
}

/// Lower-case hexadecimal digits, as dm tables have them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl fmt::Debug for HashtreeDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashtreeDescriptor")
            .field("image_size", &self.image_size)
            .field("tree", &(self.tree_offset, self.tree_size))
            .field("blocks", &(self.data_block_size, self.hash_block_size))
            .field("algorithm", &self.hash_algorithm)
            .field("salt", &hex(&self.salt))
            .field("root", &hex(&self.root_digest))
            .finish_non_exhaustive()
    }
}

/// A key and its value, as bytes that somebody else wrote.
pub type Property = (Vec<u8>, Vec<u8>);

/// What the descriptors say.
pub(super) struct Descriptors {
    pub hashtree: Option<HashtreeDescriptor>,
    pub properties: Vec<Property>,
}

/// Reads all of them. A failure has the position inside `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<Descriptors, Bad> {
    let mut found = Descriptors {
        hashtree: None,
        properties: Vec::new(),
    };
    let mut at = 0;
    while at < bytes.len() {
        let bad = |why| Bad("AVB descriptor", at as u64, why);
        let rest = &bytes[at..];
        if rest.len() < HEADER {
            return Err(bad("it is shorter than its header"));
        }
        let following = be64(rest, 8);
        let whole = match usize::try_from(following) {
            Ok(n) if n % 8 == 0 && n <= rest.len() - HEADER => &rest[..HEADER + n],
            _ => return Err(bad("its length is no multiple of 8 or runs past the block")),
        };
        match be64(rest, 0) {
            HASHTREE => {
                let tree = hashtree(whole).map_err(bad)?;
                // apexd takes the first; two readers must not take two.
                if found.hashtree.replace(tree).is_some() {
                    return Err(bad("a second hash tree"));
                }
            }
            PROPERTY => found.properties.push(property(whole).map_err(bad)?),
            _ => {}
        }
        at += whole.len();
    }
    Ok(found)
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a name that is not UTF-8")?;
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err("a name with blanks or control characters");
    }
    Ok(text.to_owned())
}

fn hashtree(d: &[u8]) -> Result<HashtreeDescriptor, &'static str> {
    if d.len() < HASHTREE_LENGTH {
        return Err("a hash tree descriptor that is too short");
    }
    let lengths = [104, 108, 112].map(|at| be32(d, at) as usize);
    let [name, salt, digest] = lengths;
    let used = lengths
        .iter()
        .try_fold(HASHTREE_LENGTH, |sum, n| sum.checked_add(*n));
    if !used.is_some_and(|used| used <= d.len()) {
        return Err("name, salt or root digest run past the descriptor");
    }
    if salt > MAX_SALT {
        return Err("a salt of more than 256 bytes");
    }
    let algorithm = &d[72..104];
    let end = algorithm
        .iter()
        .position(|b| *b == 0)
        .unwrap_or(algorithm.len());
    let rest = &d[HASHTREE_LENGTH..];
    let tree = HashtreeDescriptor {
        dm_verity_version: be32(d, 16),
        image_size: be64(d, 20),
        tree_offset: be64(d, 28),
        tree_size: be64(d, 36),
        data_block_size: be32(d, 44),
        hash_block_size: be32(d, 48),
        fec_num_roots: be32(d, 52),
        fec_offset: be64(d, 56),
        fec_size: be64(d, 64),
        hash_algorithm: text(&algorithm[..end])?,
        partition_name: text(&rest[..name])?,
        salt: rest[name..name + salt].to_vec(),
        root_digest: rest[name + salt..name + salt + digest].to_vec(),
        flags: be32(d, 116),
    };
    tree.check()?;
    Ok(tree)
}

impl HashtreeDescriptor {
    /// Bytes of a digest by this algorithm.
    fn digest_size(&self) -> Option<usize> {
        match self.hash_algorithm.as_str() {
            "sha1" => Some(20),
            "sha256" | "blake2b-256" => Some(32),
            "sha512" => Some(64),
            _ => None,
        }
    }

    /// Bytes that dm-verity reads of a tree over [`HashtreeDescriptor::image_size`].
    pub fn full_tree_size(&self) -> u64 {
        let digest = self.digest_size().unwrap_or(32).next_power_of_two() as u64;
        let block = u64::from(self.hash_block_size);
        let (mut blocks, mut total) = (self.image_size / u64::from(self.data_block_size), 0);
        while blocks > 1 {
            blocks = (blocks * digest).div_ceil(block);
            total += blocks;
        }
        total * block
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_block = |n: u32| n.is_power_of_two() && (512..=65536).contains(&n);
        if self.dm_verity_version != 1 {
            return Err("a dm-verity version other than 1");
        }
        if !is_block(self.data_block_size) || !is_block(self.hash_block_size) {
            return Err("a block size that is no power of two from 512 to 65536");
        }
        if self.image_size == 0 || self.image_size % u64::from(self.data_block_size) != 0 {
            return Err("an image size that is 0 or no multiple of the data blocks");
        }
        // dm-verity counts in sectors of a signed 64-bit number of bytes.
        if self.image_size > i64::MAX as u64 {
            return Err("an image size that no disk has");
        }
        let digest = self.digest_size().ok_or("an unknown hash algorithm")?;
        if self.root_digest.len() != digest {
            return Err("a root digest that is not as long as its algorithm's");
        }
        if self.tree_size == 0 {
            return Ok(());
        }
        if self.tree_offset % u64::from(self.hash_block_size) != 0
            || self.tree_offset < self.image_size
        {
            return Err("a tree that lies inside the image or off its blocks");
        }
        if self.tree_size != self.full_tree_size() {
            return Err("a tree size that is not that of a tree over the image");
        }
        Ok(())
    }

    /// Whether tree and FEC data end at or before `limit`.
    pub(super) fn ends_before(&self, limit: u64) -> bool {
        let within = |offset: u64, size: u64| {
            size == 0 || offset.checked_add(size).is_some_and(|end| end <= limit)
        };
        self.image_size <= limit
            && within(self.tree_offset, self.tree_size)
            && within(self.fec_offset, self.fec_size)
    }
}

fn property(d: &[u8]) -> Result<Property, &'static str> {
    const PAST: &str = "a property that runs past its descriptor";
    if d.len() < PROPERTY_LENGTH {
        return Err("a property descriptor that is too short");
    }
    let size = |at| usize::try_from(be64(d, at)).map_err(|_| PAST);
    let (key, value) = (size(16)?, size(24)?);
    let rest = &d[PROPERTY_LENGTH..];
    // Each is followed by a NUL.
    let needed = key.checked_add(value).and_then(|n| n.checked_add(2));
    if !needed.is_some_and(|needed| needed <= rest.len()) {
        return Err(PAST);
    }
    if rest[key] != 0 || rest[key + 1 + value] != 0 {
        return Err("a property without its NUL");
    }
    Ok((
        rest[..key].to_vec(),
        rest[key + 1..key + 1 + value].to_vec(),
    ))
}
