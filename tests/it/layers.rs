//! The directions in which the product's modules may use each other.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module, and what it may name by `crate::`. Order is the order of the layers, lowest first.
const LAYERS: [(&str, &[&str]); 15] = [
    ("uapi", &[]),
    ("files", &[]),
    ("names", &[]),
    ("units", &[]),
    ("error", &["names"]),
    ("fact", &["names"]),
    ("aidl", &[]),
    ("logger", &[]),
    ("device", &["uapi", "units", "error"]),
    ("images", &["device", "error", "fact", "names", "units"]),
    ("reset", &["device", "error", "fact", "names", "units"]),
    (
        "cache",
        &["device", "error", "fact", "names", "reset", "units"],
    ),
    (
        "diagnostics",
        &["device", "error", "fact", "names", "reset", "units"],
    ),
    (
        "service",
        &[
            "aidl",
            "cache",
            "device",
            "diagnostics",
            "error",
            "fact",
            "files",
            "images",
            "names",
            "reset",
            "units",
        ],
    ),
    (
        "client",
        &["aidl", "device", "error", "images", "service", "units"],
    ),
];

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("layers::modules_use_only_lower_layers", directions).needs(&[Need::Host]),
        Case::new("layers::a_wrong_direction_is_found", wrong_direction),
        Case::new("layers::unsafe_is_in_uapi_only", unsafe_places).needs(&[Need::Host]),
        Case::new("layers::plans_do_no_io", plans_do_no_io).needs(&[Need::Host]),
        Case::new("layers::only_the_facade_names_rsbinder", facade).needs(&[Need::Host]),
    ]
}

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, files: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).expect("src can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source is UTF-8");
                files.push((path, text));
            }
        }
    }
    let mut files = Vec::new();
    walk(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    files
}

/// The module of a path below src, or `None` for the roots and the binaries.
fn module(path: &Path) -> Option<String> {
    let inside = path
        .strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .ok()?;
    let first = inside.iter().next()?.to_string_lossy().into_owned();
    let name = first.trim_end_matches(".rs").to_owned();
    (!["lib", "main", "bin"].contains(&name.as_str())).then_some(name)
}

/// The modules that `text` names by `crate::`.
fn used(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect::<String>()
        })
        .filter(|name| LAYERS.iter().any(|(module, _)| module == name))
        .collect()
}

/// What `module` uses and may not.
fn offences(module: &str, text: &str) -> Vec<String> {
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{module} has no place among the layers")];
    };
    used(text)
        .into_iter()
        .filter(|name| name != module && !allowed.contains(&name.as_str()))
        .map(|name| format!("{module} uses {name}"))
        .collect()
}

fn report(found: Vec<String>) -> Outcome {
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.join("\n"))
    }
}

fn directions() -> Outcome {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if let Some(module) = module(&path) {
            for offence in offences(&module, &text) {
                found.push(format!("{}: {offence}", path.display()));
            }
        }
    }
    report(found)
}

fn wrong_direction() -> Outcome {
    assert_eq!(
        offences("device", "use crate::reset::plan::Plan;"),
        ["device uses reset"]
    );
    assert_eq!(
        offences("reset", "    let x = crate::service::ipc::caller();"),
        ["reset uses service"]
    );
    assert!(offences("reset", "use crate::device::Mmc;").is_empty());
    assert!(!offences("elsewhere", "").is_empty());
    Ok(())
}

fn unsafe_places() -> Outcome {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if module(&path).as_deref() == Some("uapi") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // A word of the erase certificate's Content-Security-Policy.
            let code = code.replace("'unsafe-inline'", "");
            let says = code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe");
            if says {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    report(found)
}

/// A plan is made of facts and a request alone.
fn plans_do_no_io() -> Outcome {
    const IO: [&str; 7] = [
        "std::fs",
        "std::io",
        "std::net",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "Storage",
    ];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let is_plan = matches!(name.as_deref(), Some("plan.rs" | "edges.rs" | "timeout.rs"));
        if !is_plan {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in IO.iter().filter(|word| code.contains(**word)) {
            found.push(format!("{}: {word}", path.display()));
        }
    }
    report(found)
}

/// Everything that differs between rsbinder and libbinder_rs stands in the facade; the socket is
/// rsbinder's alone and stands with it in the three files that say so.
fn facade() -> Outcome {
    const PLACES: [&str; 4] = [
        "src/service/ipc.rs",
        "src/service/serve.rs",
        "src/client.rs",
        "src/aidl.rs",
    ];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let shown = path.to_string_lossy().into_owned();
        let named = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("rsbinder"));
        if named && !PLACES.iter().any(|place| shown.ends_with(place)) {
            found.push(shown);
        }
    }
    report(found)
}
