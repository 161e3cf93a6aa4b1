//! The verdict, fact by fact.

use super::*;
use crate::device::ext_csd::ExtCsd;

fn csd(size: u8, on: u8) -> Fact<ExtCsd> {
    let mut bytes = [0; 512];
    (bytes[192], bytes[212], bytes[250], bytes[33]) = (8, 0x40, size, on);
    Fact::known(ExtCsd(bytes), "CMD8")
}

fn unread<T>() -> Fact<T> {
    Fact::unknown("denied", None)
}

fn word(text: &str) -> Fact<String> {
    Fact::known(text.to_owned(), "sysfs")
}

fn mount(options: &str) -> Mount {
    Mount {
        place: "/data".to_owned(),
        node: "mmcblk0p1".to_owned(),
        kind: "f2fs".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    }
}

fn facts(write_cache: &str, ext_csd: Fact<ExtCsd>, options: &str) -> Facts {
    Facts {
        disk: "mmcblk0".to_owned(),
        write_cache: word(write_cache),
        fua: word("1"),
        ext_csd,
        layers: Vec::new(),
        mounts: Fact::known(vec![mount(options)], "mountinfo"),
    }
}

#[test]
fn one_verdict_for_each_row() {
    use Verdict::*;
    let (back, through) = ("write back", "write through");
    let table = [
        (
            back,
            csd(8, 1),
            "rw",
            Safe,
            "flushes the disk's cache at each fsync",
        ),
        (
            back,
            csd(8, 1),
            "rw,nobarrier",
            DataAtRisk,
            "/data is mounted with nobarrier",
        ),
        (
            back,
            csd(8, 1),
            "rw,fsync_mode=nobarrier",
            DataAtRisk,
            "fsync_mode=nobarrier",
        ),
        (back, csd(8, 1), "rw,barrier=0", DataAtRisk, "barrier=0"),
        (back, csd(8, 1), "rw,fsync_mode=posix", Safe, "cache is on"),
        (back, csd(8, 1), "ro,nobarrier", Safe, "cache is on"),
        (
            through,
            csd(8, 1),
            "rw",
            DataAtRisk,
            "neither flushes nor FUA",
        ),
        (through, csd(8, 0), "rw", SafeButSlow, "which is off"),
        (
            back,
            csd(8, 0),
            "rw,nobarrier",
            SafeButSlow,
            "nobarrier: fsync does not flush: without effect",
        ),
        // F3: the kernel says "write back" for a card without a cache, since it has reliable writes.
        (back, csd(0, 0), "rw", Safe, "no volatile cache"),
        (back, csd(0, 1), "rw", Safe, "no volatile cache"),
        (
            through,
            csd(0, 0),
            "rw,nobarrier",
            Safe,
            "was changed: the kernel's default",
        ),
        (back, unread(), "rw", Safe, "no file system is told not to"),
        (through, unread(), "rw", CannotTell, "EXT_CSD would tell"),
        (
            back,
            unread(),
            "rw,nobarrier",
            CannotTell,
            "EXT_CSD would tell",
        ),
    ];
    for (write_cache, card, options, verdict, reason) in table {
        let facts = facts(write_cache, card, options);
        let judgement = judge(&facts);
        let name = format!("{write_cache} {options} {judgement:?}");
        assert_eq!(judgement.verdict, verdict, "{name}");
        assert!(
            judgement.reasons.iter().any(|r| r.contains(reason)),
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_not_guessed() {
    let mut unread_queue = facts("", csd(8, 1), "rw");
    unread_queue.write_cache = unread();
    assert_eq!(judge(&unread_queue).verdict, Verdict::CannotTell);
    let mut unread_mounts = facts("write back", csd(8, 1), "rw");
    unread_mounts.mounts = unread();
    assert_eq!(judge(&unread_mounts).verdict, Verdict::CannotTell);
    // A leak that is known weighs more than what is not.
    unread_mounts.write_cache = word("write through");
    assert_eq!(judge(&unread_mounts).verdict, Verdict::DataAtRisk);
    unread_mounts.ext_csd = csd(0, 0);
    assert_eq!(judge(&unread_mounts).verdict, Verdict::Safe);
}

#[test]
fn a_layer_in_between_can_swallow_flushes() {
    let mut facts = facts("write back", csd(8, 1), "rw");
    facts.layers.push(Layer {
        node: "dm-0".to_owned(),
        write_cache: word("write back"),
        read_only: false,
    });
    assert_eq!(judge(&facts).verdict, Verdict::Safe);
    facts.layers[0].write_cache = word("write through");
    let judgement = judge(&facts);
    assert_eq!(judgement.verdict, Verdict::DataAtRisk);
    assert!(judgement.reasons[1].contains("dm-0"), "{judgement:?}");
    // As the loop device of an APEX says, which is never written.
    facts.layers[0].read_only = true;
    assert_eq!(judge(&facts).verdict, Verdict::Safe);
}

#[test]
fn a_card_before_4_5_has_no_cache() {
    let mut old = facts("write back", csd(8, 1), "rw");
    if let Fact::Known { value, .. } = &mut old.ext_csd {
        value.0[192] = 5;
    }
    assert_eq!(old.card_cache(), Some(CardCache::None));
}

#[test]
fn the_default_is_the_kernel_s() {
    let table = [
        ("1", csd(0, 0), Some("write back")),
        ("0", csd(0, 0), Some("write through")),
        ("0", csd(8, 1), Some("write back")),
        ("0", csd(8, 0), Some("write through")),
        ("1", unread(), None),
    ];
    for (fua, card, want) in table {
        let mut facts = facts("write back", card, "rw");
        facts.fua = word(fua);
        assert_eq!(facts.default_write_cache(), want, "{facts:?}");
    }
}
