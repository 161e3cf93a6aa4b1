//! `cache info`: the verdict over a card of the model, by the real blockctl.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::reset::layout::{expect_untouched, machine, plain};
use crate::served::{json_of, Served};
use nix::errno::Errno;
use serde_json::Value;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("diagnostics::cache_info_judges", judges).needs(&[Need::Host]),
        Case::new("diagnostics::cache_info_sees_what_lies_above", above).needs(&[Need::Host]),
        Case::new(
            "diagnostics::cache_info_tells_what_it_cannot_tell",
            cannot_tell,
        )
        .needs(&[Need::Host]),
        Case::new("diagnostics::cache_info_of_a_wrong_disk", wrong_disk).needs(&[Need::Host]),
    ]
}

fn serve() -> Result<Served, String> {
    Served::new(machine(plain()), &[], None)
}

fn info(served: &Served) -> Result<Value, String> {
    json_of(&served.blockctl(&["--json", "cache", "info"])?)
}

fn expect(served: &Served, verdict: &str, reason: &str) -> Outcome {
    let info = info(served)?;
    let reasons = info["reasons"].as_array().ok_or("no reasons")?;
    let told = reasons
        .iter()
        .any(|text| text.as_str().is_some_and(|text| text.contains(reason)));
    if info["verdict"] == verdict && told {
        Ok(())
    } else {
        Err(format!("not `{verdict}` with `{reason}`: {info}"))
    }
}

fn judges() -> Outcome {
    let served = serve()?;
    expect(&served, "safe", "cache is on")?;
    let facts = info(&served)?;
    assert_eq!(facts["facts"]["card_cache"]["value"], "on");
    assert_eq!(facts["facts"]["write_cache_default"]["value"], "write back");
    served.card.set_write_back(false);
    expect(&served, "data at risk", "neither flushes nor FUA")?;
    expect(&served, "data at risk", "was changed")?;
    let text = served.blockctl(&["cache", "info"])?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("mmcblk0: data at risk\n  - "), "{text}");
    served.card.set_write_back(true);
    expect(&served, "safe", "flushes the disk's cache")?;
    expect_untouched(&served.card);
    Ok(())
}

/// A file system on dm on a partition, and one on a loop device whose file lies on it.
fn above() -> Outcome {
    let served = serve()?;
    let files = served.card.files();
    files.set("/sys/class/block/mmcblk0p1/holders/dm-0", "");
    for (node, device) in [("dm-0", "253:0"), ("loop7", "7:7")] {
        files.set(&format!("/sys/class/block/{node}/dev"), device);
        files.set(&format!("/sys/block/{node}/ro"), 0);
        files.set(&format!("/sys/class/block/{node}/ro"), 0);
        let queue = format!("/sys/class/block/{node}/queue/write_cache");
        files.set(&queue, "write back");
    }
    files.set("/sys/block/loop7/loop/backing_file", "/data/images/a.img");
    files.append(
        "/proc/self/mountinfo",
        "40 25 253:0 / /data rw - f2fs /dev/block/dm-0 rw,fsync_mode=posix",
    );
    files.append(
        "/proc/self/mountinfo",
        "41 25 7:7 / /mnt/image rw - ext4 /dev/block/loop7 rw,data=writeback",
    );
    expect(&served, "safe", "/mnt/image is mounted with data=writeback")?;
    files.append(
        "/proc/self/mountinfo",
        "42 25 7:7 / /mnt/other rw - ext4 /dev/block/loop7 rw,nobarrier",
    );
    expect(
        &served,
        "data at risk",
        "/mnt/other is mounted with nobarrier",
    )?;
    let before = info(&served)?;
    assert_eq!(
        before["facts"]["mount_dm-0"]["value"],
        "/data f2fs rw,fsync_mode=posix"
    );
    // A file system of another disk is none of ours.
    let served = serve()?;
    served.card.files().append(
        "/proc/self/mountinfo",
        "40 25 8:1 / /usb rw - ext4 /dev/sda1 rw,nobarrier",
    );
    expect(&served, "safe", "no file system is told not to")?;
    served
        .card
        .files()
        .set("/sys/class/block/mmcblk0p1/holders/dm-0", "");
    served
        .card
        .files()
        .set("/sys/class/block/dm-0/queue/write_cache", "write through");
    expect(&served, "data at risk", "queue/write_cache of dm-0")
}

fn cannot_tell() -> Outcome {
    let served = serve()?;
    served.card.set_raw_io(false);
    expect(
        &served,
        "safe",
        "whether the disk has a volatile cache is not known",
    )?;
    served.card.set_write_back(false);
    expect(&served, "cannot tell", "EXT_CSD would tell")?;
    let served = serve()?;
    let path = "/sys/block/mmcblk0/queue/write_cache";
    served.card.files().deny(path, Errno::EACCES);
    expect(&served, "cannot tell", path)?;
    let served = serve()?;
    let path = "/proc/self/mountinfo";
    served.card.files().deny(path, Errno::EACCES);
    expect(&served, "cannot tell", "mount options are not known")
}

fn wrong_disk() -> Outcome {
    let served = serve()?;
    let failed = served.blockctl(&["--json", "cache", "info", "sdz"])?;
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(json_of(&failed)?["error"]["code"], "NO_SUCH_DEVICE");
    served
        .card
        .files()
        .set("/sys/block/mmcblk0/device/type", "SD");
    let none = served.blockctl(&["--json", "cache", "info"])?;
    assert_eq!(none.status.code(), Some(2));
    let named = json_of(&served.blockctl(&["--json", "cache", "info", "mmcblk0"])?)?;
    assert_eq!(
        named["verdict"], "safe",
        "the kernel flushes whatever is there: {named}"
    );
    Ok(())
}
