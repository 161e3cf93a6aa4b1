//! `card info`: of a card of the model over the socket, and of a saved register.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::reset::layout::{expect_untouched, machine, plain};
use crate::served::{json_of, Served};
use emmc::card::Config;
use std::fs;
use std::process::{Command, Output};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("diagnostics::card_info_decodes_every_register", decodes).needs(&[Need::Host]),
        Case::new("diagnostics::card_info_raw_can_be_read_again", raw).needs(&[Need::Host]),
        Case::new("diagnostics::card_info_without_the_right", no_right).needs(&[Need::Host]),
        Case::new("diagnostics::card_info_of_a_wrong_file", wrong_files).needs(&[Need::Host]),
        Case::new("diagnostics::card_info_of_a_wrong_disk", wrong_disks).needs(&[Need::Host]),
    ]
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn serve(config: Config) -> Result<Served, String> {
    Served::new(machine(config), &[], None)
}

/// blockctl without any service.
fn alone(arguments: &[&str]) -> Result<Output, String> {
    Command::new(env!("CARGO_BIN_EXE_blockctl"))
        .args(arguments)
        .output()
        .map_err(text)
}

fn decodes() -> Outcome {
    let served = serve(plain())?;
    let output = served.blockctl(&["--json", "card", "info"])?;
    assert!(output.status.success(), "{output:?}");
    let card = json_of(&output)?;
    let register = &card["ext_csd"];
    let bytes = served.card.with_card(|card| card.ext_csd().0);
    let fields = register.as_object().ok_or("no registers")?;
    assert!(fields.len() > 130, "{}", fields.len());
    for (name, field) in fields {
        let at = field["byte"].as_u64().ok_or("no byte")? as usize;
        let length = field["length_bytes"].as_u64().ok_or("no length")? as usize;
        let mut part = bytes[at..at + length].to_vec();
        if length <= 4 {
            part.reverse();
        }
        let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(field["value_hex"], hex.as_str(), "{name}");
    }
    assert_eq!(register["EXT_CSD_REV"]["meaning"], "eMMC 5.1");
    assert_eq!(
        register["SEC_FEATURE_SUPPORT"]["meaning"],
        "SECURE_ER_EN, SEC_BD_BLK_EN"
    );
    let cid = served.card.with_card(|card| card.cid().clone());
    let facts = &card["facts"];
    assert_eq!(facts["product_name"]["value"], cid.name.as_str());
    assert_eq!(
        facts["serial_number"]["value"],
        format!("{:#010x}", cid.serial).as_str()
    );
    assert_eq!(facts["reserved_blocks"]["value"], "normal");
    assert_eq!(facts["life_time_a"]["value"], "0 to 10 % used");
    assert_eq!(facts["quirks"]["value"], "none");

    let output = served.blockctl(&["card", "info"])?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, field) in fields {
        let meaning = field["meaning"].as_str().unwrap_or_default();
        assert!(
            shown
                .lines()
                .any(|line| line.contains(&format!(" {name} ")) && line.ends_with(meaning)),
            "{name}: {meaning}\n{shown}"
        );
    }
    expect_untouched(&served.card);
    Ok(())
}

fn raw() -> Outcome {
    let served = serve(plain())?;
    let bytes = served.card.with_card(|card| card.ext_csd().0);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let json = json_of(&served.blockctl(&["--json", "card", "info", "--raw"])?)?;
    assert_eq!(json["ext_csd_hex"], hex.as_str());
    let dump = served.blockctl(&["card", "info", "--raw"])?;
    let live = json_of(&served.blockctl(&["--json", "card", "info"])?)?;

    let folder = tempfile::tempdir().map_err(text)?;
    let forms = [
        ("dump", dump.stdout),
        ("binary", bytes.to_vec()),
        ("debugfs", format!("{hex}\n").into_bytes()),
    ];
    for (name, contents) in forms {
        let path = folder.path().join(name);
        fs::write(&path, contents).map_err(text)?;
        let path = path.display().to_string();
        let saved = json_of(&alone(&["--json", "card", "info", "--from", &path])?)?;
        assert_eq!(saved["ext_csd"], live["ext_csd"], "{name}");
        assert_eq!(
            saved["facts"]["cache_size"]["value"],
            live["facts"]["cache_size"]["value"]
        );
    }
    Ok(())
}

fn no_right() -> Outcome {
    let served = serve(plain())?;
    served.card.set_raw_io(false);
    let card = json_of(&served.blockctl(&["--json", "card", "info"])?)?;
    assert!(card["ext_csd"].is_null(), "{card}");
    assert!(card["facts"]["life_time_a"]["value"].is_null(), "{card}");
    assert!(
        !card["facts"]["maker"]["value"].is_null(),
        "the CID needs no right: {card}"
    );
    let raw = served.blockctl(&["--json", "card", "info", "--raw"])?;
    assert_eq!(raw.status.code(), Some(2), "{raw:?}");
    let failure = json_of(&raw)?;
    assert_eq!(failure["error"]["code"], "UNSUPPORTED");
    assert!(
        failure["error"]["remedy"]
            .as_str()
            .is_some_and(|remedy| remedy.contains("CAP_SYS_RAWIO")),
        "{failure}"
    );
    Ok(())
}

fn wrong_files() -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let table: [(&[u8], &str); 4] = [
        (&[7; 100], "it has 100 bytes"),
        (&[0xff; 512], "every byte is 0xff"),
        (b"Extended CSD rev 1.8", "line 1 has `x`"),
        (&[8; 512], "EXT_CSD_REV"),
    ];
    for (contents, want) in table {
        let path = folder.path().join("saved");
        let mut contents = contents.to_vec();
        if contents == [8; 512] {
            contents[192] = 77;
        }
        fs::write(&path, contents).map_err(text)?;
        let shown = path.display().to_string();
        let output = alone(&["--json", "card", "info", "--from", &shown])?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let failure = json_of(&output)?;
        let message = failure["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(want) && message.contains(&shown),
            "{message}"
        );
    }
    let missing = alone(&["card", "info", "--from", "/nowhere/at/all"])?;
    assert_eq!(missing.status.code(), Some(1));
    let both = alone(&["card", "info", "--from", "x", "mmcblk0"])?;
    assert_eq!(both.status.code(), Some(1), "a disk and a file");
    Ok(())
}

fn wrong_disks() -> Outcome {
    let served = serve(plain())?;
    let failed = served.blockctl(&["--json", "card", "info", "mmcblk7"])?;
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(json_of(&failed)?["error"]["code"], "NO_SUCH_DEVICE");
    served
        .card
        .files()
        .set("/sys/block/mmcblk0/device/type", "SD");
    let none = served.blockctl(&["--json", "card", "info"])?;
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(json_of(&none)?["error"]["code"], "NOT_EMMC");
    let log = served.card.log().count(8);
    let named = json_of(&served.blockctl(&["--json", "card", "info", "mmcblk0"])?)?;
    assert_eq!(named["facts"]["type"]["value"], "SD");
    assert!(named["ext_csd"].is_null());
    assert_eq!(
        served.card.log().count(8),
        log,
        "CMD8 is another command for an SD card"
    );
    Ok(())
}
