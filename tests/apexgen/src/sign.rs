//! AVB by hand: hash tree, vbmeta image, footer, signature. Nothing here is the product's code, so
//! that each is a witness of the other.

use sha2::{Digest, Sha256, Sha512};

/// Bytes of a block of data and of the tree.
const BLOCK: usize = 4096;
const DER_SHA256: &[u8] =
    b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
const DER_SHA512: &[u8] =
    b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40";

/// The test keys; see keys/README.md. Anybody can read them: they sign nothing but tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// 2048 bits.
    Rsa2048,
    /// 4096 bits.
    Rsa4096,
    /// 8192 bits.
    Rsa8192,
    /// Somebody else's, 2048 bits.
    Other2048,
}

impl Key {
    /// Every one of them.
    pub const ALL: [Key; 4] = [Key::Rsa2048, Key::Rsa4096, Key::Rsa8192, Key::Other2048];

    /// Modulus and private exponent.
    fn numbers(self) -> (Number, Number) {
        let text = match self {
            Key::Rsa2048 => include_str!("../keys/rsa2048.txt"),
            Key::Rsa4096 => include_str!("../keys/rsa4096.txt"),
            Key::Rsa8192 => include_str!("../keys/rsa8192.txt"),
            Key::Other2048 => include_str!("../keys/other2048.txt"),
        };
        let mut lines = text.lines().map(Number::from_hex);
        let mut next = || lines.next().expect("a key file has two lines");
        (next(), next())
    }

    /// Bits of the modulus.
    pub fn bits(self) -> usize {
        self.numbers().0 .0.len() * 32
    }

    /// The public key as AVB writes it.
    pub fn blob(self) -> Vec<u8> {
        let (n, _) = self.numbers();
        let bits = n.0.len() * 32;
        let mut inverse = 1u32;
        // -1/n mod 2^32, bit by bit.
        for bit in 1..32 {
            if n.0[0].wrapping_mul(inverse) >> bit & 1 == 1 {
                inverse |= 1 << bit;
            }
        }
        let mut blob = (bits as u32).to_be_bytes().to_vec();
        blob.extend(inverse.wrapping_neg().to_be_bytes());
        blob.extend(n.to_bytes());
        blob.extend(n.power_of_two(2 * bits).to_bytes());
        blob
    }

    /// The signature (PKCS #1 v1.5) of `message`, hashed by SHA-512 or SHA-256.
    pub fn sign(self, message: &[u8], sha512: bool) -> Vec<u8> {
        let (n, d) = self.numbers();
        let (info, digest) = match sha512 {
            true => (DER_SHA512, Sha512::digest(message).to_vec()),
            false => (DER_SHA256, Sha256::digest(message).to_vec()),
        };
        let size = n.0.len() * 4;
        let mut padded = vec![0, 1];
        padded.resize(size - info.len() - digest.len() - 1, 0xff);
        padded.push(0);
        padded.extend(info);
        padded.extend(digest);
        n.power(&Number::from_bytes(&padded), &d).to_bytes()
    }
}

/// A number in limbs of 32 bits, lowest first.
struct Number(Vec<u32>);

impl Number {
    fn from_bytes(bytes: &[u8]) -> Number {
        let limb = |chunk: &[u8]| chunk.iter().fold(0, |v, b| v << 8 | u32::from(*b));
        Number(bytes.rchunks(4).map(limb).collect())
    }

    fn from_hex(text: &str) -> Number {
        let digits = text.trim().as_bytes();
        let digit = |b: &u8| (*b as char).to_digit(16).expect("hexadecimal");
        let limb = |chunk: &[u8]| chunk.iter().fold(0, |v, b| v << 4 | digit(b));
        Number(digits.rchunks(8).map(limb).collect())
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .rev()
            .flat_map(|limb| limb.to_be_bytes())
            .collect()
    }

    /// Subtracts `self` from `value` where that is not smaller; `over` is a bit above `value`.
    fn reduce(&self, value: &mut [u32], over: bool) {
        if !over && value.iter().rev().lt(self.0.iter().rev()) {
            return;
        }
        let mut borrow = 0i64;
        for (limb, n) in value.iter_mut().zip(&self.0) {
            let difference = i64::from(*limb) - i64::from(*n) + borrow;
            *limb = difference as u32;
            borrow = difference >> 32;
        }
    }

