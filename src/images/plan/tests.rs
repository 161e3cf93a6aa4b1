use super::*;
use crate::images::apex::FileSystem;

/// What is known of `file` on a kernel with LOOP_CONFIGURE.
fn known(file: FileFacts, payload: Option<Window>) -> Known {
    Known {
        file,
        payload,
        file_system: None,
        configure: true,
    }
}

const MIB: u64 = 1 << 20;

fn facts() -> FileFacts {
    FileFacts {
        kind: FileKind::Regular,
        access: FileAccess::Read,
        size: Bytes(4 * MIB),
        backing: Backing::Ordinary,
    }
}

/// A payload of 2 MiB at 12 KiB.
fn payload() -> Option<Window> {
    Some(Window {
        offset: Bytes(12288),
        length: Bytes(2 * MIB),
    })
}

fn apex() -> AttachRequest {
    AttachRequest::apex("com.android.wifi")
}

fn at(offset: u64) -> AttachRequest {
    AttachRequest {
        start: Start::At(Bytes(offset)),
        direct_io: false,
        ..apex()
    }
}

#[test]
fn an_apex_becomes_one_configure_call() {
    let plan = plan(&apex(), &known(facts(), payload())).unwrap();
    let setup = Setup {
        block_size: 4096,
        offset: Bytes(12288),
        size_limit: Bytes(2 * MIB),
        read_only: true,
        autoclear: true,
        direct_io: true,
        tag: "blockd:com.android.wifi".to_owned(),
    };
    assert_eq!(plan.setup, setup);
    assert_eq!(plan.mode, NodeMode::ReadOnly);
    assert_eq!(plan.read_ahead, None);
    assert_eq!(plan.warnings, Vec::<String>::new());
}

#[test]
fn windows_are_what_was_asked_for() {
    let length = |n| Some(Bytes(n));
    let table: [(&str, AttachRequest, (u64, u64)); 6] = [
        ("whole file", at(0), (0, 4 * MIB)),
        ("from an offset", at(4096), (4096, 4 * MIB - 4096)),
        (
            "a part",
            AttachRequest {
                length: length(8192),
                ..at(512)
            },
            (512, 8192),
        ),
        (
            "512-byte blocks",
            AttachRequest {
                length: length(512),
                block_size: Some(512),
                ..at(512)
            },
            (512, 512),
        ),
        (
            "up to the end",
            AttachRequest {
                length: length(4096),
                ..at(4 * MIB - 4096)
            },
            (4 * MIB - 4096, 4096),
        ),
        (
            "part of a payload",
            AttachRequest {
                length: length(4096),
                ..apex()
            },
            (12288, 4096),
        ),
    ];
    for (name, request, (offset, length)) in table {
        let plan =
            plan(&request, &known(facts(), payload())).unwrap_or_else(|f| panic!("{name}: {f}"));
        assert_eq!(plan.setup.offset.0, offset, "{name}");
        assert_eq!(plan.setup.size_limit.0, length, "{name}");
        assert!(plan.warnings.is_empty(), "{name}");
    }
}

