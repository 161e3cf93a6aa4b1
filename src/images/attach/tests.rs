use super::*;
use crate::images::fake::FakeLoops;
use crate::images::{Detached, Numbers};
use crate::units::Bytes;
use nix::errno::Errno;

/// A file of `size` bytes that is nowhere.
fn file(size: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(size).unwrap();
    file
}

fn item(name: &str) -> AttachItem {
    let request = AttachRequest {
        start: Start::At(Bytes(0)),
        read_ahead: Some(Bytes(128 << 10)),
        // tempfile's folder may be a tmpfs, where it is not asked for.
        direct_io: false,
        ..AttachRequest::apex(name)
    };
    AttachItem {
        file: file(1 << 20),
        request,
    }
}

fn images(loops: &FakeLoops) -> Images {
    Images::with(loops.clone(), Numbers::From(1000))
}

fn code(result: Result<Attached>) -> Code {
    result.map(|_| ()).unwrap_err().code
}

/// Every ioctl after the bind is one that waits for no grace period.
#[test]
fn nothing_after_the_bind_freezes_a_queue() {
    let loops = FakeLoops::default();
    let attached = images(&loops).attach(&item("one")).unwrap();
    let after = ["status", "block_size", "size", "set_read_ahead"];
    assert_eq!(loops.calls_after_bind(), after);
    assert_eq!(loops.count("configure"), 1);
    assert_eq!(attached.number, 1000);
    let steps: Vec<&str> = attached.steps.0.iter().map(|(s, _)| s.name()).collect();
    let want = "facts plan control number open probe configure read-back read-ahead";
    assert_eq!(steps.join(" "), want);
}

#[test]
fn a_lost_race_takes_another_number_and_another_descriptor() {
    for errno in [Errno::EBUSY, Errno::EAGAIN] {
        let loops = FakeLoops::default();
        loops.fail("configure", &[errno; 3]);
        let attached = images(&loops).attach(&item("one")).unwrap();
        assert_eq!(attached.number, 1003);
        assert_eq!((loops.count("open"), loops.count("configure")), (4, 4));
    }
}

#[test]
fn nothing_else_is_tried_again() {
    let table = [
        ("prepare", Errno::ENOENT, Code::NoLoopControl),
        ("prepare", Errno::EACCES, Code::Permission),
        ("add", Errno::EPERM, Code::Permission),
        ("add", Errno::EINVAL, Code::NoFreeLoop),
        ("open", Errno::EACCES, Code::Permission),
        ("open", Errno::ENOENT, Code::NodeMissing),
        ("open", Errno::EIO, Code::DeviceFailed),
        ("probe", Errno::EIO, Code::DeviceFailed),
        ("probe", Errno::EACCES, Code::Permission),
        ("configure", Errno::EINVAL, Code::DeviceFailed),
        ("configure", Errno::EPERM, Code::Permission),
        ("status", Errno::EIO, Code::NotVerified),
    ];
    for (call, errno, want) in table {
        let loops = FakeLoops::default();
        loops.fail(call, &[errno]);
        let failure = images(&loops).attach(&item("one")).unwrap_err();
        assert_eq!(failure.code, want, "{call} {errno}: {failure}");
        assert_eq!(failure.errno, Some(errno), "{call}");
        assert_eq!(loops.count(call), 1, "{call} {errno}");
        assert_eq!(loops.bound(), [], "{call} {errno}");
    }
}

#[test]
fn trying_again_ends() {
    let loops = FakeLoops::default();
    loops.fail("configure", &[Errno::EBUSY; 1000]);
    let failure = images(&loops).attach(&item("one")).unwrap_err();
    assert_eq!(failure.code, Code::NoFreeLoop);
    assert_eq!(failure.errno, Some(Errno::EBUSY));
    assert_eq!(loops.count("configure"), 64);
    assert_eq!(loops.count("pause"), 60);
}

#[test]
fn a_device_that_is_not_as_planned_is_undone() {
    let distortions: [fn(&mut crate::device::loops::Setup); 6] = [
        |s| s.offset = Bytes(4096),
        |s| s.size_limit = Bytes(4096),
        |s| s.block_size = 512,
        |s| s.read_only = !s.read_only,
        |s| s.autoclear = !s.autoclear,
        |s| s.tag.push('x'),
    ];
    for (index, distort) in distortions.into_iter().enumerate() {
        for autoclear in [true, false] {
            let loops = FakeLoops::default();
            loops.distort(distort);
            let mut item = item("one");
            item.request.autoclear = autoclear;
            assert_eq!(code(images(&loops).attach(&item)), Code::NotVerified);
            assert_eq!(
                loops.bound(),
                [],
                "distortion {index}, autoclear {autoclear}"
            );
        }
    }
}