    /// 2^exponent mod self.
    fn power_of_two(&self, exponent: usize) -> Number {
        let mut value = vec![0u32; self.0.len()];
        value[0] = 1;
        for _ in 0..exponent {
            let mut carry = 0;
            for limb in &mut value {
                (*limb, carry) = (*limb << 1 | carry, *limb >> 31);
            }
            self.reduce(&mut value, carry == 1);
        }
        Number(value)
    }

    /// a b mod self: product, then Montgomery's reduction; gives a b / 2^bits.
    fn times(&self, a: &[u32], b: &[u32], inverse: u32) -> Vec<u32> {
        let size = self.0.len();
        let mut t = vec![0u32; 2 * size + 1];
        let add = |t: &mut [u32], at: usize, factor: u32, by: &[u32]| {
            let mut carry = 0u64;
            for (i, limb) in by.iter().enumerate() {
                carry += u64::from(factor) * u64::from(*limb) + u64::from(t[at + i]);
                t[at + i] = carry as u32;
                carry >>= 32;
            }
            for limb in &mut t[at + by.len()..] {
                carry += u64::from(*limb);
                *limb = carry as u32;
                carry >>= 32;
            }
        };
        for (i, limb) in a.iter().enumerate() {
            add(&mut t, i, *limb, b);
        }
        for i in 0..size {
            let factor = t[i].wrapping_mul(inverse);
            add(&mut t, i, factor, &self.0);
        }
        let over = t[2 * size] != 0;
        let mut result = t[size..2 * size].to_vec();
        self.reduce(&mut result, over);
        result
    }

    /// base^exponent mod self.
    fn power(&self, base: &Number, exponent: &Number) -> Number {
        let bits = self.0.len() * 32;
        let rr = self.power_of_two(2 * bits);
        let mut inverse = 1u32;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u32.wrapping_sub(self.0[0].wrapping_mul(inverse)));
        }
        let inverse = inverse.wrapping_neg();
        let base = self.times(&base.0, &rr.0, inverse);
        let mut value = self.power_of_two(bits).0;
        for limb in exponent.0.iter().rev() {
            for bit in (0..32).rev() {
                value = self.times(&value, &value, inverse);
                if limb >> bit & 1 == 1 {
                    value = self.times(&value, &base, inverse);
                }
            }
        }
        let mut one = vec![0; self.0.len()];
        one[0] = 1;
        Number(self.times(&value, &one, inverse))
    }
}

/// How a payload is signed.
#[derive(Clone, Debug)]
pub struct Signing {
    /// By whom.
    pub key: Key,
    /// SHA-512 for the signature, not SHA-256.
    pub sha512: bool,
    /// Store the hash tree.
    pub tree: bool,
    /// For rollback protection.
    pub rollback_index: u64,
    /// Hashed before each block.
    pub salt: Vec<u8>,
}

impl Signing {
    /// By `key`, SHA-256, tree stored.
    pub fn by(key: Key) -> Signing {
        Signing {
            key,
            sha512: false,
            tree: true,
            rollback_index: 7,
            salt: vec![0x5a; 32],
        }
    }

    /// The tree over `image` (dm-verity format 1), topmost level first, and its root.
    pub fn hash_tree(&self, image: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let digest = |block: &[u8]| {
            Sha256::new()
                .chain_update(&self.salt)
                .chain_update(block)
                .finalize()
                .to_vec()
        };
        let mut tree = Vec::new();
        let mut level = image.to_vec();
        while level.len() > BLOCK {
            level = level.chunks(BLOCK).flat_map(digest).collect();
            level.resize(level.len().next_multiple_of(BLOCK), 0);
            tree.splice(0..0, level.iter().copied());
        }
        (tree, digest(&level))
    }

    /// `image` (a multiple of 4096 bytes) with tree, vbmeta image and footer.
    pub fn payload(&self, image: &[u8]) -> Vec<u8> {
        let (tree, root) = self.hash_tree(image);
        let mut payload = image.to_vec();
        if self.tree {
            payload.extend(&tree);
        }
        let tree_size = payload.len() - image.len();
        let vbmeta_at = payload.len();
        let vbmeta = self.vbmeta(image.len() as u64, tree_size as u64, &root);
        payload.extend(&vbmeta);
        payload.resize(payload.len().next_multiple_of(BLOCK) + BLOCK - 64, 0);
        let mut footer = b"AVBf\0\0\0\x01\0\0\0\0".to_vec();
        for field in [image.len(), vbmeta_at, vbmeta.len()] {
            footer.extend((field as u64).to_be_bytes());
        }
        footer.resize(64, 0);
        payload.extend(footer);
        payload
    }