#[test]
fn what_the_kernel_would_misunderstand_is_refused() {
    let ask = |change: fn(&mut AttachRequest)| {
        let mut request = at(0);
        change(&mut request);
        request
    };
    let table: [(&str, AttachRequest, Code); 19] = [
        (
            "block size 0",
            ask(|r| r.block_size = Some(0)),
            Code::InvalidRequest,
        ),
        (
            "block size 256",
            ask(|r| r.block_size = Some(256)),
            Code::InvalidRequest,
        ),
        (
            "block size 3000",
            ask(|r| r.block_size = Some(3000)),
            Code::InvalidRequest,
        ),
        (
            "block size 8192",
            ask(|r| r.block_size = Some(8192)),
            Code::InvalidRequest,
        ),
        ("offset 100", at(100), Code::OutOfRange),
        ("offset at the end", at(4 * MIB), Code::OutOfRange),
        ("offset behind the end", at(1 << 60), Code::OutOfRange),
        (
            "length 0",
            ask(|r| r.length = Some(Bytes(0))),
            Code::OutOfRange,
        ),
        (
            "length 5000",
            ask(|r| r.length = Some(Bytes(5000))),
            Code::OutOfRange,
        ),
        (
            "half a block",
            ask(|r| r.length = Some(Bytes(512))),
            Code::OutOfRange,
        ),
        (
            "length too large",
            ask(|r| r.length = Some(Bytes(4 * MIB + 4096))),
            Code::OutOfRange,
        ),
        (
            "inside by length, outside by offset",
            AttachRequest {
                length: Some(Bytes(4 * MIB)),
                ..at(4096)
            },
            Code::OutOfRange,
        ),
        (
            "length beyond u64",
            ask(|r| r.length = Some(Bytes(u64::MAX))),
            Code::OutOfRange,
        ),
        (
            "more than the payload",
            AttachRequest {
                length: Some(Bytes(3 * MIB)),
                ..apex()
            },
            Code::OutOfRange,
        ),
        ("no name", ask(|r| r.name.clear()), Code::InvalidRequest),
        (
            "57 bytes of name",
            ask(|r| r.name = "n".repeat(57)),
            Code::InvalidRequest,
        ),
        (
            "a newline in the name",
            ask(|r| r.name.push('\n')),
            Code::InvalidRequest,
        ),
        (
            "odd read-ahead",
            ask(|r| r.read_ahead = Some(Bytes(1000))),
            Code::InvalidRequest,
        ),
        (
            "1 GiB of read-ahead",
            ask(|r| r.read_ahead = Some(Bytes(1 << 30))),
            Code::InvalidRequest,
        ),
    ];
    for (name, request, want) in table {
        let failure = plan(&request, &known(facts(), payload())).expect_err(name);
        assert_eq!(failure.code, want, "{name}: {failure}");
        assert_eq!(failure.step, "plan", "{name}");
        assert!(!failure.remedy.is_empty(), "{name}");
    }
}

#[test]
fn descriptors_that_cannot_back_a_device_are_named() {
    let table = [
        (
            FileKind::Other("a directory"),
            FileAccess::Read,
            true,
            Err(Code::InvalidRequest),
        ),
        (
            FileKind::Other("a pipe"),
            FileAccess::ReadWrite,
            false,
            Err(Code::InvalidRequest),
        ),
        (
            FileKind::Regular,
            FileAccess::Path,
            true,
            Err(Code::InvalidRequest),
        ),
        (
            FileKind::Regular,
            FileAccess::Write,
            false,
            Err(Code::InvalidRequest),
        ),
        (
            FileKind::Regular,
            FileAccess::Read,
            false,
            Err(Code::ReadOnly),
        ),
        (
            FileKind::Block,
            FileAccess::Read,
            true,
            Ok(NodeMode::ReadOnly),
        ),
        (
            FileKind::Regular,
            FileAccess::ReadWrite,
            true,
            Ok(NodeMode::ReadOnly),
        ),
        (
            FileKind::Regular,
            FileAccess::ReadWrite,
            false,
            Ok(NodeMode::ReadWrite),
        ),
    ];
    for (kind, access, read_only, want) in table {
        let facts = FileFacts {
            kind,
            access,
            ..facts()
        };
        let request = AttachRequest { read_only, ..at(0) };
        let result = plan(&request, &known(facts, None));
        let result = result.map(|p| p.mode).map_err(|f| f.code);
        assert_eq!(result, want, "{kind:?} {access:?} read_only={read_only}");
    }
}

#[test]
fn a_ragged_end_is_left_out_with_a_word() {
    let facts = FileFacts {
        size: Bytes(10_000),
        ..facts()
    };
    let whole = plan(&at(0), &known(facts, None)).unwrap();
    assert_eq!(whole.setup.size_limit, Bytes(8192));
    assert_eq!(whole.warnings.len(), 1, "{:?}", whole.warnings);
    let small = FileFacts {
        size: Bytes(4000),
        ..facts
    };
    assert_eq!(
        plan(&at(0), &known(small, None)).unwrap_err().code,
        Code::OutOfRange
    );
    let empty = FileFacts {
        size: Bytes(0),
        ..facts
    };
    assert_eq!(
        plan(&at(0), &known(empty, None)).unwrap_err().code,
        Code::OutOfRange
    );
}

