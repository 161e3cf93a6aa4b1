//! What is refused: each with its code, and with nothing sent to the card but CMD8.

use super::layout::{expect_untouched, machine, plain, plain_fields, run};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::served::Served;
use blockd::error::Code;
use blockd::reset::request::{Assurance, Marker, Method, Request};
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{Card, Cid, Config};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, Pattern};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::refuses_requests", requests),
        Case::new("reset::refuses_targets_in_use", in_use),
        Case::new("reset::refuses_machines", machines),
        Case::new("reset::refuses_cards", cards),
        Case::new("reset::refuses_odd_miscs", miscs),
        Case::new("reset::a_dry_run_wins_over_yes", dry_run).needs(&[Need::Host]),
    ]
}

/// Expects `code`, a text that contains each of `words`, a remedy, and nothing sent.
fn expect(machine: &Machine, request: &Request, code: Code, words: &[&str]) -> Outcome {
    machine.reset_logs();
    let failure = match run(machine, request) {
        Ok(_) => return Err(format!("{request:?} was carried out")),
        Err(failure) => failure,
    };
    let text = format!("{failure:?}");
    if failure.code != code {
        return Err(format!("{request:?}: {text}"));
    }
    for word in words {
        let said = failure.message.contains(word) || failure.remedy.contains(word);
        if !said {
            return Err(format!("`{word}` is missing in {text}"));
        }
    }
    expect_untouched(machine);
    Ok(())
}

fn requests() -> Outcome {
    let machine = machine(plain());
    let one = Request::new(&["userdata"]);
    let table = [
        (
            Request::new(&["nosuch"]),
            Code::NoSuchPartition,
            vec!["nosuch", "userdata"],
        ),
        (Request::new(&[""]), Code::NoSuchPartition, vec![]),
        (Request::new(&[]), Code::InvalidRequest, vec![]),
        (
            Request::new(&["mmcblk0"]),
            Code::ProtectedTarget,
            vec!["whole disk"],
        ),
        (Request::new(&["frp"]), Code::ProtectedTarget, vec!["frp"]),
        (
            Request::new(&["persist"]),
            Code::ProtectedTarget,
            vec!["persist"],
        ),
        (Request::new(&["misc"]), Code::ProtectedTarget, vec!["misc"]),
        (
            Request::new(&["userdata", "frp"]),
            Code::ProtectedTarget,
            vec!["frp"],
        ),
        (
            Request::new(&["userdata", "userdata"]),
            Code::InvalidRequest,
            vec!["twice"],
        ),
        (
            Request {
                offset: Bytes(1),
                ..one.clone()
            },
            Code::OutOfRange,
            vec!["512"],
        ),
        (
            Request {
                offset: Bytes(1 << 40),
                ..one.clone()
            },
            Code::OutOfRange,
            vec!["behind"],
        ),
        (
            Request {
                length: Some(Bytes(0)),
                ..one.clone()
            },
            Code::OutOfRange,
            vec!["0"],
        ),
        (
            Request {
                length: Some(Bytes(513)),
                ..one.clone()
            },
            Code::OutOfRange,
            vec!["513"],
        ),
        (
            Request {
                length: Some(Bytes(1 << 40)),
                ..one.clone()
            },
            Code::OutOfRange,
            vec![],
        ),
        (
            Request {
                offset: Bytes(512),
                length: Some(Bytes(u64::MAX - 511)),
                ..one.clone()
            },
            Code::OutOfRange,
            vec![],
        ),
        (
            Request {
                offset: Bytes(512),
                ..Request::new(&["userdata", "ragged"])
            },
            Code::InvalidRequest,
            vec!["more than one"],
        ),
        (
            Request {
                disk: Some("mmcblk1".to_owned()),
                ..one.clone()
            },
            Code::NoSuchPartition,
            vec!["mmcblk1"],
        ),
        (
            Request {
                min_assurance: Assurance::Purge,
                ..Request::new(&["ragged"])
            },
            Code::AssuranceUnreachable,
            vec!["clear", "purge"],
        ),
        (
            Request {
                marker: Marker::File,
                ..one.clone()
            },
            Code::InvalidRequest,
            vec!["file"],
        ),
        (
            Request {
                max_chunk: Bytes(1024),
                ..one.clone()
            },
            Code::InvalidRequest,
            vec!["erase group", "512 KiB"],
        ),
        (
            Request {
                method: Method::Trim,
                ..one.clone()
            },
            Code::Unsupported,
            vec!["trim", "auto"],
        ),
        (
            Request {
                method: Method::SecureTrim,
                ..one.clone()
            },
            Code::Unsupported,
            vec!["secure-trim"],
        ),
        (
            Request {
                method: Method::Discard,
                ..one.clone()
            },
            Code::Unsupported,
            vec!["not eMMC"],
        ),
        (
            Request {
                method: Method::Overwrite,
                min_assurance: Assurance::Purge,
                ..one
            },
            Code::AssuranceUnreachable,
            vec!["overwrite"],
        ),
    ];
    for (request, code, words) in table {
        expect(&machine, &request, code, &words)?;
    }
    Ok(())
}

