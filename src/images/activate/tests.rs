use super::fake::FakeMachine;
use super::*;
use crate::device::Mapper;
use crate::images::Numbers;
use apexgen::{noise, ApexBuilder, Key, Signing};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const NAME: &str = "com.example.one";

/// Noise with ext4's magic.
fn image() -> Vec<u8> {
    let mut image = noise(300 * 4096, 3);
    image[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    image
}

fn file(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// Made once: signing takes long.
fn apex(signing: &Signing) -> &'static [u8] {
    static MADE: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    MADE[usize::from(signing.tree)].get_or_init(|| {
        let builder = ApexBuilder::new(NAME, 3).signed(&image(), signing);
        builder.build().unwrap().0
    })
}

fn manifest() -> Vec<u8> {
    Contents::read(apex(&Signing::by(Key::Rsa2048)))
        .unwrap()
        .manifest_bytes
}

fn item(signing: &Signing, verity: bool) -> ActivateItem {
    ActivateItem {
        file: file(apex(signing)),
        request: ActivateRequest {
            name: NAME.to_owned(),
            trusted_key: Some(Key::Rsa2048.blob()),
            verity,
        },
        hash_tree: None,
    }
}

fn stored() -> ActivateItem {
    item(&Signing::by(Key::Rsa2048), true)
}

fn built() -> ActivateItem {
    let signing = Signing {
        tree: false,
        ..Signing::by(Key::Rsa2048)
    };
    ActivateItem {
        hash_tree: Some(tempfile::tempfile().unwrap()),
        ..item(&signing, true)
    }
}

fn images(machine: &FakeMachine) -> Images {
    Images::over(
        machine.loops.clone(),
        machine.clone(),
        machine.clone(),
        Numbers::From(1000),
    )
}

#[test]
fn an_activation_is_listed_and_goes_without_a_trace() {
    for (item, device, steps) in [
        (
            stored(),
            "blockd-apex-com.example.one@3",
            "facts apex avb plan control number open probe configure read-back mapper node mount \
             manifest verity-state bind",
        ),
        (
            item(&Signing::by(Key::Rsa2048), false),
            "loop1000",
            "facts apex avb plan control number open probe configure read-back mount manifest bind",
        ),
    ] {
        let machine = FakeMachine::new(&manifest());
        let images = images(&machine);
        let activated = images.activate(&item).unwrap();
        let names: Vec<&str> = activated.steps.0.iter().map(|(s, _)| s.name()).collect();
        assert_eq!(names.join(" "), steps);
        // Another process, which knows nothing but what the kernel says.
        let other = super::tests::images(&machine);
        let want = ActiveApex {
            package: activated.plan.package.clone(),
            mount_point: "/apex/com.example.one@3".into(),
            bound: true,
            device: device.to_owned(),
            verity: item.request.verity,
            corrupted: false,
        };
        assert_eq!(other.active().unwrap(), std::slice::from_ref(&want));
        let again = images.activate(&item).map(drop).unwrap_err();
        assert_eq!(again.code, Code::InUse);
        assert_eq!(other.active().unwrap(), std::slice::from_ref(&want));
        assert_eq!(other.deactivate(NAME).unwrap(), [want]);
        assert_eq!(machine.left(), [""; 0]);
        let gone = other.deactivate(NAME).unwrap_err();
        assert_eq!(gone.code, Code::NoSuchDevice);
    }
}

/// Nothing stays but what was there, whatever fails.
#[test]
fn a_failure_at_any_call_is_undone() {
    for make in [stored, built, || item(&Signing::by(Key::Rsa2048), false)] {
        let machine = FakeMachine::new(&manifest());
        images(&machine).activate(&make()).unwrap();
        let calls = machine.calls().len();
        assert!(calls >= 6, "{:?}", machine.calls());
        for at in 0..calls {
            let machine = FakeMachine::new(&manifest());
            machine.fail(at, Errno::ENOMEM);
            let failure = images(&machine).activate(&make()).map(drop).unwrap_err();
            assert_eq!(
                machine.left(),
                [""; 0],
                "call {at} of {:?}",
                machine.calls()
            );
            assert_eq!(failure.errno, Some(Errno::ENOMEM), "{failure}");
        }
    }
}

/// A process that is killed leaves what the kernel does not take away by itself; the next one
/// finds it, and the same activation works.
#[test]
fn what_a_killed_process_left_is_taken_away() {
    let machine = FakeMachine::new(&manifest());
    images(&machine).activate(&stored()).unwrap();
    let calls = machine.calls();
    let mut left_something = 0;
    for at in 0..calls.len() {
        let machine = FakeMachine::new(&manifest());
        machine.die(at);
        images(&machine).activate(&stored()).map(drop).unwrap_err();
        machine.heal();
        let left = machine.left();
        left_something += usize::from(left.iter().any(|l| !l.starts_with("folder")));
        // Of loop devices and devices that were opened once nothing stays without a mount.
        let mounted = left.iter().any(|l| l.starts_with("mount"));
        let half_made = left.iter().filter(|l| l.starts_with("dm")).count();
        let opened = calls[..at].contains(&"defer".to_owned());
        assert_eq!(
            half_made > 0,
            mounted || (calls[..at].contains(&"create".to_owned()) && !opened)
        );
        images(&machine)
            .activate(&stored())
            .unwrap_or_else(|e| panic!("{at} {left:?}: {e}"));
        images(&machine).deactivate(NAME).unwrap();
        assert_eq!(machine.left(), [""; 0], "call {at}, {left:?}");
    }
    assert!(left_something >= 3, "{left_something}");
}

#[test]
fn the_living_and_strangers_are_left_alone() {
    let machine = FakeMachine::new(&manifest());
    let name = "blockd-apex-com.example.one@3";
    let own = format!("blockd-{}-7-99", std::process::id());
    for uuid in [own.as_str(), "CRYPT-x", "", "blockd-1-2", "blockd-x-y-z"] {
        machine.foreign(name, uuid);
        images(&machine).sweep();
        let failure = images(&machine).activate(&stored()).map(drop).unwrap_err();
        assert_eq!(failure.code, Code::InUse, "{uuid}");
        assert_eq!(machine.left(), [format!("dm {name}")]);
        machine.remove(name, false).unwrap();
    }
    machine.foreign(name, "blockd-4000000000-7-0");
    images(&machine).sweep();
    assert_eq!(machine.left(), [""; 0]);
}

#[test]
fn what_is_found_wrong_is_refused_and_undone() {
    type Wrong = fn(&FakeMachine);
    let table: [(Wrong, Code, &str); 5] = [
        (|m| m.state("C"), Code::BadSignature, "verity-state"),
        (|m| m.state(""), Code::NotVerified, "verity-state"),
        (|m| m.state("V 0"), Code::BadSignature, "manifest"),
        (|m| m.manifest(b"another"), Code::BadSignature, "manifest"),
        (|m| m.manifest(b""), Code::BadSignature, "manifest"),
    ];
    for (wrong, code, step) in table {
        let machine = FakeMachine::new(&manifest());
        wrong(&machine);
        if step == "manifest" {
            machine.manifest(b"x");
        }
        let failure = images(&machine).activate(&stored()).map(drop).unwrap_err();
        assert_eq!((failure.code, failure.step.as_str()), (code, step));
        assert_eq!(machine.left(), [""; 0]);
    }
}

#[test]
fn a_tree_is_built_into_the_client_s_file() {
    let machine = FakeMachine::new(&manifest());
    let item = built();
    let activated = images(&machine).activate(&item).unwrap();
    let (want, _) = Signing::by(Key::Rsa2048).hash_tree(&image());
    let mut file = vec![0; want.len()];
    let tree = item.hash_tree.unwrap();
    tree.read_exact_at(&mut file, 0).unwrap();
    assert!(file == want);
    assert_eq!(tree.metadata().unwrap().len(), want.len() as u64);
    assert!(activated.plan.reason.contains("caller's file"));
    assert_eq!(machine.loops.bound().len(), 2);
    images(&machine).deactivate(NAME).unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

/// What is in use stays as it was.
#[test]
fn a_busy_apex_stays_whole() {
    let machine = FakeMachine::new(&manifest());
    let images = images(&machine);
    images.activate(&stored()).unwrap();
    let before = images.active().unwrap();
    machine.fail(0, Errno::ENOENT);
    images.active().map(drop).unwrap_err();
    let calls = {
        machine.fail(usize::MAX, Errno::EIO);
        images.active().unwrap();
        machine.calls().len()
    };
    for unmount in 0..2 {
        machine.fail(calls + unmount, Errno::EBUSY);
        let failure = images.deactivate(NAME).unwrap_err();
        assert_eq!(failure.code, Code::InUse, "{failure}");
        machine.fail(usize::MAX, Errno::EIO);
        assert_eq!(images.active().unwrap(), before);
    }
    images.deactivate(NAME).unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

#[test]
fn a_batch_answers_item_by_item() {
    let machine = FakeMachine::new(&manifest());
    let mut items = vec![stored(), stored(), stored()];
    items[1].request.name = "com.example.two".to_owned();
    let results = images(&machine).activate_all(&items).unwrap();
    let codes: Vec<Option<Code>> = results
        .iter()
        .map(|r| r.as_ref().err().map(|f| f.code))
        .collect();
    assert_eq!(codes, [None, Some(Code::InvalidRequest), Some(Code::InUse)]);
    let many: Vec<ActivateItem> = (0..33).map(|_| stored()).collect();
    let failure = images(&machine).activate_all(&many).map(drop).unwrap_err();
    assert_eq!(failure.code, Code::InvalidRequest);
}
