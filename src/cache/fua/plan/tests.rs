use super::*;
use crate::device::medium::DirectAlignment;

fn medium() -> Descriptor {
    Descriptor {
        kind: Kind::File,
        size: Bytes(0),
        read_write: true,
        direct: true,
        append: false,
        alignment: Some(DirectAlignment {
            memory: 4,
            offset: 512,
        }),
        file_system: 0xef53,
        device: "179:3".to_owned(),
    }
}

fn queue() -> Queue {
    Queue {
        disk: Fact::known("mmcblk0".to_owned(), "/sys"),
        fua: Fact::known("1".to_owned(), "/sys"),
        write_cache: Fact::known("write back".to_owned(), "/sys"),
    }
}

fn request() -> Request {
    Request::new(Bytes(64 << 20))
}

#[test]
fn the_usual_request_is_ten_rows() {
    let plan = plan(&request(), &medium(), &queue()).expect("a plan");
    assert_eq!(plan.rows.len(), 10);
    let names: Vec<String> = plan.rows.iter().map(Row::name).collect();
    assert!(names.contains(&"rand-write flush".to_owned()), "{names:?}");
    for row in &plan.rows {
        let (block, operations) = match row.pattern.is_sequential() {
            true => (512 << 10, 128),
            false => (4096, OPERATIONS),
        };
        assert_eq!(
            (row.block.0, row.operations),
            (block, operations),
            "{row:?}"
        );
    }
    let sequential = 64 << 20;
    let random = OPERATIONS * 4096;
    assert_eq!(
        plan.total(),
        Bytes(sequential + 5 * (5 * sequential + 5 * random))
    );
    assert!(plan.notes.iter().any(|n| n.contains("not turned off")));
}

#[test]
fn small_media_have_as_many_operations_as_blocks() {
    let small = Request {
        length: Bytes(64 << 10),
        sequential_block: Bytes(16 << 10),
        ..request()
    };
    let plan = plan(&small, &medium(), &queue()).expect("a plan");
    assert!(plan
        .rows
        .iter()
        .all(|r| r.operations == if r.pattern.is_sequential() { 4 } else { 16 }));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let edit = |change: fn(&mut Request)| {
        let mut request = request();
        change(&mut request);
        (request, medium())
    };
    let open = |change: fn(&mut Descriptor)| {
        let mut medium = medium();
        change(&mut medium);
        (request(), medium)
    };
    let none = Some(DirectAlignment {
        memory: 0,
        offset: 0,
    });
    let mut without = medium();
    without.alignment = none;
    let table = [
        (
            edit(|r| r.length = Bytes(0)),
            Code::InvalidRequest,
            "0 bytes",
        ),
        (edit(|r| r.runs = 0), Code::InvalidRequest, "0 runs"),
        (edit(|r| r.runs = 101), Code::InvalidRequest, "101 runs"),
        (
            edit(|r| r.block = Bytes(0)),
            Code::InvalidRequest,
            "random patterns is 0 B",
        ),
        (
            edit(|r| r.sequential_block = Bytes(0)),
            Code::InvalidRequest,
            "sequential patterns is 0 B",
        ),
        (
            edit(|r| r.sequential_block = Bytes(32 << 20)),
            Code::InvalidRequest,
            "up to 16 MiB",
        ),
        (
            edit(|r| r.length = Bytes(4096)),
            Code::InvalidRequest,
            "more than the 4 KiB",
        ),
        (
            edit(|r| r.limit = Duration::ZERO),
            Code::InvalidRequest,
            "limit of one operation is 0 ms",
        ),
        (
            edit(|r| r.operations = u32::MAX),
            Code::InvalidRequest,
            "more than 1048576 operations",
        ),
        (
            edit(|r| r.block = Bytes(1000)),
            Code::InvalidRequest,
            "no multiple of the 512 B",
        ),
        (
            open(|m| m.kind = Kind::Other),
            Code::InvalidRequest,
            "neither a regular file",
        ),
        (
            open(|m| m.read_write = false),
            Code::ReadOnly,
            "not open for reading and writing",
        ),
        (
            open(|m| m.direct = false),
            Code::Unsupported,
            "not O_DIRECT",
        ),
        (
            (request(), without),
            Code::Unsupported,
            "no direct I/O for this file",
        ),
        (
            open(|m| m.file_system = 0x0102_1994),
            Code::Unsupported,
            "lies on tmpfs",
        ),
        (
            open(|m| m.file_system = 0x6573_5546),
            Code::Unsupported,
            "lies on FUSE",
        ),
        (open(|m| m.append = true), Code::InvalidRequest, "O_APPEND"),
        (
            open(|m| {
                m.kind = Kind::Block;
                m.size = Bytes(1 << 20);
            }),
            Code::OutOfRange,
            "has 1 MiB, 64 MiB were asked for",
        ),
    ];
    for ((request, medium), code, words) in table {
        let failure = plan(&request, &medium, &queue()).expect_err(words);
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(words), "{failure}");
    }
}

#[test]
fn a_device_node_on_tmpfs_is_a_device() {
    // /dev is a tmpfs: its magic says nothing of the devices that have their nodes there.
    let mut node = medium();
    node.kind = Kind::Block;
    node.size = Bytes(1 << 30);
    node.file_system = 0x0102_1994;
    assert!(plan(&request(), &node, &queue()).is_ok());
}
