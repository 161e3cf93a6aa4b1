//! Android Verified Boot of an APEX payload: footer, vbmeta, signature (AOSP external/avb, libavb's
//! headers; all integers big endian).
//!
//! The vbmeta image is read once. What was verified is that copy, and everything is taken from it.

mod descriptor;
mod rsa;
pub mod sha;

pub use descriptor::{hex, HashtreeDescriptor, Property};

use super::source::Source;
use super::{Step, Window};
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;

/// Largest vbmeta image that is read (VBMETA_MAX_SIZE of libavb's users).
pub const MAX_VBMETA: u64 = 64 << 10;
const FOOTER: u64 = 64;
const HEADER: usize = 256;

/// A structure that cannot be right: which, where inside what was read, and why.
pub(super) struct Bad(&'static str, u64, &'static str);

impl Bad {
    /// As a failure; `base` is the position of what was read in the file.
    fn at(self, base: u64) -> Failure {
        let Bad(structure, offset, why) = self;
        let text = format!("{structure} at byte {}: {why}", base + offset);
        Step::Avb
            .fail(Code::NotAnApex, text)
            .remedy("the payload is damaged or was not signed by apexer: copy the file again")
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

crate::named_enum! {
    /// How a vbmeta image is signed (AvbAlgorithmType).
    Algorithm {
        /// Not at all.
        None = 0 "NONE",
        /// SHA-256, RSA of 2048 bits.
        Sha256Rsa2048 = 1 "SHA256_RSA2048",
        /// SHA-256, RSA of 4096 bits.
        Sha256Rsa4096 = 2 "SHA256_RSA4096",
        /// SHA-256, RSA of 8192 bits.
        Sha256Rsa8192 = 3 "SHA256_RSA8192",
        /// SHA-512, RSA of 2048 bits.
        Sha512Rsa2048 = 4 "SHA512_RSA2048",
        /// SHA-512, RSA of 4096 bits.
        Sha512Rsa4096 = 5 "SHA512_RSA4096",
        /// SHA-512, RSA of 8192 bits.
        Sha512Rsa8192 = 6 "SHA512_RSA8192",
    }
}

/// DER of a DigestInfo up to the digest (RFC 8017 section 9.2, note 1).
const SHA256_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];
const SHA512_INFO: [u8; 19] = [
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05,
    0x00, 0x04, 0x40,
];

impl Algorithm {
    fn is_sha512(self) -> bool {
        self as i32 >= Algorithm::Sha512Rsa2048 as i32
    }

