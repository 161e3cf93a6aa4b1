//! `blockctl image`.

use crate::args::Image;
use crate::output::Output;
use blockd::aidl;
use blockd::client::Client;
use blockd::error::{Code, Failure, Result};
use blockd::service::error::failure;
use blockd::service::ipc;
use nix::errno::Errno;
use serde_json::{json, Value};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs one verb.
pub fn run(verb: &Image, connect: impl FnOnce() -> Result<Client>, output: &Output) -> Result<()> {
    match verb {
        Image::Attach { hold, .. } => {
            let requests = requests(verb)?;
            let client = connect()?;
            let images = client.images()?;
            let start = Instant::now();
            let results = blockd::client::attach_all(&*images, requests);
            let elapsed = start.elapsed();
            let results = results.map_err(|s| failure(&s))?;
            attached(verb, &results, elapsed, output)?;
            if *hold {
                // The leases are the descriptors inside `results`.
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
            }
            drop(results);
            Ok(())
        }
        Image::Detach { nodes } => {
            let numbers = nodes
                .iter()
                .map(|node| number(node))
                .collect::<Result<Vec<i32>>>()?;
            let images = connect()?.images()?;
            for number in &numbers {
                images.detach(*number).map_err(|s| failure(&s))?;
            }
            output.result(|| json!({"detached": numbers}), String::new);
            Ok(())
        }
        Image::List { all } => {
            let devices = connect()?.images()?.list().map_err(|s| failure(&s))?;
            let devices: Vec<_> = devices.into_iter().filter(|d| *all || d.ours).collect();
            output.data(
                || devices.iter().map(device_json).collect(),
                || list_text(&devices),
            );
            Ok(())
        }
    }
}

fn requests(verb: &Image) -> Result<Vec<aidl::AttachRequest::AttachRequest>> {
    let Image::Attach {
        block_size,
        offset,
        sizelimit,
        read_ahead,
        read_write,
        hold,
        files,
    } = verb
    else {
        return Ok(Vec::new());
    };
    let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    files
        .iter()
        .map(|path| {
            Ok(aidl::AttachRequest::AttachRequest {
                file: Some(ipc::parcel_fd(open(path, *read_write)?.into())),
                name: name(path),
                offsetBytes: offset.map_or(-1, |offset| long(offset.0)),
                lengthBytes: sizelimit.map_or(-1, |length| long(length.0)),
                blockSizeBytes: i32::try_from(*block_size).unwrap_or(i32::MAX),
                readAheadBytes: read_ahead.map_or(-1, |bytes| long(bytes.0)),
                readOnly: !read_write,
                directIo: true,
                // As losetup: the device stays when this command ends, unless it is held.
                autoclear: *hold,
            })
        })
        .collect()
}

