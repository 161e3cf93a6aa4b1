use super::*;
use crate::images::apex::{Contents, Manifest};
use apexgen::{noise, ApexBuilder, Key, Signing};

fn image() -> Vec<u8> {
    noise(8192, 4)
}

fn signed(signing: &Signing) -> ApexBuilder {
    ApexBuilder::new("com.example.one", 3).signed(&image(), signing)
}

fn archive() -> Vec<u8> {
    signed(&Signing::by(Key::Rsa2048)).build().unwrap().0
}

type Verified = (Manifest, Window, HashtreeDescriptor, u64, Vec<Property>);

/// All that is believed of a file, once it is verified by the key that signed [`archive`].
fn believe(bytes: &[u8], key: &[u8]) -> Result<Verified> {
    let contents = Contents::read(bytes)?;
    let vbmeta = Vbmeta::read(bytes, contents.payload)?;
    verify(&vbmeta, key)?;
    let tree = vbmeta.hashtree.expect("what was signed has one");
    let properties = vbmeta.properties;
    Ok((
        contents.manifest,
        contents.payload,
        tree,
        vbmeta.rollback_index,
        properties,
    ))
}

fn is_located(failure: &Failure) -> bool {
    failure.message.contains("byte ")
        || failure.message.contains("no apex_payload.img")
        || failure.code == Code::PayloadCompressed
}

#[test]
fn every_algorithm_is_verified_and_tied_to_its_key() {
    let table = [
        (Key::Rsa2048, false, Algorithm::Sha256Rsa2048),
        (Key::Rsa4096, false, Algorithm::Sha256Rsa4096),
        (Key::Rsa8192, false, Algorithm::Sha256Rsa8192),
        (Key::Rsa2048, true, Algorithm::Sha512Rsa2048),
        (Key::Rsa4096, true, Algorithm::Sha512Rsa4096),
        (Key::Rsa8192, true, Algorithm::Sha512Rsa8192),
    ];
    for (key, sha512, algorithm) in table {
        let signing = Signing {
            sha512,
            rollback_index: 9,
            ..Signing::by(key)
        };
        let (bytes, window) = signed(&signing).build().unwrap();
        let payload = Contents::read(bytes.as_slice()).unwrap().payload;
        assert_eq!(payload.offset.0, window.offset);
        let vbmeta = Vbmeta::read(bytes.as_slice(), payload).unwrap();
        assert_eq!(vbmeta.algorithm, algorithm);
        assert_eq!(vbmeta.rollback_index, 9);
        assert_eq!(vbmeta.release, "apexgen");
        let property = (b"apex.key".to_vec(), b"com.example.test".to_vec());
        assert_eq!(vbmeta.properties, [property]);
        assert_eq!(verify(&vbmeta, &key.blob()), Ok(()), "{algorithm}");
        let other = verify(&vbmeta, &Key::Other2048.blob()).unwrap_err();
        assert_eq!(other.code, Code::BadSignature, "{algorithm}");
        assert!(other.message.contains("not the trusted key"), "{other}");
    }
}

#[test]
fn the_hash_tree_is_the_one_that_was_made() {
    for stored in [true, false] {
        let signing = Signing {
            tree: stored,
            ..Signing::by(Key::Rsa2048)
        };
        let image = noise(4096 * 200, 1);
        let (tree, root) = signing.hash_tree(&image);
        let payload = signing.payload(&image);
        let window = Window {
            offset: Bytes(0),
            length: Bytes(payload.len() as u64),
        };
        let found = Vbmeta::read(payload.as_slice(), window)
            .unwrap()
            .hashtree
            .unwrap();
        assert_eq!(found.image_size, image.len() as u64);
        assert_eq!(found.full_tree_size(), tree.len() as u64);
        assert_eq!(found.tree_size, if stored { tree.len() as u64 } else { 0 });
        assert_eq!((found.root_digest, found.salt), (root, signing.salt));
    }
}

/// Every byte of header, digest, signature and auxiliary block.
#[test]
fn no_changed_byte_of_the_vbmeta_image_is_verified() {
    let payload = Signing::by(Key::Rsa2048).payload(&image());
    let window = Window {
        offset: Bytes(0),
        length: Bytes(payload.len() as u64),
    };
    let key = Key::Rsa2048.blob();
    let place = Vbmeta::read(payload.as_slice(), window).unwrap().window;
    let check = |bytes: &[u8]| Vbmeta::read(bytes, window).and_then(|v| verify(&v, &key));
    assert_eq!(check(&payload), Ok(()));
    // AVB signs all but the padding behind digest and signature, of which nothing is read.
    let first = place.offset.0 + 256;
    let padding = first + 32 + 256..first + 320;
    for at in (place.offset.0..place.end().unwrap().0).filter(|at| !padding.contains(at)) {
        let mut bytes = payload.clone();
        bytes[at as usize] ^= 1 << (at % 8);
        let failure = check(&bytes).expect_err("a changed byte was verified");
        assert!(is_located(&failure), "{at}: {failure}");
    }
}

