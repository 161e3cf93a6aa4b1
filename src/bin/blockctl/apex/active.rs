//! `blockctl apex activate`, `deactivate`, `list`.

use super::{read_key, unreadable};
use crate::output::{failure_json, Output};
use blockd::aidl::ActivateRequest::ActivateRequest;
use blockd::aidl::ActivateResult::ActivateResult;
use blockd::aidl::ActiveApex::ActiveApex;
use blockd::aidl::ErrorCode::ErrorCode;
use blockd::client::{self, Client};
use blockd::error::{Code, Failure, Result};
use blockd::images::apex::Contents;
use blockd::images::facts::FileFacts;
use blockd::images::FileSource;
use blockd::service::error::failure;
use blockd::service::ipc;
use serde_json::{json, Value};
use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What `activate` was given.
pub struct Activate<'a> {
    /// The trusted key.
    pub key: Option<&'a Path>,
    /// Where hash trees are built that the files do not bring.
    pub hash_trees: Option<&'a Path>,
    /// Without dm-verity.
    pub no_verity: bool,
    /// The files.
    pub files: &'a [PathBuf],
}

/// `apex activate`.
pub fn activate(
    arguments: &Activate<'_>,
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let key = arguments.key.map(read_key).transpose()?;
    let mut requests = Vec::new();
    for file in arguments.files {
        requests.push(request(file, key.as_deref(), arguments)?);
    }
    let images = connect()?.images()?;
    let start = Instant::now();
    let results = client::activate_all(&*images, requests).map_err(|s| failure(&s))?;
    let elapsed = start.elapsed();
    let pairs: Vec<(&PathBuf, &ActivateResult)> = arguments.files.iter().zip(&results).collect();
    output.data(
        || {
            let items: Vec<Value> = pairs.iter().map(|(f, r)| result_json(f, r)).collect();
            json!({"elapsed_micros": elapsed.as_micros() as u64, "items": items})
        },
        || {
            let good = pairs.iter().filter(|(_, r)| r.error == ErrorCode::OK);
            good.map(|(_, r)| format!("{}\n", r.mountPoint)).collect()
        },
    );
    for (file, result) in &pairs {
        tell(file, result, output);
    }
    if results.iter().any(|result| result.error != ErrorCode::OK) {
        // Each file's failure has been told; the exit status says it too.
        std::process::exit(1);
    }
    Ok(())
}

/// Opens the file and names it by its manifest, which the service reads again for itself.
fn request(path: &Path, key: Option<&[u8]>, arguments: &Activate<'_>) -> Result<ActivateRequest> {
    // A pipe would wait for its writer.
    let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !kind.is_file() && !kind.file_type().is_block_device() {
        let text = format!("{} is neither a file nor a block device", path.display());
        return Err(Failure::new(Code::InvalidRequest, "open", text).remedy("name an APEX file"));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let named = |failure: Failure| Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    };
    let size = FileFacts::read(&file).map_err(named)?.size;
    let contents = Contents::read(&FileSource::new(&file, size)).map_err(named)?;
    let manifest = contents.manifest;
    let tree = match arguments.hash_trees {
        Some(folder) => {
            let name = format!("{}@{}.hashtree", manifest.name, manifest.version);
            Some(ipc::parcel_fd(tree_file(&folder.join(name))?.into()))
        }
        None => None,
    };
    Ok(ActivateRequest {
        file: Some(ipc::parcel_fd(file.into())),
        name: manifest.name,
        trustedKey: key.unwrap_or_default().to_vec(),
        hashTree: tree,
        verity: !arguments.no_verity,
    })
}

fn tree_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    // The service cuts it to the tree's size.
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path).map_err(|error| {
        let failure = unreadable(path, &error);
        failure.remedy("name a folder for hash trees that exists and that you may write")
    })
}

fn failure_of(result: &ActivateResult) -> Option<Failure> {
    let text = result.message.as_deref().unwrap_or_default();
    (result.error != ErrorCode::OK).then(|| Failure::from_wire(result.error.0, text))
}

/// Failures and warnings, on stderr; with `--json` they stand in the items.
fn tell(file: &Path, result: &ActivateResult, output: &Output) {
    if output.is_json() {
        return;
    }
    let file = file.display();
    if let Some(failure) = failure_of(result) {
        eprintln!("blockctl: {file}: {}: {failure}", failure.code);
        eprintln!("  at:  {}", failure.step);
        if !failure.remedy.is_empty() {
            eprintln!("  try: {}", failure.remedy);
        }
    }
    for warning in &result.warnings {
        eprintln!("blockctl: {file}: warning: {warning}");
    }
}

fn result_json(file: &Path, result: &ActivateResult) -> Value {
    let file = file.display().to_string();
    if let Some(failure) = failure_of(result) {
        return json!({"file": file, "error": failure_json(&failure)["error"]});
    }
    let steps: Vec<Value> = result
        .steps
        .iter()
        .map(|step| json!({"step": step.step, "micros": step.micros}))
        .collect();
    json!({
        "file": file,
        "mount_point": result.mountPoint,
        "version": result.version,
        "reason": result.reason,
        "warnings": result.warnings,
        "steps": steps,
    })
}

/// `apex deactivate`.
pub fn deactivate(
    names: &[String],
    connect: impl FnOnce() -> Result<Client>,
    output: &Output,
) -> Result<()> {
    let images = connect()?.images()?;
    for name in names {
        images.deactivate(name).map_err(|s| failure(&s))?;
    }
    output.result(|| json!({"deactivated": names}), String::new);
    Ok(())
}

/// `apex list`.
pub fn list(connect: impl FnOnce() -> Result<Client>, output: &Output) -> Result<()> {
    let active = connect()?.images()?.listActive().map_err(|s| failure(&s))?;
    output.data(
        || active.iter().map(active_json).collect(),
        || list_text(&active),
    );
    Ok(())
}

fn active_json(apex: &ActiveApex) -> Value {
    json!({
        "name": apex.name,
        "version": apex.version,
        "mount_point": apex.mountPoint,
        "bound": apex.bound,
        "device": apex.device,
        "verity": apex.verity,
        "corrupted": apex.corrupted,
    })
}

/// The words for the state, most urgent first.
fn state(apex: &ActiveApex) -> String {
    let mut words = Vec::new();
    if apex.corrupted {
        words.push("CORRUPTED");
    }
    if !apex.bound {
        words.push("half-made: deactivate it");
    }
    words.push(match apex.verity {
        true => "dm-verity",
        false => "unchecked",
    });
    words.join(", ")
}

fn list_text(active: &[ActiveApex]) -> String {
    if active.is_empty() {
        return "no APEX is active by blockd\n".to_owned();
    }
    let width = active.iter().map(|a| a.mountPoint.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for apex in active {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {}  {}",
            apex.mountPoint,
            state(apex),
            apex.device
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_say_what_is_urgent() {
        let line = |bound, corrupted| {
            list_text(&[ActiveApex {
                name: "a.b".to_owned(),
                version: 1,
                mountPoint: "/apex/a.b@1".to_owned(),
                bound,
                device: "blockd-apex-a.b@1".to_owned(),
                verity: true,
                corrupted,
            }])
        };
        let want = "/apex/a.b@1  dm-verity  blockd-apex-a.b@1\n";
        assert_eq!(line(true, false), want);
        let want =
            "/apex/a.b@1  CORRUPTED, half-made: deactivate it, dm-verity  blockd-apex-a.b@1\n";
        assert_eq!(line(false, true), want);
        assert_eq!(list_text(&[]), "no APEX is active by blockd\n");
    }
}