#[test]
fn a_file_that_became_shorter_is_noticed() {
    let loops = FakeLoops::default();
    loops.clip(Bytes(4096));
    assert_eq!(code(images(&loops).attach(&item("one"))), Code::NotVerified);
    assert_eq!(loops.bound(), []);
}

#[test]
fn direct_io_that_is_not_had_is_a_warning() {
    let loops = FakeLoops::default();
    loops.distort(|setup| setup.direct_io = false);
    let images = images(&loops);
    let mut item = item("one");
    item.request.direct_io = true;
    // On tmpfs the plan says so, elsewhere the read-back.
    let attached = images.attach(&item).unwrap();
    assert_eq!(attached.warnings.len(), 1, "{:?}", attached.warnings);
    assert!(attached.warnings[0].contains("no direct I/O"));
}

#[test]
fn read_ahead_that_is_not_had_is_a_warning() {
    let loops = FakeLoops::default();
    loops.fail("set_read_ahead", &[Errno::EACCES]);
    let attached = images(&loops).attach(&item("one")).unwrap();
    assert_eq!(attached.warnings.len(), 1, "{:?}", attached.warnings);
}

#[test]
fn a_batch_answers_in_order_and_item_by_item() {
    let loops = FakeLoops::default();
    let images = images(&loops);
    let mut items: Vec<AttachItem> = (0..MAX_ITEMS).map(|i| item(&format!("n{i}"))).collect();
    items[7].request.start = Start::At(Bytes(100));
    items[20].request.start = Start::Payload;
    let results = images.attach_all(&items).unwrap();
    assert_eq!(results.len(), MAX_ITEMS);
    let mut numbers = Vec::new();
    for (index, result) in results.into_iter().enumerate() {
        match index {
            7 => assert_eq!(code(result), Code::OutOfRange),
            20 => assert_eq!(code(result), Code::NotAnApex),
            _ => {
                let attached = result.unwrap();
                assert_eq!(attached.plan.setup.tag, format!("blockd:n{index}"));
                numbers.push(attached.number);
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1000..1030).collect::<Vec<u32>>());
    let too_many: Vec<AttachItem> = (0..=MAX_ITEMS).map(|_| item("n")).collect();
    assert_eq!(
        images.attach_all(&too_many).unwrap_err().code,
        Code::InvalidRequest
    );
    assert_eq!(images.attach_all(&[]).unwrap().len(), 0);
}

#[test]
fn only_our_devices_are_listed_and_detached() {
    let loops = FakeLoops::with_devices(&[(3, true)]);
    let images = images(&loops);
    let mut item = item("one");
    item.request.autoclear = false;
    let attached = images.attach(&item).unwrap();
    let listing = images.list(false).unwrap();
    assert_eq!(listing.devices.len(), 1);
    assert_eq!(listing.devices[0].name, "one");
    assert_eq!(images.list(true).unwrap().devices.len(), 2);

    let failure = images.detach(3).unwrap_err();
    assert_eq!(failure.code, Code::Permission);
    assert!(failure.message.contains("somebody-else-3"), "{failure}");
    assert_eq!(images.detach(500).unwrap_err().code, Code::NoSuchDevice);
    // The lease is still open.
    assert_eq!(images.detach(attached.number).unwrap(), Detached::Deferred);
}

#[test]
fn one_broken_device_hides_no_other() {
    let loops = FakeLoops::with_devices(&[(0, true), (1, true), (2, true)]);
    loops.fail("status", &[Errno::EIO]);
    let listing = images(&loops).list(true).unwrap();
    let numbers: Vec<u32> = listing.devices.iter().map(|d| d.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(listing.skipped.len(), 1, "{:?}", listing.skipped);
    assert!(listing.skipped[0].starts_with("loop0: "));
}

/// `EINVAL` and `ENOTTY` are both what kernels without the call answer.
#[test]
fn without_loop_configure_the_old_calls_do_it() {
    for errno in [Errno::EINVAL, Errno::ENOTTY] {
        let loops = FakeLoops::default();
        loops.fail("probe", &[errno]);
        let attached = images(&loops).attach(&item("one")).unwrap();
        assert_eq!(attached.plan.strategy, Strategy::SetFd);
        assert_eq!((loops.count("bind"), loops.count("configure")), (1, 0));
        assert_eq!(loops.bound().len(), 1);
        assert_eq!(attached.number, 1000, "the device that was asked is used");
    }
}
