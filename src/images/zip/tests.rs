use super::*;
use crate::images::apex::Contents;
use crate::images::FileSource;
use apexgen::{noise, ApexBuilder, Descriptor, Method};

fn good() -> ApexBuilder {
    ApexBuilder::new("com.example.one", 1).payload(noise(512, 3))
}

/// First byte of each entry and the first behind it.
fn spans(bytes: &[u8]) -> (Vec<(u64, u64)>, u64) {
    let directory = Directory::read(bytes).unwrap();
    let mut spans = Vec::new();
    let limit = directory.offset;
    let read = directory.for_each(|entry| {
        let data = entry.locate(bytes, limit)?;
        spans.push(entry.span(bytes, limit, data)?);
        Ok(())
    });
    read.unwrap();
    (spans, limit)
}

/// The archives are dense, so that a descriptor left out or counted wrongly leaves a gap.
#[test]
fn entries_and_their_descriptors_fill_the_archive() {
    let kinds = [None, Some(Descriptor::Signed), Some(Descriptor::Plain)];
    for kind in kinds {
        for (wide, empty) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
            let mut builder = good().extra_entries(empty);
            if let Some(kind) = kind {
                builder = builder.descriptor(kind);
            }
            if wide {
                builder = builder.zip64_entries();
            }
            let (spans, limit) = spans(&builder.build().unwrap().0);
            let mut at = 0;
            for (start, end) in spans {
                assert_eq!(start, at, "{kind:?} {wide}");
                at = end;
            }
            assert_eq!(at, limit, "{kind:?} {wide}");
        }
    }
}

#[test]
fn a_descriptor_that_is_not_there_is_missed() {
    for wide in [false, true] {
        let builder = good().descriptor(Descriptor::Missing);
        let builder = if wide {
            builder.zip64_entries()
        } else {
            builder
        };
        let bytes = builder.build().unwrap().0;
        let failure = Contents::read(bytes.as_slice()).unwrap_err();
        let want = "not an APEX: data descriptor at byte ";
        assert!(failure.message.starts_with(want), "{failure}");
    }
}

#[test]
fn wide_archives_are_read_as_narrow_ones() {
    let plain = Contents::read(good().build().unwrap().0.as_slice()).unwrap();
    for builder in [
        good().zip64_entries(),
        good().zip64_end(),
        good().zip64_entries().zip64_end().comment(noise(500, 1)),
        good().zip64_entries().small_method(Method::Stored),
    ] {
        let (bytes, window) = builder.build().unwrap();
        let found = Contents::read(bytes.as_slice()).unwrap();
        assert_eq!(found.payload.offset.0, window.offset);
        assert_eq!(found.payload.length.0, window.length);
        assert_eq!(found.manifest, plain.manifest);
        assert_eq!(found.public_key, plain.public_key);
    }
}

/// A payload that needs zip64, before entries that lie behind 4 GiB: as a file with a hole.
#[test]
fn what_is_larger_than_4_gib_is_found() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let size = (4 << 30) + 8192;
    let builder = good().hole(size).zip64_entries().zip64_end();
    let window = builder.write(file.path()).unwrap();
    assert_eq!(window.length, size);
    let source = FileSource::new(
        file.as_file(),
        Bytes(file.as_file().metadata().unwrap().len()),
    );
    let found = Contents::read(&source).unwrap();
    assert_eq!(found.payload.offset.0, window.offset);
    assert_eq!(found.payload.length.0, size);
    assert!(found.public_key.is_some(), "an entry behind 4 GiB");
}