    fn vbmeta(&self, image: u64, tree: u64, root: &[u8]) -> Vec<u8> {
        let mut aux = descriptor(1, self.hashtree_body(image, tree, root));
        aux.extend(descriptor(
            0,
            property_body(b"apex.key", b"com.example.test"),
        ));
        let descriptors = aux.len();
        let key = self.key.blob();
        aux.extend(&key);
        aux.resize(aux.len().next_multiple_of(64), 0);
        let (hash, signature) = (if self.sha512 { 64 } else { 32 }, self.key.bits() / 8);
        let auth = (hash + signature).next_multiple_of(64);
        let algorithm = match self.key.bits() {
            2048 => 1,
            4096 => 2,
            _ => 3,
        } + if self.sha512 { 3u32 } else { 0 };
        let mut header = b"AVB0\0\0\0\x01\0\0\0\0".to_vec();
        header.extend((auth as u64).to_be_bytes());
        header.extend((aux.len() as u64).to_be_bytes());
        header.extend(algorithm.to_be_bytes());
        let places = [
            0,
            hash,
            hash,
            signature,
            descriptors,
            key.len(),
            0,
            0,
            0,
            descriptors,
        ];
        for place in places {
            header.extend((place as u64).to_be_bytes());
        }
        header.extend(self.rollback_index.to_be_bytes());
        header.resize(128, 0);
        header.extend(b"apexgen");
        header.resize(256, 0);
        let signed = [header.as_slice(), &aux].concat();
        let mut block = match self.sha512 {
            true => Sha512::digest(&signed).to_vec(),
            false => Sha256::digest(&signed).to_vec(),
        };
        block.extend(self.key.sign(&signed, self.sha512));
        block.resize(auth, 0);
        [header, block, aux].concat()
    }

    fn hashtree_body(&self, image: u64, tree: u64, root: &[u8]) -> Vec<u8> {
        let mut body = 1u32.to_be_bytes().to_vec();
        for field in [image, image, tree] {
            body.extend(field.to_be_bytes());
        }
        for field in [BLOCK as u32, BLOCK as u32, 0] {
            body.extend(field.to_be_bytes());
        }
        body.extend([0; 16]);
        body.extend(b"sha256");
        body.resize(88, 0);
        for length in [0, self.salt.len(), root.len(), 0] {
            body.extend((length as u32).to_be_bytes());
        }
        body.resize(164, 0);
        body.extend(&self.salt);
        body.extend(root);
        body
    }
}

fn descriptor(kind: u64, mut body: Vec<u8>) -> Vec<u8> {
    body.resize(body.len().next_multiple_of(8), 0);
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend((body.len() as u64).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn property_body(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut body = (key.len() as u64).to_be_bytes().to_vec();
    body.extend((value.len() as u64).to_be_bytes());
    body.extend([key, b"\0", value, b"\0"].concat());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of what `openssl dgst -sha256|-sha512 -sign` gives for these keys and this text.
    #[test]
    fn signatures_are_openssl_s() {
        let table = [
            (
                Key::Rsa2048,
                "5654412f40abb7ef9773dfd19dae3b496906d735aa737e5e45210e1e25fed855",
                "cdbc51dd76a2da682c4eb098b899d5de4364622d36a015f380411adcd801c0fd",
            ),
            (
                Key::Rsa4096,
                "e4682f7dc9ab0d76f271159b2c85f1c5468f9fa50f7ebbf9da8ac97bc33e3aac",
                "f9cfb4f7ca3f371e1c2f4adb407e53c5813f16bd93ab8b9d10c73175fb5db9db",
            ),
            (
                Key::Rsa8192,
                "e2be24b253d3a7fafbb3364c07ad5971035fb6937a6f15a5724cc55aa512fbc2",
                "744812ae38847ddf6db80fc30ff0e93def5d168ebfe26072bcb7ede21b5b84c3",
            ),
            (
                Key::Other2048,
                "2b919f4140691c709c4d1c04ee35bc26a26f8fd4d8b05a6f412708b7a8a2d029",
                "2a22651e324e58bf387566f1269790d773fd4bc6c71cfe85162ce9a6d65253b2",
            ),
        ];
        for (key, sha256, sha512) in table {
            for (wide, want) in [(false, sha256), (true, sha512)] {
                let digest = Sha256::digest(key.sign(b"known answer", wide));
                let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
                assert_eq!(hex, want, "{key:?} {wide}");
            }
        }
    }
}
