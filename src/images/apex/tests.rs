use super::*;
use apexgen::{noise, ApexBuilder, Corruption, Descriptor, Method};

fn archive(builder: ApexBuilder) -> (Vec<u8>, apexgen::Window) {
    builder.build().unwrap()
}

fn good() -> ApexBuilder {
    ApexBuilder::new("com.example.one", 1)
}

fn code(bytes: &[u8]) -> std::result::Result<Window, Code> {
    find_payload(bytes).map_err(|failure| failure.code)
}

#[test]
fn the_payload_is_found_wherever_the_archive_puts_it() {
    let table: [(&str, ApexBuilder); 11] = [
        ("plain", good()),
        ("comment", good().comment(*b"made by hand")),
        ("longest comment", good().comment(noise(0xffff, 1))),
        ("descriptor", good().descriptor(Descriptor::Signed)),
        (
            "descriptor without signature",
            good().descriptor(Descriptor::Plain),
        ),
        ("zip64 entries", good().zip64_entries()),
        ("zip64 end", good().zip64_end().comment(*b"made by hand")),
        (
            "zip64 and most entries",
            good().zip64_entries().zip64_end().extra_entries(1021),
        ),
        (
            "central extra differs from local",
            good().central_extra(2000),
        ),
        (
            "directory larger than the first read",
            good().extra_entries(300),
        ),
        ("most entries", good().extra_entries(1021)),
    ];
    for (name, builder) in table {
        let (bytes, window) = archive(builder);
        let found = find_payload(bytes.as_slice()).unwrap_or_else(|f| panic!("{name}: {f}"));
        assert_eq!(found.offset.0, window.offset, "{name}");
        assert_eq!(found.length.0, window.length, "{name}");
    }
}

#[test]
fn what_cannot_be_attached_is_refused_by_name() {
    let table: [(&str, ApexBuilder, Code); 7] = [
        (
            "deflated",
            good().method(Method::Deflated),
            Code::PayloadCompressed,
        ),
        (
            "capex",
            good().entry_name("original_apex"),
            Code::PayloadCompressed,
        ),
        ("unaligned", good().alignment(0), Code::PayloadUnaligned),
        (
            "on 512",
            good().alignment(512).entry_name("apex_payload.img"),
            Code::PayloadUnaligned,
        ),
        ("no payload", good().copies(0), Code::NotAnApex),
        ("two payloads", good().copies(2), Code::NotAnApex),
        (
            "too many entries",
            good().extra_entries(1022),
            Code::NotAnApex,
        ),
    ];
    for (name, builder, want) in table {
        let (bytes, _) = archive(builder);
        assert_eq!(code(&bytes), Err(want), "{name}");
    }
}

#[test]
fn a_compressed_apex_is_told_from_a_compressed_payload() {
    let (capex, _) = archive(good().entry_name("original_apex").method(Method::Deflated));
    let message = find_payload(capex.as_slice()).unwrap_err().message;
    assert_eq!(message, "compressed APEX (capex): decompress it first");
}

#[test]
fn each_corruption_is_refused() {
    for corruption in Corruption::ALL {
        let (bytes, _) = archive(good().corrupt(corruption));
        let failure = find_payload(bytes.as_slice()).expect_err("refused");
        assert_eq!(failure.code, Code::NotAnApex, "{corruption:?}: {failure}");
        assert!(
            failure.message.contains(" at byte "),
            "{corruption:?}: {failure}"
        );
        assert!(!failure.remedy.is_empty(), "{corruption:?}");
    }
}

/// An archive for exhaustive tests: small, no comment that could hide a cut.
fn small() -> Vec<u8> {
    archive(good().payload(noise(512, 3))).0
}

#[test]
fn every_truncation_is_refused() {
    let whole = small();
    assert!(code(&whole).is_ok());
    for length in 0..whole.len() {
        assert_eq!(code(&whole[..length]), Err(Code::NotAnApex), "{length}");
    }
}

/// Every byte that is no data of the payload's: to all values inside the records that are read,
/// with every bit flipped elsewhere.
#[test]
fn no_mutation_moves_the_window() {
    let whole = small();
    let truth = code(&whole).unwrap();
    let data = truth.offset.0 as usize..truth.end().unwrap().0 as usize;
    let find = |signature: &[u8]| whole.windows(4).position(|w| w == signature).unwrap();
    let directory = find(b"PK\x01\x02");
    // The second local header is the payload's; its padding is not looked at.
    let first = find(b"PK\x03\x04");
    let local = first
        + 4
        + whole[first + 4..]
            .windows(4)
            .position(|w| w == b"PK\x03\x04")
            .unwrap();
    let read = |at: usize| at >= directory || (local..local + 46).contains(&at);
    let mut refused = 0;
    for position in (0..whole.len()).filter(|p| !data.contains(p)) {
        let mut bytes = whole.clone();
        let values = if read(position) {
            0..=u8::MAX
        } else {
            !whole[position]..=!whole[position]
        };
        for value in values {
            bytes[position] = value;
            match code(&bytes) {
                Ok(window) => assert_eq!(window, truth, "{position}={value}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        refused > 10_000,
        "{refused}: the mutations did not reach the records"
    );
}

#[test]
fn noise_does_not_panic() {
    fn check(mut bytes: Vec<u8>, seed: u64) -> bool {
        // Half of the runs get an end record that points somewhere, to come further in.
        if seed % 2 == 0 {
            let position = bytes.len() as u32;
            let start = (seed >> 8) as u32 % (position + 1);
            bytes.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
            bytes.extend((position - start).to_le_bytes());
            bytes.extend(start.to_le_bytes());
            bytes.extend([0, 0]);
        }
        let size = bytes.len() as u64;
        match code(&bytes) {
            Ok(window) => window.end().is_some_and(|end| end.0 <= size),
            Err(_) => true,
        }
    }
    quickcheck::QuickCheck::new()
        .tests(2000)
        .quickcheck(check as fn(Vec<u8>, u64) -> bool);
}