/// Positions of the fields in an archive of wide numbers alone, and what each is for.
fn fields(bytes: &[u8]) -> Vec<(&'static str, usize)> {
    let end = bytes.len() - END_LENGTH;
    let central = |name: &[u8]| {
        let directory = Directory::read(bytes).unwrap();
        let mut found = None;
        let read = directory.for_each(|entry| {
            if entry.name == name {
                found = Some(entry.position as usize + CENTRAL_LENGTH + name.len() + 4);
            }
            Ok(())
        });
        read.unwrap();
        found.unwrap()
    };
    let payload = central(b"apex_payload.img");
    let window = crate::images::apex::find_payload(bytes).unwrap();
    let local = bytes[..window.offset.0 as usize]
        .windows(4)
        .rposition(|w| w == b"PK\x03\x04")
        .unwrap();
    let extra = local + 30 + 16 + 4;
    vec![
        ("record's entries on this disk", end - 76 + 24),
        ("record's entries", end - 76 + 32),
        ("record's length of the directory", end - 76 + 40),
        ("record's offset of the directory", end - 76 + 48),
        ("record's own length", end - 76 + 4),
        ("locator's offset", end - 20 + 8),
        ("central size", payload),
        ("central compressed size", payload + 8),
        ("central offset", payload + 16),
        ("local size", extra),
        ("local compressed size", extra + 8),
    ]
}

#[test]
fn wide_numbers_that_lie_are_refused() {
    let bytes = good().zip64_entries().zip64_end().build().unwrap().0;
    let places = fields(&bytes);
    assert_eq!(places.len(), 11);
    for (name, at) in places {
        let truth = u64_at(&bytes, at);
        let hostile = [
            0,
            truth + 1,
            truth ^ 1 << 32,
            0xffff_ffff,
            1 << 63,
            u64::MAX,
        ];
        for value in hostile.into_iter().filter(|value| *value != truth) {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let failure = Contents::read(bytes.as_slice()).expect_err(name);
            assert_eq!(failure.code, Code::NotAnApex, "{name} {value:x}: {failure}");
            assert!(failure.message.contains(" at byte "), "{name}: {failure}");
        }
    }
}

/// Two readers must not see two directories: the numbers of the old record count too.
#[test]
fn an_end_record_that_differs_from_the_wide_one_is_refused() {
    let bytes = good().zip64_end().build().unwrap().0;
    let end = bytes.len() - END_LENGTH;
    let truth = Directory::read(bytes.as_slice()).unwrap();
    let mut same = bytes.clone();
    same[end + 8..end + 10].copy_from_slice(&(truth.entries as u16).to_le_bytes());
    same[end + 10..end + 12].copy_from_slice(&(truth.entries as u16).to_le_bytes());
    same[end + 12..end + 16].copy_from_slice(&(truth.bytes.len() as u32).to_le_bytes());
    same[end + 16..end + 20].copy_from_slice(&(truth.offset as u32).to_le_bytes());
    assert!(Contents::read(same.as_slice()).is_ok(), "both say the same");
    for at in [end + 10, end + 12, end + 16] {
        let mut bytes = same.clone();
        bytes[at] ^= 1;
        bytes[end + 8] = bytes[end + 10];
        let failure = Contents::read(bytes.as_slice()).unwrap_err();
        let want = "its numbers differ from the end record's";
        assert!(failure.message.ends_with(want), "{failure}");
    }
    let mut no_locator = bytes.clone();
    no_locator[end - 20] = 0;
    let failure = Contents::read(no_locator.as_slice()).unwrap_err();
    assert!(
        failure.message.ends_with("no zip64 locator before it"),
        "{failure}"
    );
}

#[test]
fn extra_fields_are_walked() {
    let ones = || u64::from(u32::MAX);
    let field = |numbers: &[u64]| {
        let mut field = vec![1, 0, 8 * numbers.len() as u8, 0];
        field.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        field
    };
    let padded = [b"\x35\xd9\x02\0ab".to_vec(), field(&[5]), vec![0; 3]].concat();
    let twice = [field(&[5]), field(&[5])].concat();
    let table: [(&str, &[u8], Option<u64>); 7] = [
        ("alone", &field(&[5]), Some(5)),
        ("between others", &padded, Some(5)),
        ("none", b"", None),
        ("twice", &twice, None),
        ("too many numbers", &field(&[5, 6]), None),
        ("none in it", &field(&[]), None),
        ("runs past", b"\x01\0\x10\0\x05\0\0\0\0\0\0\0", None),
    ];
    for (name, extra, want) in table {
        let mut number = ones();
        let result = zip64::widen(&mut [&mut number, &mut 7], extra);
        assert_eq!(result.ok().map(|()| number), want, "{name}");
    }
    // Where nothing asks for it, the field says nothing.
    assert_eq!(zip64::widen(&mut [&mut 7], &twice), Ok(()));
}