#[test]
fn direct_io_is_asked_for_only_where_it_works() {
    let ask = |offset, direct_io| AttachRequest {
        direct_io,
        // Or the end would be ragged, which is another warning.
        block_size: Some(512),
        ..at(offset)
    };
    let overlay = Backing::NoDirectIo("overlayfs");
    let table = [
        (ask(4096, true), Backing::Ordinary, true, 0),
        (ask(512, true), Backing::Ordinary, false, 1),
        (ask(4096, true), overlay, false, 1),
        (ask(512, false), overlay, false, 0),
    ];
    for (request, backing, want, warnings) in table {
        let facts = FileFacts { backing, ..facts() };
        let plan = plan(&request, &known(facts, None)).unwrap();
        assert_eq!(plan.setup.direct_io, want, "{request:?} {backing:?}");
        assert_eq!(plan.warnings.len(), warnings, "{request:?} {backing:?}");
    }
}

#[test]
fn a_payload_is_not_believed_beyond_the_file() {
    let facts = FileFacts {
        size: Bytes(MIB),
        ..facts()
    };
    assert_eq!(
        plan(&apex(), &known(facts, payload())).unwrap_err().code,
        Code::OutOfRange
    );
    let odd = Some(Window {
        offset: Bytes(4096),
        length: Bytes(5000),
    });
    assert_eq!(
        plan(&apex(), &known(facts, odd)).unwrap_err().code,
        Code::OutOfRange
    );
}

#[test]
fn the_longest_name_fits_the_tag() {
    let request = AttachRequest {
        name: "n".repeat(MAX_NAME),
        ..at(0)
    };
    assert_eq!(
        plan(&request, &known(facts(), None))
            .unwrap()
            .setup
            .tag
            .len(),
        63
    );
}

#[test]
fn read_ahead_is_counted_in_sectors() {
    let request = AttachRequest {
        read_ahead: Some(Bytes(128 << 10)),
        ..at(0)
    };
    assert_eq!(
        plan(&request, &known(facts(), None)).unwrap().read_ahead,
        Some(Sectors(256))
    );
}

#[test]
fn sectors_are_no_larger_than_the_file_system_s_blocks() {
    let fs = |name, block_size| Some(FileSystem { name, block_size });
    // (file system, asked for, what becomes of it, warnings)
    let table = [
        (None, None, Some(4096), 0),
        (fs("erofs", Some(4096)), None, Some(4096), 0),
        (fs("ext4", Some(1024)), None, Some(1024), 1),
        (fs("ext4", Some(1024)), Some(1024), Some(1024), 0),
        (fs("ext4", Some(1024)), Some(512), Some(512), 0),
        (fs("ext4", Some(1024)), Some(2048), None, 0),
        (fs("ext4", Some(65536)), None, Some(4096), 0),
        // A superblock of nonsense decides nothing.
        (fs("ext4", None), None, Some(4096), 0),
    ];
    for (file_system, block_size, want, warnings) in table {
        let request = AttachRequest {
            block_size,
            ..apex()
        };
        let known = Known {
            file_system,
            ..known(facts(), payload())
        };
        let plan = plan(&request, &known);
        let got = plan.as_ref().ok().map(|p| p.setup.block_size);
        assert_eq!(got, want, "{file_system:?} {block_size:?}");
        match plan {
            Ok(plan) => assert_eq!(plan.warnings.len(), warnings, "{:?}", plan.warnings),
            Err(failure) => {
                assert_eq!(failure.code, Code::InvalidRequest);
                let text = failure.to_string();
                assert!(text.contains("2048") && text.contains("1024"), "{text}");
            }
        }
    }
}

#[test]
fn without_loop_configure_there_is_one_freeze() {
    let known = Known {
        configure: false,
        ..known(facts(), payload())
    };
    let default = plan(&apex(), &known).unwrap();
    assert_eq!(default.strategy, Strategy::SetFd);
    assert!(default.reason.contains("no LOOP_CONFIGURE"));
    // The kernel's block size, and no direct I/O: each would be another freeze.
    assert_eq!(default.setup.block_size, 0);
    assert!(!default.setup.direct_io);
    assert_eq!(default.warnings.len(), 1, "{:?}", default.warnings);
    // What is asked for in so many words is done.
    let request = AttachRequest {
        block_size: Some(4096),
        direct_io: false,
        ..apex()
    };
    let asked = plan(&request, &known).unwrap();
    assert_eq!((asked.setup.block_size, asked.warnings.len()), (4096, 0));
}
