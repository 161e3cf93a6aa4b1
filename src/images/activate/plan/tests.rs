use super::*;
use crate::images::facts::Backing;
use apexgen::{noise, ApexBuilder, Key, Signing};

const NAME: &str = "com.example.one";

fn image(magic: bool) -> Vec<u8> {
    let mut image = noise(300 * 4096, 3);
    if magic {
        image[1024 + 24..1024 + 28].copy_from_slice(&0u32.to_le_bytes());
        image[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    }
    image
}

fn request() -> ActivateRequest {
    ActivateRequest {
        name: NAME.to_owned(),
        trusted_key: Some(Key::Rsa2048.blob()),
        verity: true,
    }
}

fn facts(size: usize, access: FileAccess) -> FileFacts {
    FileFacts {
        kind: FileKind::Regular,
        access,
        size: Bytes(size as u64),
        backing: Backing::Ordinary,
    }
}

/// What else a row says.
#[derive(Default)]
struct Row {
    builder: Option<ApexBuilder>,
    device: Option<DeviceNumber>,
    tree: Option<FileFacts>,
}

fn planned(request: &ActivateRequest, row: Row) -> Result<ActivatePlan> {
    let signing = Signing::by(Key::Rsa2048);
    let builder = row
        .builder
        .unwrap_or_else(|| ApexBuilder::new(NAME, 3).signed(&image(true), &signing));
    let (archive, _) = builder.build().unwrap();
    let contents = Contents::read(&archive[..])?;
    let vbmeta = Vbmeta::read(&archive[..], contents.payload)?;
    plan(
        request,
        &ActivateFacts {
            file: &facts(archive.len(), FileAccess::Read),
            device: row.device,
            contents: &contents,
            vbmeta: &vbmeta,
            hash_tree: row.tree.as_ref(),
            root: Path::new("/apex"),
        },
    )
}

fn without_tree() -> ApexBuilder {
    let signing = Signing {
        tree: false,
        ..Signing::by(Key::Rsa2048)
    };
    ApexBuilder::new(NAME, 3).signed(&image(true), &signing)
}

#[test]
fn plans_are_printed_whole() {
    let root = {
        let (_, root) = Signing::by(Key::Rsa2048).hash_tree(&image(true));
        avb::hex(&root)
    };
    let end = [
        "mount -t ext4 -o ro,nodev,noatime,dirsync /apex/com.example.one@3".to_owned(),
        "compare /apex/com.example.one@3/apex_manifest.pb".to_owned(),
        "mount --bind /apex/com.example.one@3 /apex/com.example.one".to_owned(),
    ];
    let verity =
        format!("dm blockd-apex-com.example.one@3: verity of 1228800 bytes, sha256 {root}");
    // The image and its tree of 3 and 1 blocks, not the vbmeta image behind them.
    let attach = "attach 1245184 bytes from byte 4096 to a loop device, blocks of 4096".to_owned();
    let steps = planned(&request(), Row::default()).unwrap().steps();
    assert_eq!(steps, [&[attach, verity.clone()][..], &end].concat());

    let row = Row {
        device: Some(DeviceNumber {
            major: 254,
            minor: 5,
        }),
        ..Row::default()
    };
    let linear = "dm blockd-data-com.example.one@3: 0 2432 linear 254:5 8".to_owned();
    let steps = planned(&request(), row).unwrap().steps();
    assert_eq!(steps, [&[linear, verity.clone()][..], &end].concat());

    let row = Row {
        builder: Some(without_tree()),
        tree: Some(facts(0, FileAccess::ReadWrite)),
        ..Row::default()
    };
    let build = "build the hash tree of the payload (1236992 bytes from byte 4096)".to_owned();
    let attach = "attach 1228800 bytes from byte 4096 to a loop device, blocks of 4096".to_owned();
    let steps = planned(&request(), row).unwrap().steps();
    assert_eq!(steps, [&[build, attach, verity][..], &end].concat());

    // Without dm-verity nothing behind the signed image is shown either; blocks as the file
    // system's, which is of 1024 here.
    let plain = ActivateRequest {
        verity: false,
        ..request()
    };
    let plan = planned(&plain, Row::default()).unwrap();
    let attach = "attach 1228800 bytes from byte 4096 to a loop device, blocks of 1024".to_owned();
    assert_eq!(plan.steps(), [&[attach][..], &end].concat());
    assert_eq!(
        plan.warnings,
        ["without dm-verity nothing checks what is read"]
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let signing = Signing::by(Key::Rsa2048);
    let signed = |name: &str, magic, signing: &Signing| {
        Some(ApexBuilder::new(name, 3).signed(&image(magic), signing))
    };
    let long = "n".repeat(114);
    let other = ActivateRequest {
        trusted_key: Some(Key::Other2048.blob()),
        ..request()
    };
    let named = |name: &str| ActivateRequest {
        name: name.to_owned(),
        ..request()
    };
    let no_key = ActivateRequest {
        trusted_key: None,
        ..request()
    };
    let tree = |access| Some(facts(0, access));
    let rows: Vec<(ActivateRequest, Row, Code, &str)> = vec![
        (
            named("com.example.two"),
            Row::default(),
            Code::InvalidRequest,
            "com.example.one",
        ),
        (
            named(&long),
            Row {
                builder: signed(&long, true, &signing),
                ..Row::default()
            },
            Code::InvalidRequest,
            "too long",
        ),
        (
            other,
            Row::default(),
            Code::BadSignature,
            "not the trusted key",
        ),
        (
            no_key,
            Row {
                builder: signed(NAME, true, &signing).map(|b| b.archive_key(Key::Other2048)),
                ..Row::default()
            },
            Code::BadSignature,
            "not the trusted key",
        ),
        (
            request(),
            Row {
                builder: signed(NAME, false, &signing),
                ..Row::default()
            },
            Code::Unsupported,
            "none of ext4",
        ),
        (
            request(),
            Row {
                builder: Some(without_tree()),
                ..Row::default()
            },
            Code::InvalidRequest,
            "hashTree is missing",
        ),
        (
            request(),
            Row {
                builder: Some(without_tree()),
                tree: tree(FileAccess::Read),
                ..Row::default()
            },
            Code::InvalidRequest,
            "not opened for reading and writing",
        ),
    ];
    for (request, row, code, words) in rows {
        let failure = planned(&request, row).unwrap_err();
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(words), "{failure}");
        assert!(!failure.remedy.is_empty(), "{failure}");
    }
}

/// The longest name fits; tags that are cut differ.
#[test]
fn names_fit_the_kernel() {
    let package = |name: &str| Package {
        name: name.to_owned(),
        version: 1,
    };
    let short = package("com.example.one");
    assert_eq!(short.tag_name(), "apex:com.example.one@1");
    let tags: Vec<String> = ["a", "b"]
        .iter()
        .map(|end| package(&("n".repeat(80) + end)).tag_name())
        .collect();
    assert_ne!(tags[0], tags[1]);
    assert!(tags
        .iter()
        .all(|tag| tag.len() == MAX_NAME && tag.contains('~')));
    assert!(package(&"n".repeat(113)).verity_name().len() == DM_MAX_NAME);
}