/// The file's name, cut to what a tag has room for.
fn name(path: &Path) -> String {
    const ROOM: usize = 56;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut end = name.len().min(ROOM);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

fn open(path: &Path, write: bool) -> Result<File> {
    File::options()
        .read(true)
        .write(write)
        .open(path)
        .map_err(|error| {
            let mut failure = Failure::new(
                Code::InvalidRequest,
                "open",
                format!("cannot open {}", path.display()),
            );
            failure.errno = error.raw_os_error().map(Errno::from_raw);
            failure.remedy("name a file that exists and that you may read")
        })
}

/// `loop7`, `/dev/loop7`, `/dev/block/loop7` or `7`.
fn number(node: &str) -> Result<i32> {
    let name = node.rsplit('/').next().unwrap_or(node);
    name.strip_prefix("loop")
        .unwrap_or(name)
        .parse()
        .ok()
        .filter(|n: &i32| *n >= 0)
        .ok_or_else(|| {
            Failure::new(
                Code::InvalidRequest,
                "detach",
                format!("{node} is no loop device"),
            )
            .remedy("use /dev/block/loop7, loop7 or 7; `blockctl image list` shows them")
        })
}

fn attached(
    verb: &Image,
    results: &[aidl::AttachResult::AttachResult],
    elapsed: Duration,
    output: &Output,
) -> Result<()> {
    let Image::Attach { files, .. } = verb else {
        return Ok(());
    };
    output.data(
        || {
            json!({
                "elapsed_micros": elapsed.as_micros() as u64,
                "items": results.iter().zip(files).map(|(r, f)| result_json(r, f)).collect::<Vec<_>>(),
            })
        },
        || {
            let mut text = String::new();
            for result in results.iter().filter(|r| r.loopNumber >= 0) {
                let _ = writeln!(text, "{}", result.node);
            }
            text
        },
    );
    for (result, file) in results.iter().zip(files) {
        for warning in &result.warnings {
            eprintln!("blockctl: {}: {warning}", file.display());
        }
    }
    let failures: Vec<(Failure, &Path)> = results
        .iter()
        .zip(files)
        .filter(|(result, _)| result.error.0 != 0)
        .map(|(result, file)| {
            let text = result.message.as_deref().unwrap_or_default();
            (Failure::from_wire(result.error.0, text), file.as_path())
        })
        .collect();
    if output.is_json() {
        // The items have said it; the exit status says it too.
        return match failures.into_iter().next() {
            None => Ok(()),
            Some((failure, _)) => std::process::exit(match failure.code {
                Code::Unsupported => 2,
                _ => 1,
            }),
        };
    }
    let count = failures.len();
    let mut last = None;
    for (failure, file) in failures {
        let mut failure = failure;
        failure.message = format!("{}: {}", file.display(), failure.message);
        if let Some(previous) = last.replace(failure) {
            output.failure(&previous);
        }
    }
    match last {
        None => Ok(()),
        Some(failure) => {
            if count < results.len() {
                eprintln!(
                    "blockctl: {} of {} files are attached all the same",
                    results.len() - count,
                    results.len()
                );
            }
            Err(failure)
        }
    }
}

fn result_json(result: &aidl::AttachResult::AttachResult, file: &Path) -> Value {
    let error = (result.error.0 != 0).then(|| {
        let text = result.message.as_deref().unwrap_or_default();
        crate::output::failure_json(&Failure::from_wire(result.error.0, text))["error"].clone()
    });
    json!({
        "file": file.to_string_lossy(),
        "error": error,
        "node": result.node,
        "loop_number": result.loopNumber,
        "reason": result.reason,
        "warnings": result.warnings,
        "steps": blockd::service::json::steps(&result.steps),
    })
}

fn device_json(device: &aidl::ImageDevice::ImageDevice) -> Value {
    json!({
        "name": device.name,
        "node": device.node,
        "loop_number": device.loopNumber,
        "backing_file": device.backingFile,
        "offset_bytes": device.offsetBytes,
        "size_bytes": device.sizeBytes,
        "block_size_bytes": device.blockSizeBytes,
        "read_only": device.readOnly,
        "direct_io": device.directIo,
        "autoclear": device.autoclear,
        "ours": device.ours,
    })
}

fn list_text(devices: &[aidl::ImageDevice::ImageDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{:<18} {:>12} {:>10} {:>5} {:<6} {:<20} BACKING FILE\n",
        "NODE", "SIZE", "OFFSET", "BLOCK", "FLAGS", "NAME"
    );
    for d in devices {
        let flag = |on: bool, letter: &'static str| if on { letter } else { "-" };
        let flags = [
            flag(d.readOnly, "r"),
            flag(d.directIo, "d"),
            flag(d.autoclear, "a"),
            flag(d.ours, "o"),
        ]
        .concat();
        let _ = writeln!(
            text,
            "{:<18} {:>12} {:>10} {:>5} {:<6} {:<20} {}",
            d.node, d.sizeBytes, d.offsetBytes, d.blockSizeBytes, flags, d.name, d.backingFile
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{name, number};
    use std::path::Path;

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(name(Path::new("/a/b.apex")), "b.apex");
        assert_eq!(name(Path::new(&"ä".repeat(40))).len(), 56);
        assert_eq!(name(Path::new(&format!("x{}", "ä".repeat(40)))).len(), 55);
    }

    #[test]
    fn nodes_have_many_spellings() {
        for (node, want) in [
            ("7", Some(7)),
            ("loop7", Some(7)),
            ("/dev/loop12", Some(12)),
            ("/dev/block/loop0", Some(0)),
            ("loop-1", None),
            ("/dev/vda", None),
            ("loop", None),
        ] {
            assert_eq!(number(node).ok(), want, "{node}");
        }
    }
}