    /// Bits of the key; 0 for none.
    pub fn bits(self) -> usize {
        match self {
            Algorithm::None => 0,
            Algorithm::Sha256Rsa2048 | Algorithm::Sha512Rsa2048 => 2048,
            Algorithm::Sha256Rsa4096 | Algorithm::Sha512Rsa4096 => 4096,
            Algorithm::Sha256Rsa8192 | Algorithm::Sha512Rsa8192 => 8192,
        }
    }
}

/// One vbmeta image, in memory, taken apart but not verified: see [`verify`].
#[derive(Debug)]
pub struct Vbmeta {
    /// Where it lies in the file.
    pub window: Window,
    /// Bytes of the file system before AVB added anything, by the footer, which nothing signs.
    pub original_size: Bytes,
    /// How it is signed.
    pub algorithm: Algorithm,
    /// For rollback protection.
    pub rollback_index: u64,
    /// Bit 0: hash trees disabled; bit 1: verification disabled.
    pub flags: u32,
    /// Who made it, e.g. `avbtool 1.2.0`.
    pub release: String,
    /// The hash tree, where there is a descriptor of one.
    pub hashtree: Option<HashtreeDescriptor>,
    /// Property descriptors.
    pub properties: Vec<Property>,
    image: Vec<u8>,
    authentication: usize,
    key: std::ops::Range<usize>,
    hash: std::ops::Range<usize>,
    signature: std::ops::Range<usize>,
}

/// `offset` and `size` as a range inside a block of `length` bytes that begins at `base`.
fn inside(base: usize, length: u64, offset: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let end = offset.checked_add(size).filter(|end| *end <= length)?;
    Some(base + offset as usize..base + end as usize)
}

impl Vbmeta {
    /// Reads footer and vbmeta image of the payload that lies in `payload`.
    ///
    /// # Errors
    /// `NOT_AN_APEX` with structure and position; `UNSUPPORTED` for a newer format;
    /// `DEVICE_FAILED` where the file cannot be read.
    pub fn read(source: &(impl Source + ?Sized), payload: Window) -> Result<Vbmeta> {
        let end = payload.end().filter(|end| *end <= source.size());
        let end =
            end.ok_or_else(|| Bad("payload", 0, "it runs past the file").at(payload.offset.0))?;
        if payload.length.0 < FOOTER {
            return Err(Bad("AVB footer", 0, "the payload is too short").at(payload.offset.0));
        }
        let position = end.0 - FOOTER;
        let mut footer = [0; FOOTER as usize];
        read(source, "AVB footer", position, &mut footer)?;
        let bad = |why| Bad("AVB footer", 0, why).at(position);
        if &footer[..4] != b"AVBf" {
            return Err(bad("no `AVBf`: the payload is not signed, or cut off"));
        }
        if be32(&footer, 4) != 1 {
            return Err(newer(bad("a major version other than 1")));
        }
        let (original, offset, size) = (be64(&footer, 12), be64(&footer, 20), be64(&footer, 28));
        let room = payload.length.0 - FOOTER;
        if !offset.checked_add(size).is_some_and(|end| end <= room) {
            return Err(bad("the vbmeta image runs into the footer"));
        }
        if original > offset {
            return Err(bad("the original image runs into the vbmeta image"));
        }
        if size > MAX_VBMETA {
            return Err(bad("a vbmeta image of more than 64 KiB"));
        }
        let window = Window {
            offset: Bytes(payload.offset.0 + offset),
            length: Bytes(size),
        };
        let mut image = vec![0; size as usize];
        read(source, "vbmeta image", window.offset.0, &mut image)?;
        let vbmeta = Vbmeta::parse(image, window, Bytes(original))?;
        if let Some(tree) = &vbmeta.hashtree {
            if !tree.ends_before(offset) {
                let why = "image, tree or FEC data run into the vbmeta image";
                return Err(Bad("hash tree descriptor", 0, why).at(window.offset.0));
            }
        }
        Ok(vbmeta)
    }

    fn parse(image: Vec<u8>, window: Window, original_size: Bytes) -> Result<Vbmeta> {
        let bad = |why| Bad("vbmeta header", 0, why).at(window.offset.0);
        if image.len() < HEADER {
            return Err(bad("the image is shorter than a header"));
        }
        if &image[..4] != b"AVB0" {
            return Err(bad("no `AVB0`"));
        }
        if be32(&image, 4) != 1 {
            return Err(newer(bad("a major version other than 1")));
        }
        let (auth, aux) = (be64(&image, 12), be64(&image, 20));
        let total = auth
            .checked_add(aux)
            .and_then(|n| n.checked_add(HEADER as u64));
        if auth % 64 != 0 || aux % 64 != 0 || !total.is_some_and(|n| n <= image.len() as u64) {
            return Err(bad(
                "its blocks are no multiples of 64 or run past the image",
            ));
        }
        let algorithm = i32::try_from(be32(&image, 28))
            .ok()
            .and_then(Algorithm::from_number);
        let algorithm = algorithm.ok_or_else(|| newer(bad("an unknown algorithm")))?;
        let authentication = HEADER + auth as usize;
        let range = |aux_block: bool, at: usize| {
            let (base, length) = if aux_block {
                (authentication, aux)
            } else {
                (HEADER, auth)
            };
            inside(base, length, be64(&image, at), be64(&image, at + 8))
                .ok_or_else(|| bad("hash, signature, key or descriptors run past their block"))
        };
        let (hash, signature, key) = (range(false, 32)?, range(false, 48)?, range(true, 64)?);
        range(true, 80)?;
        let descriptors = range(true, 96)?;
        let found = descriptor::parse(&image[descriptors.clone()])
            .map_err(|bad| bad.at(window.offset.0 + descriptors.start as u64))?;
        let release = &image[128..176];
        let end = release
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(release.len());
        Ok(Vbmeta {
            window,
            original_size,
            algorithm,
            rollback_index: be64(&image, 112),
            flags: be32(&image, 120),
            release: String::from_utf8_lossy(&release[..end]).into_owned(),
            hashtree: found.hashtree,
            properties: found.properties,
            authentication,
            key,
            hash,
            signature,
            image,
        })
    }

