//! `blockctl apex`: what is in an APEX, and whether it can be trusted.

mod active;

use crate::args::Apex;
use crate::output::{failure_json, Output};
use active::Activate;
use blockd::client::Client;
use blockd::error::{Code, Failure, Result};
use blockd::images::apex::Contents;
use blockd::images::avb::{self, hex, Vbmeta};
use blockd::images::facts::FileFacts;
use blockd::images::{AttachItem, AttachPlan, AttachRequest, FileSource, Images};
use nix::errno::Errno;
use serde_json::{json, Value};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest key blob that is read.
const MAX_KEY: u64 = 4096;

/// One file, as far as it could be read.
struct Report {
    contents: Contents,
    vbmeta: Result<Vbmeta>,
    /// Whether the image is signed, and by the trusted key where one was given.
    verdict: Result<()>,
    plan: Result<AttachPlan>,
}

/// Runs one verb.
pub fn run(verb: &Apex, connect: impl FnOnce() -> Result<Client>, output: &Output) -> Result<()> {
    match verb {
        Apex::Info { key, files } => info(files, key.as_deref(), output),
        Apex::Activate {
            key,
            hash_trees,
            no_verity,
            files,
        } => {
            let arguments = Activate {
                key: key.as_deref(),
                hash_trees: hash_trees.as_deref(),
                no_verity: *no_verity,
                files,
            };
            active::activate(&arguments, connect, output)
        }
        Apex::Deactivate { names } => active::deactivate(names, connect, output),
        Apex::List => active::list(connect, output),
    }
}

/// `apex info`.
fn info(files: &[PathBuf], key: Option<&Path>, output: &Output) -> Result<()> {
    let key = key.map(read_key).transpose()?;
    let reports: Vec<(&PathBuf, Result<Report>)> = files
        .iter()
        .map(|file| (file, read(file, key.as_deref())))
        .collect();
    output.data(
        || {
            let all: Vec<Value> = reports
                .iter()
                .map(|(file, report)| as_json(file, report, key.is_some()))
                .collect();
            json!({ "files": all })
        },
        || {
            let mut text = String::new();
            for (file, report) in &reports {
                // Writing to a String cannot fail.
                let _ = as_text(&mut text, file, report, key.is_some());
            }
            text
        },
    );
    let failed = |report: &Result<Report>| match report {
        Ok(report) => report.verdict.is_err(),
        Err(_) => true,
    };
    if reports.iter().any(|(_, report)| failed(report)) {
        // Each file's verdict has said why; the exit status says it too.
        std::process::exit(1);
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("cannot read {}", path.display());
    let mut failure = Failure::new(Code::InvalidRequest, "open", text);
    failure.errno = error.raw_os_error().map(Errno::from_raw);
    failure.remedy("name a file that exists and that you may read")
}

fn read_key(path: &Path) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_KEY).read_to_end(&mut key))
        .map_err(|error| unreadable(path, &error))?;
    Ok(key)
}

fn read(path: &Path, key: Option<&[u8]>) -> Result<Report> {
    // A pipe would wait for its writer.
    let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !kind.is_file() {
        let text = format!("{} is no regular file", path.display());
        let remedy = "name an APEX file";
        return Err(Failure::new(Code::InvalidRequest, "open", text).remedy(remedy));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let size = FileFacts::read(&file)?.size;
    let source = FileSource::new(&file, size);
    let contents = Contents::read(&source)?;
    let vbmeta = Vbmeta::read(&source, contents.payload);
    let verdict = match (&vbmeta, key) {
        (Ok(vbmeta), Some(key)) => {
            avb::verify(vbmeta, key).and_then(|()| own_key(vbmeta, &contents))
        }
        (Ok(vbmeta), None) => own_key(vbmeta, &contents),
        (Err(failure), _) => Err(failure.clone()),
    };
    let request = AttachRequest::apex(&contents.manifest.name);
    let plan = Images::new().plan(&AttachItem { file, request });
    Ok(Report {
        contents,
        vbmeta,
        verdict,
        plan,
    })
}

/// Without a trusted key: whole by the key inside it, which must be the archive's.
fn own_key(vbmeta: &Vbmeta, contents: &Contents) -> Result<()> {
    match &contents.public_key {
        Some(key) => avb::verify(vbmeta, key),
        None => avb::verify_signature(vbmeta),
    }
}

fn signer(trusted: bool) -> &'static str {
    if trusted {
        "signed by the trusted key"
    } else {
        "signed by the key inside it; pass --key to know whose that is"
    }
}

fn as_json(file: &Path, report: &Result<Report>, trusted: bool) -> Value {
    let name = file.display().to_string();
    let report = match report {
        Ok(report) => report,
        Err(failure) => return json!({"file": name, "error": failure_json(failure)["error"]}),
    };
    let (contents, manifest) = (&report.contents, &report.contents.manifest);
    json!({
        "file": name,
        "name": manifest.name,
        "version": manifest.version,
        "version_name": manifest.version_name,
        "no_code": manifest.no_code,
        "require_native_libs": manifest.require_native_libs,
        "provide_native_libs": manifest.provide_native_libs,
        "require_shared_apex_libs": manifest.require_shared_apex_libs,
        "provide_shared_apex_libs": manifest.provide_shared_apex_libs,
        "zip_entries": contents.entries,
        "payload_offset_bytes": contents.payload.offset.0,
        "payload_length_bytes": contents.payload.length.0,
        "file_system": contents.file_system.map(|fs| fs.name),
        "file_system_block_size_bytes": contents.file_system.and_then(|fs| fs.block_size),
        "apex_pubkey_sha256": contents.public_key.as_ref().map(|key| fingerprint(key)),
        "vbmeta": report.vbmeta.as_ref().ok().map(vbmeta_json),
        "signature": if report.verdict.is_ok() { "ok" } else { "bad" },
        "key_trusted": trusted.then_some(report.verdict.is_ok()),
        "error": report.verdict.as_ref().err().map(|f| failure_json(f)["error"].clone()),
        "attach": match &report.plan {
            Ok(plan) => json!({"reason": plan.reason, "warnings": plan.warnings}),
            Err(failure) => failure_json(failure),
        },
    })
}

