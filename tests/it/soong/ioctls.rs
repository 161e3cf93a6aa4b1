//! The ioctls that the product issues (src/uapi) and those that the policy grants (allowxperm) are
//! the same numbers.

use super::rustc::{project, read};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::uapi::mmc::mmc_ioc_cmd;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::size_of;

/// Numbers by name.
type Numbers = BTreeMap<String, u32>;

/// What begins so is issued where an APEX is activated. AOSP lets no domain mount one but apexd's,
/// which has dm_device without a list of ioctls; one of ours would take the others away from it.
const APEXD_S: &str = "dm_";

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("sepolicy::ioctls_are_those_of_uapi", ioctls).needs(&[Need::Host]),
        Case::new("sepolicy::a_wrong_ioctl_is_found", wrong_ioctl),
    ]
}

fn ioctls() -> Outcome {
    let mut issued = Numbers::new();
    for (path, text) in texts("src/uapi", "rs")? {
        issued.extend(of_uapi(&text).map_err(|why| format!("{path}: {why}"))?);
    }
    let mut defines = defines(&read("tests/sepolicy/base/03_ioctl_defines")?)?;
    defines.extend(self::defines(&read("sepolicy/private/ioctl_defines")?)?);
    let mut granted = Numbers::new();
    for (path, text) in texts("sepolicy/private", "te")? {
        granted.extend(of_policy(&text, &defines).map_err(|why| format!("{path}: {why}"))?);
    }
    issued.retain(|name, _| !name.starts_with(APEXD_S));
    // The reset and the images at least.
    if issued.len() < 10 {
        return Err(format!("found only {issued:?} in src/uapi"));
    }
    compare(&issued, &granted)
}

/// The files of a folder that end so, path and text.
fn texts(dir: &str, ext: &str) -> Result<Vec<(String, String)>, String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(project().join(dir)).map_err(|e| format!("{dir}: {e}"))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_some_and(|e| e == ext) {
            let name = format!(
                "{dir}/{}",
                path.file_name().unwrap_or_default().to_string_lossy()
            );
            let text = read(&name)?;
            texts.push((name, text));
        }
    }
    Ok(texts)
}

fn compare(issued: &Numbers, granted: &Numbers) -> Outcome {
    let numbers = |of: &Numbers| of.values().copied().collect::<BTreeSet<u32>>();
    let missing = |from: &Numbers, of: &Numbers| -> Vec<String> {
        let of = numbers(of);
        from.iter()
            .filter(|(_, number)| !of.contains(number))
            .map(|(name, number)| format!("{name} {number:#x}"))
            .collect()
    };
    let not_granted = missing(issued, granted);
    let not_issued = missing(granted, issued);
    if not_granted.is_empty() && not_issued.is_empty() {
        return Ok(());
    }
    Err(format!(
        "issued and granted nowhere: {not_granted:?}; granted and never issued: {not_issued:?}"
    ))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(&digits.replace('_', ""), 16).ok(),
        None => text.parse().ok(),
    }
}

/// `asm-generic/ioctl.h`: the direction for `_IOC`, by the name of nix's macro.
fn direction(kind: &str) -> Option<u32> {
    match kind {
        "none" => Some(0),
        "write_ptr" | "write_int" => Some(1),
        "read" => Some(2),
        "readwrite" => Some(3),
        _ => None,
    }
}

/// Sizes of the argument types that numbers encode, on 64 bit.
fn size(of: &str) -> Option<u32> {
    match of {
        "usize" => Some(8),
        "mmc_ioc_cmd" => Some(size_of::<mmc_ioc_cmd>() as u32),
        _ => number(of),
    }
}

/// `_IOC(direction, kind, number, size)`
fn encoded(direction: u32, arguments: &[&str]) -> Option<u32> {
    let [kind, nr, of] = arguments else {
        return None;
    };
    Some(direction << 30 | size(of)? << 16 | number(kind)? << 8 | number(nr)?)
}

/// What stands between `start` and the next `)`, split at commas; all places.
fn calls<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    text.split(start).skip(1).map(|rest| {
        let inside = rest.split(')').next().unwrap_or_default();
        inside.split([',', '(']).map(str::trim).collect()
    })
}