    /// The key inside, as a blob. Whether it is one that is trusted is [`verify`]'s question.
    pub fn public_key(&self) -> &[u8] {
        &self.image[self.key.clone()]
    }
}

/// Checks digest and signature of the image by the key inside it, and that key against `trusted`.
///
/// # Errors
/// `BAD_SIGNATURE` with structure and position: not signed, another digest, another signer, a
/// signature that does not hold.
pub fn verify(vbmeta: &Vbmeta, trusted: &[u8]) -> Result<()> {
    verify_signature(vbmeta)?;
    if vbmeta.public_key() != trusted {
        let at = vbmeta.window.offset.0 + vbmeta.key.start as u64;
        return Err(unsigned(at, "vbmeta key", "it is not the trusted key").remedy(
            "the file was signed by somebody else: take one of the same vendor as the installed",
        ));
    }
    Ok(())
}

/// Checks digest and signature by the key inside alone: whole, but by whom is not said.
///
/// # Errors
/// As [`verify`].
pub fn verify_signature(vbmeta: &Vbmeta) -> Result<()> {
    let base = vbmeta.window.offset.0;
    let algorithm = vbmeta.algorithm;
    if algorithm == Algorithm::None {
        return Err(unsigned(base, "vbmeta header", "it is not signed (NONE)"));
    }
    if vbmeta.flags != 0 {
        return Err(unsigned(
            base,
            "vbmeta header",
            "its flags disable the verification",
        ));
    }
    let image = &vbmeta.image;
    let aux = be64(image, 20) as usize;
    // Header and auxiliary block, which the authentication block between them is about.
    let parts = [
        &image[..HEADER],
        &image[vbmeta.authentication..vbmeta.authentication + aux],
    ];
    let (digest, prefix) = if algorithm.is_sha512() {
        (sha::sha512(&parts).to_vec(), SHA512_INFO)
    } else {
        (sha::sha256(&parts).to_vec(), SHA256_INFO)
    };
    if image[vbmeta.hash.clone()] != digest[..] {
        let at = base + vbmeta.hash.start as u64;
        return Err(unsigned(
            at,
            "vbmeta digest",
            "it is not that of header and descriptors",
        ));
    }
    let key_at = base + vbmeta.key.start as u64;
    let key = rsa::PublicKey::parse(vbmeta.public_key())
        .map_err(|why| unsigned(key_at, "vbmeta key", why))?;
    if key.bits() != algorithm.bits() {
        return Err(unsigned(
            key_at,
            "vbmeta key",
            "it is not of the algorithm's length",
        ));
    }
    if !key.verify(&image[vbmeta.signature.clone()], &prefix, &digest) {
        let at = base + vbmeta.signature.start as u64;
        return Err(unsigned(at, "vbmeta signature", "it does not hold"));
    }
    Ok(())
}

fn newer(failure: Failure) -> Failure {
    Failure {
        code: Code::Unsupported,
        ..failure
    }
}

fn unsigned(at: u64, structure: &str, why: &str) -> Failure {
    let text = format!("{structure} at byte {at}: {why}");
    Step::Avb
        .fail(Code::BadSignature, text)
        .remedy("do not use the file: it is damaged, or was changed after signing")
}

fn read(
    source: &(impl Source + ?Sized),
    structure: &str,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    source.read_at(Bytes(offset), buffer).map_err(|errno| {
        let text = format!("cannot read the {structure} at byte {offset}");
        Step::Avb
            .fail(Code::DeviceFailed, text)
            .errno(errno)
            .remedy("the file became shorter or its disk fails: see the kernel log")
    })
}

#[cfg(test)]
mod tests;