fn fingerprint(key: &[u8]) -> String {
    hex(&avb::sha::sha256(&[key]))
}

fn vbmeta_json(vbmeta: &Vbmeta) -> Value {
    let properties: Vec<Value> = vbmeta
        .properties
        .iter()
        .map(|(key, value)| {
            json!({"key": String::from_utf8_lossy(key), "value": String::from_utf8_lossy(value)})
        })
        .collect();
    json!({
        "offset_bytes": vbmeta.window.offset.0,
        "length_bytes": vbmeta.window.length.0,
        "algorithm": vbmeta.algorithm.name(),
        "key_sha256": fingerprint(vbmeta.public_key()),
        "rollback_index": vbmeta.rollback_index,
        "flags": vbmeta.flags,
        "release": vbmeta.release,
        "properties": properties,
        "hash_tree": vbmeta.hashtree.as_ref().map(|tree| json!({
            "algorithm": tree.hash_algorithm,
            "image_size_bytes": tree.image_size,
            "tree_offset_bytes": tree.tree_offset,
            "tree_size_bytes": tree.tree_size,
            "data_block_size_bytes": tree.data_block_size,
            "hash_block_size_bytes": tree.hash_block_size,
            "salt": hex(&tree.salt),
            "root_digest": hex(&tree.root_digest),
            "fec_offset_bytes": tree.fec_offset,
            "fec_size_bytes": tree.fec_size,
            "fec_roots": tree.fec_num_roots,
        })),
    })
}

fn as_text(
    text: &mut String,
    file: &Path,
    report: &Result<Report>,
    trusted: bool,
) -> std::fmt::Result {
    writeln!(text, "{}", file.display())?;
    let report = match report {
        Ok(report) => report,
        Err(failure) => {
            writeln!(text, "  verdict     {}: {failure}", failure.code)?;
            return writeln!(text, "              try: {}", failure.remedy);
        }
    };
    let (contents, manifest) = (&report.contents, &report.contents.manifest);
    writeln!(
        text,
        "  manifest    {:?} version {}",
        manifest.name, manifest.version
    )?;
    writeln!(
        text,
        "  payload     {}, stored, one of {} entries",
        contents.payload, contents.entries
    )?;
    match contents.file_system {
        Some(fs) => {
            let block = fs.block_size.map_or("?".to_owned(), |n| n.to_string());
            writeln!(text, "  filesystem  {}, blocks of {block} bytes", fs.name)?;
        }
        None => writeln!(text, "  filesystem  none that is known (ext4, erofs, f2fs)")?,
    }
    if let Ok(vbmeta) = &report.vbmeta {
        vbmeta_text(text, vbmeta)?;
    }
    match &report.plan {
        Ok(plan) => writeln!(text, "  attach      {}", plan.reason)?,
        Err(failure) => writeln!(text, "  attach      no: {failure}")?,
    }
    match &report.verdict {
        Ok(()) => writeln!(text, "  verdict     ok: {}", signer(trusted)),
        Err(failure) => {
            writeln!(text, "  verdict     {}: {failure}", failure.code)?;
            writeln!(text, "              try: {}", failure.remedy)
        }
    }
}

fn vbmeta_text(text: &mut String, vbmeta: &Vbmeta) -> std::fmt::Result {
    writeln!(
        text,
        "  vbmeta      {}, {:?}, rollback index {}",
        vbmeta.window, vbmeta.release, vbmeta.rollback_index
    )?;
    writeln!(text, "  algorithm   {}", vbmeta.algorithm)?;
    writeln!(
        text,
        "  key         sha256 {}",
        fingerprint(vbmeta.public_key())
    )?;
    for (key, value) in &vbmeta.properties {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        // Quoted: nothing a file says may move the cursor.
        writeln!(text, "  property    {key:?} = {value:?}")?;
    }
    let tree = match &vbmeta.hashtree {
        Some(tree) => tree,
        None => return writeln!(text, "  hash tree   none: cannot be activated"),
    };
    let stored = match tree.tree_size {
        0 => "not stored: it must be built".to_owned(),
        size => format!("{size} bytes from byte {} of the payload", tree.tree_offset),
    };
    writeln!(
        text,
        "  hash tree   {} over {} bytes, blocks {}/{}, {stored}",
        tree.hash_algorithm, tree.image_size, tree.data_block_size, tree.hash_block_size
    )?;
    writeln!(text, "  root        {}", hex(&tree.root_digest))?;
    writeln!(text, "  salt        {}", hex(&tree.salt))?;
    match tree.fec_size {
        0 => Ok(()),
        size => writeln!(
            text,
            "  FEC         {size} bytes from byte {}",
            tree.fec_offset
        ),
    }
}