#[test]
fn every_cut_of_a_payload_and_of_an_archive_is_refused() {
    let payload = Signing::by(Key::Rsa2048).payload(&image());
    for length in 0..payload.len() {
        let window = Window {
            offset: Bytes(0),
            length: Bytes(length as u64),
        };
        let failure = Vbmeta::read(&payload[..length], window).unwrap_err();
        assert_eq!(failure.code, Code::NotAnApex, "{length}");
        assert!(is_located(&failure), "{length}: {failure}");
    }
    let (whole, key) = (archive(), Key::Rsa2048.blob());
    for length in 0..whole.len() {
        assert!(believe(&whole[..length], &key).is_err(), "{length}");
    }
}

/// Damage of one to four bytes anywhere but in the image and its tree, which dm-verity covers.
#[test]
fn nothing_is_believed_that_was_not_signed() {
    let (whole, key) = (archive(), Key::Rsa2048.blob());
    let truth = believe(&whole, &key).unwrap();
    let start = truth.1.offset.0 as usize;
    let covered = start..start + 3 * 4096;
    let vbmeta = Vbmeta::read(whole.as_slice(), truth.1)
        .unwrap()
        .window
        .end()
        .unwrap()
        .0 as usize;
    // The zeros between the image and the footer say nothing.
    let footer = truth.1.end().unwrap().0 as usize - 64;
    let places: Vec<usize> = (0..whole.len())
        .filter(|at| !covered.contains(at) && !(vbmeta..footer).contains(at))
        .collect();
    let (mut refused, mut same) = (0, 0);
    for case in 0..12_000u64 {
        let random = noise(64, case);
        let word = |i: usize| u64::from_le_bytes(random[8 * i..8 * i + 8].try_into().unwrap());
        let mut bytes = whole.clone();
        for i in 0..=(word(0) % 4) as usize {
            let at = places[(word(i + 1) % places.len() as u64) as usize];
            bytes[at] = match word(5) % 3 {
                0 => 0xff,
                1 => bytes[at] ^ 1 << (word(6) % 8),
                _ => word(6) as u8,
            };
        }
        match believe(&bytes, &key) {
            Ok(found) => {
                assert_eq!(found, truth, "case {case}");
                same += 1;
            }
            Err(failure) => {
                assert!(is_located(&failure), "case {case}: {failure}");
                refused += 1;
            }
        }
    }
    assert!(
        refused > 2_500 && same > 50,
        "{refused} refused, {same} harmless"
    );
}

#[test]
fn hostile_sizes_are_refused_before_they_are_believed() {
    let payload = Signing::by(Key::Rsa2048).payload(&image());
    let end = payload.len() - 64;
    let window = Window {
        offset: Bytes(0),
        length: Bytes(payload.len() as u64),
    };
    let place = Vbmeta::read(payload.as_slice(), window).unwrap().window;
    let header = place.offset.0 as usize;
    let fields = [12, 20, 28].map(|at| end + at).into_iter();
    let header = [12, 20, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104].map(|at| header + at);
    for at in fields.chain(header) {
        for value in [u64::MAX, u64::MAX - 63, 1 << 63, 1 << 40, 1 << 32] {
            let mut bytes = payload.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
            let failure = Vbmeta::read(bytes.as_slice(), window).unwrap_err();
            assert_eq!(failure.code, Code::NotAnApex, "{at} {value:x}: {failure}");
        }
    }
}

#[test]
fn the_archive_s_key_may_be_another_than_the_signer_s() {
    let builder = signed(&Signing::by(Key::Rsa2048)).archive_key(Key::Other2048);
    let bytes = builder.build().unwrap().0;
    let contents = Contents::read(bytes.as_slice()).unwrap();
    let vbmeta = Vbmeta::read(bytes.as_slice(), contents.payload).unwrap();
    assert_eq!(verify_signature(&vbmeta), Ok(()));
    let failure = verify(&vbmeta, &contents.public_key.unwrap()).unwrap_err();
    assert_eq!(failure.code, Code::BadSignature);
}
