//! SHA-256 and SHA-512 (FIPS 180-4).
//!
//! Written here because AOSP carries sha2 from 2026 on only, and recovery has no variant of it. The
//! round constants are computed from what FIPS 180-4 section 4.2 defines them to be.

/// The first 80 primes give the round constants.
const PRIMES: [u64; 80] = primes();

const fn primes() -> [u64; 80] {
    let mut found = [0; 80];
    let (mut count, mut candidate) = (0, 2);
    while count < 80 {
        let (mut divisor, mut prime) = (2, true);
        while divisor * divisor <= candidate {
            if candidate % divisor == 0 {
                prime = false;
            }
            divisor += 1;
        }
        if prime {
            found[count] = candidate;
            count += 1;
        }
        candidate += 1;
    }
    found
}

/// The product of three numbers, `a * b * c`, in 64-bit limbs, lowest first.
const fn triple(a: u128, b: u128, c: u64) -> [u64; 5] {
    let low = (a as u64 as u128, a >> 64);
    let high = (b as u64 as u128, b >> 64);
    let mut product = [0u64; 5];
    let p0 = low.0 * high.0;
    let p1 = low.0 * high.1 + (p0 >> 64);
    let p2 = low.1 * high.0 + (p1 as u64 as u128);
    let p3 = low.1 * high.1 + (p1 >> 64) + (p2 >> 64);
    let square = [p0 as u64, p2 as u64, p3 as u64, (p3 >> 64) as u64];
    let (mut i, mut carry) = (0, 0u128);
    while i < 4 {
        let sum = square[i] as u128 * c as u128 + carry;
        product[i] = sum as u64;
        carry = sum >> 64;
        i += 1;
    }
    product[4] = carry as u64;
    product
}

/// The first 64 bits of the fractional part of a prime's root: square (`cube` false) or cube.
const fn root(prime: u64, cube: bool) -> u64 {
    // The largest r with r^k <= prime * 2^(64 k), by bits; roots of primes below 410 are below 32.
    let (mut r, mut bit) = (0u128, 69);
    loop {
        let next = r | 1 << bit;
        let fits = if cube {
            // next is below 2^70: its cube has at most 210 bits.
            let square = triple(next, next, 1);
            let mut product = [0u64; 5];
            let limbs = [next as u64, (next >> 64) as u64];
            let mut j = 0;
            while j < 2 {
                let (mut i, mut carry) = (0, 0u128);
                while i + j < 5 {
                    let sum = square[i] as u128 * limbs[j] as u128 + product[i + j] as u128 + carry;
                    product[i + j] = sum as u64;
                    carry = sum >> 64;
                    i += 1;
                }
                j += 1;
            }
            product[4] == 0 && product[3] < prime
        } else {
            let square = triple(next, next, 1);
            square[4] == 0 && square[3] == 0 && square[2] < prime
        };
        if fits {
            r = next;
        }
        if bit == 0 {
            return r as u64;
        }
        bit -= 1;
    }
}

const fn constants() -> [u64; 80] {
    let mut all = [0; 80];
    let mut i = 0;
    while i < 80 {
        all[i] = root(PRIMES[i], true);
        i += 1;
    }
    all
}

const fn initial() -> [u64; 8] {
    let mut all = [0; 8];
    let mut i = 0;
    while i < 8 {
        all[i] = root(PRIMES[i], false);
        i += 1;
    }
    all
}

const K: [u64; 80] = constants();
const START: [u64; 8] = initial();

/// The message with its padding, cut into blocks of `block` bytes; `length` bytes hold the length.
fn blocks(parts: &[&[u8]], block: usize, length: usize, mut each: impl FnMut(&[u8])) {
    let total: u64 = parts.iter().map(|p| p.len() as u64).sum();
    let mut buffer = Vec::with_capacity(2 * block);
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let take = rest.len().min(block - buffer.len());
            buffer.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            if buffer.len() == block {
                each(&buffer);
                buffer.clear();
            }
        }
    }
    buffer.push(0x80);
    let end = if buffer.len() + length > block {
        2 * block
    } else {
        block
    };
    buffer.resize(end - 8, 0);
    buffer.extend_from_slice(&(total * 8).to_be_bytes());
    buffer.chunks_exact(block).for_each(each);
}

macro_rules! sha {
    ($(#[$doc:meta])* $name:ident, $word:ty, $out:literal, $rounds:literal, $shift:literal,
     $S0:expr, $S1:expr, $s0:expr, $s1:expr) => {
        $(#[$doc])*
        pub fn $name(parts: &[&[u8]]) -> [u8; $out] {
            const WORD: usize = std::mem::size_of::<$word>();
            let rotate = |x: $word, by: [u32; 3]| {
                x.rotate_right(by[0]) ^ x.rotate_right(by[1]) ^ x.rotate_right(by[2])
            };
            let schedule = |x: $word, by: [u32; 3]| {
                x.rotate_right(by[0]) ^ x.rotate_right(by[1]) ^ x >> by[2]
            };
            let mut state = START.map(|h| (h >> $shift) as $word);
            blocks(parts, 16 * WORD, 2 * WORD, |block| {
                let mut w = [0; $rounds];
                for (slot, bytes) in w.iter_mut().zip(block.chunks_exact(WORD)) {
                    *slot = bytes.iter().fold(0, |v: $word, b| v << 8 | <$word>::from(*b));
                }
                for t in 16..$rounds {
                    w[t] = schedule(w[t - 2], $s1)
                        .wrapping_add(w[t - 7])
                        .wrapping_add(schedule(w[t - 15], $s0))
                        .wrapping_add(w[t - 16]);
                }
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
                for t in 0..$rounds {
                    let t1 = h
                        .wrapping_add(rotate(e, $S1))
                        .wrapping_add(e & f ^ !e & g)
                        .wrapping_add((K[t] >> $shift) as $word)
                        .wrapping_add(w[t]);
                    let t2 = rotate(a, $S0).wrapping_add(a & b ^ a & c ^ b & c);
                    (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
                    (d, c, b, a) = (c, b, a, t1.wrapping_add(t2));
                }
                for (sum, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *sum = sum.wrapping_add(value);
                }
            });
            let mut out = [0; $out];
            for (bytes, word) in out.chunks_exact_mut(WORD).zip(state) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
            out
        }
    };
}

sha!(
    /// SHA-256 of the parts, one behind the other.
    sha256, u32, 32, 64, 32,
    [2, 13, 22], [6, 11, 25], [7, 18, 3], [17, 19, 10]
);
sha!(
    /// SHA-512 of the parts, one behind the other.
    sha512, u64, 64, 80, 0,
    [28, 34, 39], [14, 18, 41], [1, 8, 7], [19, 61, 6]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The examples of FIPS 180-4, and the first constants of its section 4.2.
    #[test]
    fn known_answers() {
        assert_eq!(K[0], 0x428a_2f98_d728_ae22);
        assert_eq!(K[79], 0x6c44_198c_4a47_5817);
        assert_eq!(START[0], 0x6a09_e667_f3bc_c908);
        let table = [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (message, want) in table {
            assert_eq!(hex(&sha256(&[message.as_bytes()])), want);
        }
        assert_eq!(
            hex(&sha512(&[b"abc"])),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        );
        let million = vec![b'a'; 1_000_000];
        assert_eq!(
            hex(&sha256(&[&million])),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn parts_are_one_message() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
        for cut in 0..300 {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(sha256(&[a, b]), sha256(&[&bytes]));
            assert_eq!(sha512(&[a, b]), sha512(&[&bytes]));
        }
    }
}
