//! Every method, on cards that offer different things.

use super::layout::{expect_erased_exactly, machine, place, plain, plain_fields, run, GROUP};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::reset::request::{Assurance, Method, Physical, Request};
use blockd::service::{convert, json};
use blockd::units::Bytes;
use emmc::card::ext_csd::Fields;
use emmc::card::{argument, Card, Cid, Config};
use emmc::machine::{Machine, Partition};
use emmc::store::{MemStore, Pattern};

/// SEC_FEATURE_SUPPORT bits.
const SECURE_ERASE: u8 = 0x01;
const TRIM: u8 = 0x10;
const SANITIZE: u8 = 0x40;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("reset::thousands_of_chunks_make_a_short_report", thousands).needs(&[Need::Host]),
        Case::new("reset::each_method_is_worth_what_it_says", worth),
        Case::new("reset::auto_takes_the_strongest", auto),
        Case::new("reset::secure_trim_reaches_ragged_edges", edges),
        Case::new("reset::chunks_are_kept_to_their_size", chunks),
        Case::new("reset::a_panicking_kernel_is_not_kept_waiting", hung_task),
        Case::new("reset::quirks_are_the_kernel_s", quirks),
    ]
}

fn card(features: u8) -> Machine {
    machine(
        Fields {
            sec_feature_support: features,
            ..plain_fields()
        }
        .into(),
    )
}

fn request(name: &str, method: Method) -> Request {
    Request {
        method,
        ..Request::new(&[name])
    }
}

/// (features, target, method) → (physical, CMD38 by argument: erase, secure, trim, trim1, trim2),
/// and whether SANITIZE was sent.
fn worth() -> Outcome {
    use Method::{Auto, Erase, Overwrite, SecureErase, SecureTrim, Trim};
    let all = SECURE_ERASE | TRIM | SANITIZE;
    let table: [(u8, &str, Method, Physical, [u64; 5]); 13] = [
        (
            SECURE_ERASE,
            "userdata",
            SecureErase,
            Physical::SecureErase,
            [0, 1, 0, 0, 0],
        ),
        (
            SECURE_ERASE,
            "ragged",
            SecureErase,
            Physical::None,
            [0, 1, 0, 0, 0],
        ),
        (
            SECURE_ERASE | TRIM,
            "userdata",
            SecureErase,
            Physical::SecureErase,
            [0, 1, 0, 0, 0],
        ),
        (
            SECURE_ERASE | TRIM,
            "ragged",
            SecureErase,
            Physical::SecureErase,
            [0, 1, 0, 2, 2],
        ),
        (
            SECURE_ERASE | TRIM,
            "ragged",
            SecureTrim,
            Physical::SecureTrim,
            [0, 0, 0, 1, 1],
        ),
        (TRIM, "ragged", Trim, Physical::None, [0, 0, 1, 0, 0]),
        (
            TRIM | SANITIZE,
            "ragged",
            Trim,
            Physical::Sanitize,
            [0, 0, 1, 0, 0],
        ),
        (0, "ragged", Erase, Physical::None, [1, 0, 0, 0, 0]),
        (
            SANITIZE,
            "ragged",
            Erase,
            Physical::Sanitize,
            [1, 0, 0, 0, 0],
        ),
        (0, "ragged", Overwrite, Physical::None, [0, 0, 0, 0, 0]),
        (
            SANITIZE,
            "userdata",
            Overwrite,
            Physical::Sanitize,
            [0, 0, 0, 0, 0],
        ),
        (all, "ragged", Auto, Physical::Sanitize, [0, 1, 0, 2, 2]),
        (
            all,
            "tiny",
            SecureErase,
            Physical::Sanitize,
            [0, 0, 0, 1, 1],
        ),
    ];
    for (features, target, method, physical, counts) in table {
        let what = format!("{features:#x} {target} {method}");
        let machine = card(features);
        let report =
            run(&machine, &request(target, method)).map_err(|e| format!("{what}: {e:?}"))?;
        expect_erased_exactly(&machine, &[target]);
        assert_eq!(report.physical, physical, "{what}");
        let worth = match physical {
            Physical::None => Assurance::Clear,
            _ => Assurance::Purge,
        };
        assert_eq!(report.assurance, worth, "{what}");
        let log = machine.log();
        let sent = [
            argument::ERASE,
            argument::SECURE_ERASE,
            argument::TRIM,
            argument::SECURE_TRIM_1,
            argument::SECURE_TRIM_2,
        ]
        .map(|argument| log.erases(argument).commands);
        assert_eq!(sent, counts, "{what}");
        assert_eq!(
            report.plan.sanitize.is_some(),
            features & SANITIZE != 0,
            "{what}"
        );
        let bytes = report.targets[0].erased.0 + report.targets[0].overwritten.0;
        assert_eq!(bytes, place(target).sectors * 512, "{what}");
    }
    Ok(())
}

fn auto() -> Outcome {
    for (features, method) in [
        (SECURE_ERASE, Method::SecureErase),
        (SECURE_ERASE | TRIM | SANITIZE, Method::SecureErase),
        (TRIM | SANITIZE, Method::Erase),
        (0, Method::Erase),
    ] {
        let machine = card(features);
        let report =
            run(&machine, &request("userdata", Method::Auto)).map_err(|e| e.to_string())?;
        assert_eq!(report.plan.choice.method, method, "{features:#x}");
    }
    Ok(())
}

