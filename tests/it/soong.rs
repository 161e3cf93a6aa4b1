//! The Android side, as far as it can be held without an Android tree: the sources type-check the
//! way Soong builds them, Android.bp names what exists, the policy compiles and says what it must.

mod aidl;
mod bp;
mod ioctls;
mod rustc;
mod sepolicy;
mod stub;

use crate::case::{Case, Outcome};
use crate::needs::{Need, Needs};
use bp::{Properties, Value};
use rustc::{aidl_sources, project, read, rust_modules, Bench, Shape};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The cases.
pub fn cases(_needs: &Needs) -> Vec<Case> {
    let compilers = [Need::Host, Need::Program("rustc"), Need::Program("cargo")];
    let mut cases = vec![
        Case::new("soong::sources_compile_for_android_15_and_16", || {
            compiles("writer", Shape::Writer)
        })
        .needs(&compilers),
        Case::new("soong::sources_compile_for_android_13_and_14", || {
            compiles("file", Shape::File)
        })
        .needs(&compilers),
        Case::new("soong::faults_do_not_compile", faults_do_not_compile).needs(&compilers),
        Case::new("soong::the_generator_refuses", the_generator_refuses).needs(&[Need::Host]),
        Case::new("soong::android_bp_names_what_exists", names_what_exists).needs(&[Need::Host]),
        Case::new("soong::android_bp_is_formatted", is_formatted)
            .needs(&[Need::Host, Need::Program("bpfmt")]),
    ];
    cases.extend(sepolicy::cases());
    cases.extend(ioctls::cases());
    cases
}

fn compiles(name: &str, shape: Shape) -> Outcome {
    let mut bench = Bench::new(name, shape)?;
    for module in &rust_modules()? {
        bench.check(project(), module)?;
    }
    Ok(())
}

/// One line more in one file, and a part of what rustc must say then.
const FAULTS: [(&str, &str, &str); 5] = [
    ("src/units.rs", "pub use rsbinder::Status;", "rsbinder"),
    (
        "src/service/ipc.rs",
        "#[cfg(soong)]\n/// Is in no libbinder_rs.\npub fn odd() { binder::odd() }",
        "cannot find function `odd` in crate `binder`",
    ),
    (
        "src/lib.rs",
        "/// Cargo's.\npub const OF_CARGO: &str = env!(\"CARGO_PKG_VERSION\");",
        "CARGO_PKG_VERSION",
    ),
    ("src/units.rs", "pub fn undocumented() {}", "missing documentation"),
    (
        "src/service/convert.rs",
        "#[allow(dead_code)] fn copies(p: &aidl::ResetPlan::ResetPlan) -> aidl::ResetPlan::ResetPlan { p.clone() }",
        "mismatched types",
    ),
];

/// The check finds what it is for.
fn faults_do_not_compile() -> Outcome {
    let mut bench = Bench::new("faults", Shape::Writer)?;
    let copy = tempfile::tempdir().map_err(|e| e.to_string())?;
    copy_tree(&project().join("src"), &copy.path().join("src"))?;
    let modules = rust_modules()?;
    let library = modules
        .iter()
        .find(|module| module.text("name") == Some("libblockd"))
        .ok_or("Android.bp has no libblockd")?;
    // So that what fails below fails by its fault.
    bench.check(copy.path(), library)?;
    for (file, line, says) in FAULTS {
        let path = copy.path().join(file);
        let good = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        let seeded = |text: &str| fs::write(&path, text).map_err(|e| format!("{file}: {e}"));
        seeded(&format!("{good}\n{line}\n"))?;
        match bench.check(copy.path(), library) {
            Ok(()) => return Err(format!("compiles with `{line}` in {file}")),
            Err(why) if !why.contains(says) => {
                return Err(format!("`{line}` in {file}: no `{says}` in\n{why}"))
            }
            Err(_) => seeded(&good)?,
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Outcome {
    let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(to).map_err(|e| fail(to, e))?;
    for entry in fs::read_dir(from).map_err(|e| fail(from, e))? {
        let entry = entry.map_err(|e| fail(from, e))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(|e| fail(&path, e))?;
        }
    }
    Ok(())
}

/// What AIDL has and the generator does not know is refused, not guessed.
fn the_generator_refuses() -> Outcome {
    stub::generate(&aidl_sources()?)?;
    let cases = [
        ("parcelable X { List<String> l; }", "`<`"),
        ("parcelable X { int[2] l; }", "`2`"),
        ("parcelable X { Map m; }", "`Map`"),
        ("parcelable X { @utf8InCpp String s; }", "`utf8InCpp`"),
        ("parcelable X { Y y; }", "`Y`"),
        ("parcelable X { @nullable String[] s; }", "`String`"),
        (
            "parcelable X { ParcelFileDescriptor[] s; }",
            "`ParcelFileDescriptor`",
        ),
        ("parcelable X { int i = 1 << 2; }", "`<`"),
        ("parcelable X { parcelable Y {} }", "`{`"),
        ("union X { int i; String s; }", "`union`"),
        ("enum X { A = 1, }", "`enum`"),
        ("@Backing(type=\"long\") enum X { A = 1, }", "`long`"),
        ("@Backing(type=\"int\") enum X { A, }", "`,`"),
        ("interface X { void f(out String s); }", "`out`"),
        ("interface X { oneway void f(); }", "`oneway`"),
        ("oneway interface X { int f(); }", "oneway"),
        ("interface X { void f(); } parcelable Y {}", "`parcelable`"),
        ("interface X { const String S = \"s\"; }", "`String`"),
    ];
    for (text, says) in cases {
        let text = format!("package dev.blockd;\n{text}");
        match stub::generate(&[("X.aidl".to_owned(), text.clone())]) {
            Ok(_) => return Err(format!("understands {text}")),
            Err(why) if !why.contains(says) => return Err(format!("{text}: no {says} in `{why}`")),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Every path in Android.bp is there; Soong would refuse the whole tree otherwise.
fn names_what_exists() -> Outcome {
    const PATHS: [&str; 5] = [
        "init_rc",
        "license_text",
        "local_include_dir",
        "src",
        "srcs",
    ];
    fn walk(properties: &Properties, found: &mut Vec<String>) {
        for (name, value) in properties {
            match value {
                Value::Map(inner) => walk(inner, found),
                Value::Text(path) if PATHS.contains(&name.as_str()) => found.push(path.clone()),
                Value::List(paths) if PATHS.contains(&name.as_str()) => {
                    found.extend(paths.iter().cloned());
                }
                _ => {}
            }
        }
    }
    let mut paths = Vec::new();
    for module in bp::modules(&read("Android.bp")?)? {
        walk(&module.properties, &mut paths);
    }
    for name in [
        "LICENSE",
        "rc/blockd.rc",
        "rc/blockd.recovery.rc",
        "src/lib.rs",
    ] {
        if !paths.iter().any(|path| path == name) {
            return Err(format!("Android.bp does not name {name}"));
        }
    }
    for path in &paths {
        // The one glob is that of the AIDL files.
        let path = path.strip_suffix("/*.aidl").unwrap_or(path);
        if !project().join(path).exists() {
            return Err(format!("Android.bp names {path}, which is not there"));
        }
    }
    Ok(())
}

/// bpfmt ends with 0 whatever it finds: it prints the difference.
fn is_formatted() -> Outcome {
    let output = Command::new("bpfmt")
        .arg("-d")
        .arg(project().join("Android.bp"))
        .output()
        .map_err(|e| format!("bpfmt: {e}"))?;
    if output.status.success() && output.stdout.is_empty() {
        return Ok(());
    }
    Err([output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat())
}
