//! Verification of RSA signatures (PKCS #1 v1.5, RFC 8017 section 8.2.2) by AVB's key blobs.
//!
//! Public data alone, so nothing here has to take constant time. The exponent is 65537, as for
//! libavb.

/// A public key: u32 bits, u32 -1/n mod 2^32, n, 2^(2 bits) mod n, big endian (avb_crypto.h).
#[derive(Debug)]
pub struct PublicKey {
    /// Lowest limb first.
    n: Vec<u64>,
    /// -1/n mod 2^64.
    n0: u64,
    rr: Vec<u64>,
}

const HEADER: usize = 8;

fn limbs(bytes: &[u8]) -> Vec<u64> {
    let limb = |chunk: &[u8]| chunk.iter().fold(0, |v, b| v << 8 | u64::from(*b));
    bytes.rchunks(8).map(limb).collect()
}

/// a >= b, of equal lengths.
fn at_least(a: &[u64], b: &[u64]) -> bool {
    a.iter().rev().ge(b.iter().rev())
}

fn subtract(a: &mut [u64], b: &[u64]) {
    let mut borrow = false;
    for (a, b) in a.iter_mut().zip(b) {
        let (x, one) = a.overflowing_sub(*b);
        let (x, two) = x.overflowing_sub(u64::from(borrow));
        *a = x;
        borrow = one || two;
    }
}

impl PublicKey {
    /// Reads a blob.
    ///
    /// # Errors
    /// What is wrong with it. Its two derived numbers must be right: a key has one blob.
    pub fn parse(blob: &[u8]) -> Result<PublicKey, &'static str> {
        let word = |at: usize| blob.get(at..at + 4).map(|b| limbs(b)[0]);
        let bits = word(0).ok_or("the key is shorter than its header")?;
        if ![2048, 4096, 8192].contains(&bits) {
            return Err("the key has not 2048, 4096 or 8192 bits");
        }
        let size = bits as usize / 8;
        if blob.len() != HEADER + 2 * size {
            return Err("the key's length is not what its bits need");
        }
        let n = limbs(&blob[HEADER..HEADER + size]);
        if n[0] & 1 == 0 || n[n.len() - 1] >> 63 == 0 {
            return Err("the key's modulus is even or too short");
        }
        // Newton: each round doubles the bits that are right, from 3 on.
        let inverse = (0..5).fold(n[0], |x, _| {
            x.wrapping_mul(2u64.wrapping_sub(n[0].wrapping_mul(x)))
        });
        let n0 = inverse.wrapping_neg();
        let mut rr = vec![0; n.len()];
        rr[0] = 1;
        for _ in 0..2 * bits {
            let carry = rr[rr.len() - 1] >> 63 == 1;
            for i in (1..rr.len()).rev() {
                rr[i] = rr[i] << 1 | rr[i - 1] >> 63;
            }
            rr[0] <<= 1;
            if carry || at_least(&rr, &n) {
                subtract(&mut rr, &n);
            }
        }
        let n0_is_right = word(4) == Some(n0 & 0xffff_ffff);
        if !n0_is_right || limbs(&blob[HEADER + size..]) != rr {
            return Err("the key's derived numbers are not those of its modulus");
        }
        Ok(PublicKey { n, n0, rr })
    }

    /// Bits of the modulus.
    pub fn bits(&self) -> usize {
        self.n.len() * 64
    }

    /// a * b / 2^bits mod n (Montgomery, operand scanning).
    fn multiply(&self, a: &[u64], b: &[u64]) -> Vec<u64> {
        let size = self.n.len();
        let mut t = vec![0u64; size + 2];
        for a in a {
            let mut carry = 0u128;
            for (t, b) in t.iter_mut().zip(b) {
                carry += u128::from(*a) * u128::from(*b) + u128::from(*t);
                *t = carry as u64;
                carry >>= 64;
            }
            carry += u128::from(t[size]);
            t[size] = carry as u64;
            t[size + 1] = (carry >> 64) as u64;
            let m = u128::from(t[0].wrapping_mul(self.n0));
            let mut carry = (m * u128::from(self.n[0]) + u128::from(t[0])) >> 64;
            for i in 1..size {
                carry += m * u128::from(self.n[i]) + u128::from(t[i]);
                t[i - 1] = carry as u64;
                carry >>= 64;
            }
            carry += u128::from(t[size]);
            t[size - 1] = carry as u64;
            t[size] = t[size + 1] + (carry >> 64) as u64;
        }
        let over = t[size] != 0;
        t.truncate(size);
        if over || at_least(&t, &self.n) {
            subtract(&mut t, &self.n);
        }
        t
    }

    /// Whether `signature` is one of `digest`, whose DER DigestInfo begins with `prefix`.
    pub fn verify(&self, signature: &[u8], prefix: &[u8], digest: &[u8]) -> bool {
        let size = self.bits() / 8;
        if signature.len() != size {
            return false;
        }
        let s = limbs(signature);
        if at_least(&s, &self.n) {
            return false;
        }
        let base = self.multiply(&s, &self.rr);
        let power = (0..16).fold(base, |x, _| self.multiply(&x, &x));
        let mut message = vec![0xff; size];
        let hash = size - digest.len();
        let info = hash - prefix.len();
        message[..2].copy_from_slice(&[0, 1]);
        message[info - 1] = 0;
        message[info..hash].copy_from_slice(prefix);
        message[hash..].copy_from_slice(digest);
        self.multiply(&power, &s) == limbs(&message)
    }
}
