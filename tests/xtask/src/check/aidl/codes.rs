//! Transaction codes: what goes over the wire for a method. Both compilers number the methods as
//! they stand in the file; a client built by one must reach a service built by the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};

/// Codes by `Interface.method`, counted from FIRST_CALL_TRANSACTION.
type Codes = BTreeMap<String, u32>;

/// Compares the Rust of AOSP's compiler (files below `android`) with what rsbinder's makes of the
/// same interfaces. Returns how many methods there are.
///
/// # Errors
/// A method that only one knows, or with two codes.
pub fn agree(android: &Path, include: &Path) -> Result<usize> {
    let mut ours = Codes::new();
    let mut theirs = Codes::new();
    for name in interfaces(include)? {
        let file = android.join("dev/blockd").join(format!("{name}.rs"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        theirs.extend(codes(&name, &text));
    }
    let generated = tempfile::tempdir()?;
    let text = rsbinder(include, generated.path())?;
    for (name, part) in modules(&text) {
        ours.extend(codes(&name, part));
    }
    ensure!(
        !theirs.is_empty(),
        "found no transaction code in the output of aidl"
    );
    ensure!(
        ours == theirs,
        "the compilers number the methods differently:\nrsbinder-aidl {ours:?}\naidl {theirs:?}"
    );
    Ok(ours.len())
}

/// What rsbinder's compiler makes of the interfaces.
fn rsbinder(include: &Path, out: &Path) -> Result<String> {
    let file = out.join("all.rs");
    rsbinder_aidl::Builder::new()
        .source(include.join("dev/blockd"))
        .include_dir(include)
        .output(file.clone())
        .generate()
        .map_err(|error| anyhow::anyhow!("rsbinder-aidl: {error}"))?;
    fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// The files whose names say that they hold an interface.
fn interfaces(include: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in super::relative_sources(include)? {
        let text = fs::read_to_string(include.join(&file))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if text.contains(&format!("interface {name} ")) {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

/// The `mod IName {…}` of rsbinder's one file: name, and the text up to the next.
fn modules(text: &str) -> Vec<(String, &str)> {
    let mut found: Vec<(String, &str)> = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest
        .split_once("pub mod r#I")
        .or_else(|| rest.split_once("pub mod I"))
    {
        let name: String = after.chars().take_while(|c| c.is_alphanumeric()).collect();
        let end = after.find("pub mod I").unwrap_or(after.len());
        found.push((format!("I{name}"), &after[..end]));
        rest = after;
    }
    found
}

/// `const r#name: …TransactionCode = …FIRST_CALL_TRANSACTION + N;`
fn codes(interface: &str, text: &str) -> Codes {
    let code = |line: &str| {
        let (left, right) = line.split_once("FIRST_CALL_TRANSACTION +")?;
        let (_, name) = left.split_once("const ")?;
        let name = name.split(':').next()?.trim().trim_start_matches("r#");
        let number = right
            .trim()
            .trim_end_matches([';', ','])
            .trim()
            .parse()
            .ok()?;
        Some((format!("{interface}.{name}"), number))
    };
    text.lines().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read() {
        let ours = "pub(crate) const r#run: rsbinder::TransactionCode = rsbinder::FIRST_CALL_TRANSACTION + 1;";
        let theirs = "  pub const r#run: binder::binder_impl::TransactionCode = binder::binder_impl::FIRST_CALL_TRANSACTION + 1;";
        let expected = Codes::from([("IX.run".to_owned(), 1)]);
        assert_eq!(codes("IX", ours), expected);
        assert_eq!(codes("IX", theirs), expected);
    }
}