fn edges() -> Outcome {
    let machine = card(SECURE_ERASE | TRIM);
    let purge = Request {
        min_assurance: Assurance::Purge,
        ..Request::new(&["ragged"])
    };
    let report = run(&machine, &purge).map_err(|e| e.to_string())?;
    expect_erased_exactly(&machine, &["ragged"]);
    assert_eq!(report.targets[0].overwritten, Bytes(0));
    Ok(())
}

fn chunks() -> Outcome {
    // (chunk in groups, commands for the 64 groups of userdata)
    for (groups, commands) in [(1, 64), (2, 32), (5, 13), (63, 2), (64, 1), (1000, 1)] {
        let machine = machine(plain());
        let request = Request {
            max_chunk: Bytes(groups * GROUP * 512 + 511),
            ..Request::new(&["userdata"])
        };
        let report = run(&machine, &request).map_err(|e| e.to_string())?;
        expect_erased_exactly(&machine, &["userdata"]);
        assert_eq!(machine.log().count(38), commands, "{groups}");
        assert_eq!(
            machine.journal().calls.multi_cmd_ioctls,
            commands,
            "{groups}"
        );
        // Every border between two chunks is looked at.
        let samples = &report.plan.targets[0].samples;
        for act in &report.plan.targets[0].middle {
            let range = act.range();
            assert!(samples.contains(&range.start), "{groups}");
        }
    }
    Ok(())
}

fn hung_task() -> Outcome {
    let machine = machine(plain());
    machine.files().set("/proc/sys/kernel/hung_task_panic", 1);
    machine
        .files()
        .set("/proc/sys/kernel/hung_task_timeout_secs", 12);
    let report = run(&machine, &Request::new(&["userdata"])).map_err(|e| e.to_string())?;
    // 6 s at 300 ms a group: 20 groups.
    assert_eq!(machine.log().count(38), 4);
    assert!(report
        .plan
        .notes
        .iter()
        .any(|n| n.contains("hung_task_panic")));
    Ok(())
}

fn quirks() -> Outcome {
    let listed = |manfid: u8, name: &str, features: u8| {
        let fields = Fields {
            sec_feature_support: features,
            ..plain_fields()
        };
        Config {
            cid: Cid {
                manfid,
                name: name.to_owned(),
                ..Cid::default()
            },
            ..fields.into()
        }
    };
    // The firmware that secure erase kills: erased, never securely, and said.
    let samsung = machine(listed(0x15, "MAG4FA", SECURE_ERASE | TRIM));
    let report = run(&samsung, &Request::new(&["ragged"])).map_err(|e| e.to_string())?;
    expect_erased_exactly(&samsung, &["ragged"]);
    assert_eq!(samsung.log().erases(argument::SECURE_ERASE).commands, 0);
    assert_eq!(samsung.log().erases(argument::SECURE_TRIM_1).commands, 0);
    assert_eq!(report.assurance, Assurance::Clear);
    assert!(report.plan.notes.iter().any(|n| n.contains("MAG4FA")));
    // Overridden.
    let samsung = machine(listed(0x15, "MAG4FA", SECURE_ERASE));
    let forced = Request {
        ignore_quirks: true,
        ..Request::new(&["userdata"])
    };
    run(&samsung, &forced).map_err(|e| e.to_string())?;
    assert_eq!(samsung.log().erases(argument::SECURE_ERASE).commands, 1);
    // A broken trim: its edges are overwritten.
    let kingston = machine(listed(0x70, "V10016", SECURE_ERASE | TRIM));
    run(&kingston, &Request::new(&["ragged"])).map_err(|e| e.to_string())?;
    assert_eq!(kingston.log().erases(argument::SECURE_TRIM_1).commands, 0);
    expect_erased_exactly(&kingston, &["ragged"]);
    Ok(())
}

/// Kernel binder carries 1 MiB for everything that is on its way: an answer that does not fit would
/// be lost after the erase.
fn thousands() -> Outcome {
    const GROUPS: u64 = 5000;
    let sectors = (GROUPS as u32 + 10) * GROUP as u32;
    let config: Config = Fields {
        sectors,
        ..plain_fields()
    }
    .into();
    let store = MemStore::with_pattern(sectors.into(), Pattern { seed: 2 });
    let card = Card::new(config, Box::new(store)).map_err(|e| e.to_string())?;
    let table = [Partition::new("userdata", GROUP, GROUPS * GROUP)];
    let machine = Machine::new(card, &table).map_err(|e| e.to_string())?;
    let request = Request {
        max_chunk: Bytes(GROUP * 512),
        ..Request::new(&["userdata"])
    };
    let report = run(&machine, &request).map_err(|e| e.to_string())?;
    assert_eq!(machine.log().count(38), GROUPS);
    let wire = convert::report(&report);
    let target = &wire.targets[0];
    assert_eq!(target.eraseCommands, GROUPS as i64);
    // CMD35, 36, 38, 13 each.
    assert_eq!(
        target.commands.len() as i64 + target.omittedCommands,
        4 * GROUPS as i64
    );
    assert_eq!(target.commands[0].argument, i64::from(GROUP as u32));
    // A parcel has two bytes a letter and no keys.
    let text = json::report(&wire).to_string();
    assert!(2 * text.len() < 128 << 10, "{} bytes of JSON", text.len());
    Ok(())
}
