use super::*;

#[test]
fn sizes_and_numbers_are_the_header_s() {
    assert_eq!(HEADER, 312);
    assert_eq!(std::mem::align_of::<dm_ioctl>(), 8);
    let numbers = [
        (DM_VERSION, 0),
        (DM_LIST_DEVICES, 2),
        (DM_DEV_CREATE, 3),
        (DM_DEV_REMOVE, 4),
        (DM_DEV_SUSPEND, 6),
        (DM_DEV_STATUS, 7),
        (DM_TABLE_LOAD, 9),
        (DM_TABLE_STATUS, 12),
    ];
    for (number, command) in numbers {
        assert_eq!(number as u32, 0xc138_fd00 | command);
    }
}

#[test]
fn the_header_is_filled_where_the_kernel_reads_it() {
    let mut buffer = Buffer::new("name", "uuid", DM_READONLY_FLAG, 10).unwrap();
    buffer.data()[9] = 7;
    let words = buffer.0.clone();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    assert_eq!(bytes.len(), 328);
    assert_eq!(u32_at(&bytes, 0), Some(4));
    assert_eq!(u32_at(&bytes, 12), Some(328));
    assert_eq!(u32_at(&bytes, 16), Some(312));
    assert_eq!(u32_at(&bytes, 28), Some(1));
    assert_eq!(&bytes[48..53], b"name\0");
    assert_eq!(&bytes[176..181], b"uuid\0");
    assert_eq!(bytes[312 + 9], 7);
}

#[test]
fn names_that_do_not_fit_are_not_cut() {
    let long = "n".repeat(DM_MAX_NAME);
    assert!(Buffer::new(&long, &long, 0, 0).is_ok());
    let longer = long + "n";
    assert_eq!(Buffer::new(&longer, "", 0, 0).err(), Some(Errno::EINVAL));
    assert_eq!(Buffer::new("", &longer, 0, 0).err(), Some(Errno::EINVAL));
    assert_eq!(Buffer::new("a\0b", "", 0, 0).err(), Some(Errno::EINVAL));
}

#[test]
fn a_table_of_two_lines() {
    let line = |start, arguments| Target {
        start,
        length: 8,
        kind: "linear",
        arguments,
    };
    let data = table(&[line(0, "7:0 0"), line(8, "7:123 4096")]).unwrap();
    // 40 + 6 and 40 + 11 bytes, each to a multiple of 8.
    assert_eq!(data.len(), 48 + 56);
    assert_eq!(u32_at(&data, 20), Some(48));
    assert_eq!(u64_at(&data, 48), Some(8));
    assert_eq!(u32_at(&data, 48 + 20), Some(56));
    assert_eq!(text(&data[24..40]), "linear");
    assert_eq!(text(&data[40..]), "7:0 0");
    assert_eq!(text(&data[48 + 40..]), "7:123 4096");
    let too_long = Target {
        kind: "sixteen-letters-",
        ..line(0, "")
    };
    assert_eq!(table(&[too_long]), Err(Errno::EINVAL));
}

/// In answers `next` counts from the first line; in requests from its own.
#[test]
fn states_are_read() {
    let mut data = table(&[
        Target {
            start: 0,
            length: 8,
            kind: "verity",
            arguments: "V",
        },
        Target {
            start: 8,
            length: 16,
            kind: "linear",
            arguments: "",
        },
    ])
    .unwrap();
    data[48 + 20..48 + 24].copy_from_slice(&96u32.to_ne_bytes());
    let found = statuses(&data, 2).unwrap();
    assert_eq!(found[0].text, "V");
    assert_eq!((found[1].start, found[1].length), (8, 16));
    assert_eq!(
        (found[1].kind.as_str(), found[1].text.as_str()),
        ("linear", "")
    );
    assert_eq!(statuses(&data, 0), Some(Vec::new()));
    assert_eq!(statuses(&data, 3), None);
    assert_eq!(statuses(&data[..30], 1), None);
}

#[test]
fn lists_are_read() {
    let mut data = Vec::new();
    data.extend(0xfd00u64.to_ne_bytes());
    data.extend(24u32.to_ne_bytes());
    data.extend(b"one\0");
    data.resize(24, 0);
    data.extend(0xfd01u64.to_ne_bytes());
    data.extend(0u32.to_ne_bytes());
    data.extend(b"two\0");
    let want = vec![("one".to_owned(), 0xfd00), ("two".to_owned(), 0xfd01)];
    assert_eq!(names(&data), Some(want));
    assert_eq!(names(&[0; 16]), Some(Vec::new()), "the kernel's empty list");
    assert_eq!(names(&[]), Some(Vec::new()));
    assert_eq!(names(&data[..28]), None);
}

#[test]
fn device_numbers_are_split_as_the_kernel_joins_them() {
    // huge_encode_dev is new_encode_dev: minor bits 0-7, major 8-19, minor bits 8-19 above.
    assert_eq!(split(0xfd00), (253, 0));
    assert_eq!(split(0x0010_07e8), (7, 0x1e8));
    assert_eq!(split(0xfff0_feff), (254, 0xfffff));
}