/// Every ioctl that a file of uapi issues, by the name of the function that nix makes.
fn of_uapi(text: &str) -> Result<Numbers, String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    // const NAME: type = number; or = nix::request_code_readwrite!(kind, number, size);
    let mut constants = Numbers::new();
    for rest in code.split("const ").skip(1) {
        let Some((head, value)) = rest.split(';').next().and_then(|s| s.split_once('=')) else {
            continue;
        };
        let name = head.split(':').next().unwrap_or_default().trim();
        let value = value.trim();
        let request = calls(value, "nix::request_code_").next();
        let found = match request.as_deref() {
            Some([kind, arguments @ ..]) => {
                direction(kind.trim_end_matches('!')).and_then(|d| encoded(d, arguments))
            }
            _ => number(value),
        };
        if let Some(found) = found {
            constants.insert(name.to_owned(), found);
        }
    }
    let mut numbers = Numbers::new();
    for call in calls(&code, "nix::ioctl_") {
        let [kind, name, arguments @ ..] = call.as_slice() else {
            return Err(format!("{call:?} is not understood"));
        };
        let kind = kind.trim_end_matches('!');
        let found = match (kind.strip_suffix("_bad"), arguments) {
            (Some(_), [value, ..]) => {
                let constant = value.trim_start_matches("super::");
                number(value).or_else(|| constants.get(constant).copied())
            }
            (None, arguments) => direction(kind).and_then(|d| encoded(d, arguments)),
            _ => None,
        };
        let found = found.ok_or_else(|| format!("the number of {name} is not understood"))?;
        numbers.insert((*name).to_owned(), found);
    }
    Ok(numbers)
}

/// The defines of an `ioctl_defines` file.
fn defines(text: &str) -> Result<Numbers, String> {
    let mut numbers = Numbers::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(['`', '\'']).collect();
        let found = match parts.as_slice() {
            ["define(", name, ", ", value, ")"] => number(value).map(|n| (*name, n)),
            _ => None,
        };
        let (name, value) = found.ok_or_else(|| format!("`{line}` is no define"))?;
        numbers.insert(name.to_owned(), value);
    }
    Ok(numbers)
}

/// Every ioctl that an `allowxperm` of a policy file names.
fn of_policy(text: &str, defines: &Numbers) -> Result<Numbers, String> {
    let code: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().to_owned() + "\n")
        .collect();
    let mut numbers = Numbers::new();
    for rest in code.split("allowxperm ").skip(1) {
        let statement = rest.split(';').next().unwrap_or_default();
        let (_, list) = statement
            .split_once(" ioctl ")
            .ok_or_else(|| format!("`{statement}` is no list of ioctls"))?;
        for name in list.trim_matches([' ', '{', '}', '\n']).split_whitespace() {
            let value = defines
                .get(name)
                .ok_or_else(|| format!("{name} has no number"))?;
            numbers.insert(name.to_owned(), *value);
        }
    }
    Ok(numbers)
}

/// The comparison finds what it is for.
fn wrong_ioctl() -> Outcome {
    let uapi = "const A: t = 0x4c0a;\nconst M: t = nix::request_code_readwrite!(179, 1, 8);\n\
                nix::ioctl_write_ptr_bad!(a, super::A, s);\n\
                nix::ioctl_readwrite_bad!(m, M, s);\n\
                nix::ioctl_read!(\n    size,\n    0x12,\n    114,\n    usize\n);\n\
                // nix::ioctl_none_bad!(not, 1);\n";
    let issued = of_uapi(uapi)?;
    let numbers: Vec<u32> = issued.values().copied().collect();
    assert_eq!(numbers, [0x4c0a, 0xc008_b301, 0x8008_1272]);
    assert!(of_uapi("nix::ioctl_read!(x, 1, 2, other);").is_err());
    assert!(of_uapi("nix::ioctl_none_bad!(x, super::NOWHERE);").is_err());

    let defines = defines("define(`A', `0x00004c0a')\ndefine(`B', `0x00000001')\n")?;
    let policy = "allowxperm x y:blk_file ioctl {\n  A # not B\n};\nallowxperm x { y }:f ioctl B;";
    let granted = of_policy(policy, &defines)?;
    assert_eq!(granted.len(), 2);
    assert!(of_policy("allowxperm x y:f ioctl C;", &defines).is_err());
    let why = compare(&issued, &granted).unwrap_err();
    assert!(
        why.contains("m 0xc008b301") && why.contains("B 0x1"),
        "{why}"
    );
    assert!(!why.contains("0x4c0a"), "{why}");
    compare(&issued, &issued)
}