fn in_use() -> Outcome {
    let request = Request::new(&["userdata"]);
    type Prepare = fn(&Machine) -> Result<(), nix::errno::Errno>;
    let table: [(Prepare, &str); 6] = [
        (|m| m.mount("mmcblk0p1", "/data"), "/data"),
        (|m| m.swap_on("mmcblk0p1"), "swap"),
        (
            |m| m.map_on("mmcblk0p1", "dm-3", "userdata_crypt"),
            "userdata_crypt",
        ),
        (|m| m.loop_on("mmcblk0p1", "loop5"), "loop5"),
        (|m| m.loop_on("mmcblk0", "loop6"), "loop6"),
        (|m| m.map_on("mmcblk0", "dm-4", "whole"), "dm-4"),
    ];
    for (prepare, word) in table {
        let machine = machine(plain());
        prepare(&machine).map_err(|e| e.to_string())?;
        expect(&machine, &request, Code::InUse, &[word])?;
    }
    // Held by an open that sysfs does not show.
    let machine = machine(plain());
    let held =
        blockd::device::Storage::open_block(&machine, "mmcblk0p1", blockd::device::Access::Claim);
    expect(&machine, &request, Code::InUse, &["mmcblk0p1"])?;
    drop(held);
    Ok(())
}

fn machines() -> Outcome {
    let request = Request::new(&["userdata"]);
    let read_only = machine(plain());
    read_only
        .set_read_only("mmcblk0p1", true)
        .map_err(|e| e.to_string())?;
    expect(&read_only, &request, Code::ReadOnly, &["mmcblk0p1"])?;

    let read_only = machine(plain());
    read_only
        .set_read_only("mmcblk0", true)
        .map_err(|e| e.to_string())?;
    expect(&read_only, &request, Code::ReadOnly, &["mmcblk0"])?;

    let no_right = machine(plain());
    no_right.set_raw_io(false);
    expect(&no_right, &request, Code::Permission, &["CAP_SYS_RAWIO"])?;

    let sd = machine(plain());
    sd.files().set("/sys/block/mmcblk0/device/type", "SD");
    expect(&sd, &request, Code::NotEmmc, &["SD"])?;

    let odd = machine(plain());
    odd.files()
        .set("/sys/block/mmcblk0/device/erase_size", 1 << 20);
    expect(&odd, &request, Code::DeviceFailed, &["erase group"])?;

    let long = machine(plain());
    long.files()
        .set("/sys/class/block/mmcblk0p1/size", 1u64 << 33);
    expect(&long, &request, Code::OutOfRange, &["partition table"])?;

    let overlap = machine(plain());
    overlap
        .files()
        .set("/sys/class/block/mmcblk0p2/start", 9000);
    expect(
        &overlap,
        &request,
        Code::ProtectedTarget,
        &["overlaps", "persist"],
    )
}

fn cards() -> Outcome {
    let request = Request::new(&["userdata"]);
    let nothing = Fields {
        sec_feature_support: 0,
        ..plain_fields()
    };
    let secure = Request {
        method: Method::SecureErase,
        ..request.clone()
    };
    expect(
        &machine(nothing.into()),
        &secure,
        Code::Unsupported,
        &["SEC_FEATURE_SUPPORT"],
    )?;
    let purge = Request {
        min_assurance: Assurance::Purge,
        ..request.clone()
    };
    expect(
        &machine(nothing.into()),
        &purge,
        Code::AssuranceUnreachable,
        &["erase"],
    )?;

    let broken = Config {
        cid: Cid {
            manfid: 0x15,
            name: "MAG4FA".to_owned(),
            ..Cid::default()
        },
        ..plain()
    };
    expect(
        &machine(broken),
        &secure,
        Code::Unsupported,
        &["MAG4FA", "--ignore-quirks"],
    )?;

    let nonsense = machine(
        Fields {
            rev: 200,
            ..plain_fields()
        }
        .into(),
    );
    expect(&nonsense, &request, Code::DeviceFailed, &["EXT_CSD"])
}

/// A machine with userdata and these besides.
fn with(others: &[Partition]) -> Result<Machine, String> {
    let config = plain();
    let store = MemStore::with_pattern(config.ext_csd.sectors(), Pattern { seed: 7 });
    let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
    let mut table = vec![Partition::new("userdata", 8192, 65_536)];
    table.extend_from_slice(others);
    Machine::new(card, &table).map_err(|e| e.to_string())
}

/// misc that is not there, is there twice, or holds no message.
fn miscs() -> Outcome {
    let marked = Request {
        marker: Marker::Misc,
        ..Request::new(&["userdata"])
    };
    expect(
        &with(&[])?,
        &marked,
        Code::InvalidRequest,
        &["no partition misc", "--marker"],
    )?;
    expect(
        &with(&[Partition::new("misc", 81_920, 2)])?,
        &marked,
        Code::InvalidRequest,
        &["misc has", "--marker"],
    )?;
    let twice = [
        Partition::new("misc", 81_920, 2048),
        Partition::new("misc", 90_112, 2048),
    ];
    // Which of them has the virtual A/B record cannot be told: no update is taken for merged.
    for request in [&marked, &Request::new(&["userdata"])] {
        expect(
            &with(&twice)?,
            request,
            Code::UpdatePending,
            &["several partitions misc", "--merges-done"],
        )?;
    }
    let stated = Request {
        merges_done: true,
        ..marked
    };
    expect(
        &with(&twice)?,
        &stated,
        Code::InvalidRequest,
        &["several partitions misc"],
    )
}

/// Who says both wants to see the plan.
fn dry_run() -> Outcome {
    let served = Served::new(machine(plain()), &[], None)?;
    let arguments = [
        "reset",
        "run",
        "--dry-run",
        "--yes",
        "--marker",
        "none",
        "userdata",
    ];
    let output = served.blockctl(&arguments)?;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("CMD38"), "{text}");
    expect_untouched(&served.card);
    Ok(())
}
