//! fio with the pattern of one of our rows.

use super::device::RamDisk;
use anyhow::{ensure, Context, Result};
use blockd::cache::fua::plan::Row;
use blockd::cache::fua::{Path, Pattern};
use serde_json::Value;
use std::process::{Command, Stdio};

const FIO: &str = "fio";

/// Fails unless it is there. Returns its version.
///
/// # Errors
/// It is not installed.
pub fn version() -> Result<String> {
    let output = Command::new(FIO).arg("--version").output();
    let output = output.context("fio is not there; apt-get install fio")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The arguments: the same calls, blocks, region, number of operations and data as ours.
pub fn arguments(node: &str, row: &Row, length: u64) -> Vec<String> {
    let pattern = match row.pattern {
        Pattern::SequentialWrite => "write",
        Pattern::RandomWrite => "randwrite",
        Pattern::SequentialRead => "read",
        Pattern::RandomRead => "randread",
    };
    let mut words = vec![
        "--name=row".to_owned(),
        format!("--filename={node}"),
        format!("--rw={pattern}"),
        format!("--bs={}", row.block.0),
        format!("--size={length}"),
        format!("--io_size={}", row.bytes().0),
    ];
    // Blocks are drawn with replacement, as ours; one buffer, filled once; nothing before or after.
    let fixed = "--thread --ioengine=psync --direct=1 --invalidate=0 --norandommap \
                 --random_generator=tausworthe64 --scramble_buffers=0 --output-format=json";
    words.extend(fixed.split_whitespace().map(str::to_owned));
    match row.path {
        Path::Direct => {}
        Path::Fua => words.push("--sync=dsync".to_owned()),
        Path::Flush => words.push("--fdatasync=1".to_owned()),
    }
    words
}

/// Runs it. Returns bytes per second.
///
/// # Errors
/// It fails, or has done another number of operations.
pub fn run(disk: &RamDisk, row: &Row, length: u64) -> Result<f64> {
    let node = disk.node().display().to_string();
    let mut fio = Command::new(FIO);
    fio.args(arguments(&node, row, length)).stdin(Stdio::null());
    let output = fio.output().context(FIO)?;
    ensure!(
        output.status.success(),
        "{fio:?}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    speed(&text, row).with_context(|| format!("{fio:?}"))
}

fn speed(text: &str, row: &Row) -> Result<f64> {
    // Messages may come before.
    let at = text.find('{').context("no JSON")?;
    let value: Value = serde_json::from_str(&text[at..])?;
    let side = &value["jobs"][0][if row.pattern.writes() {
        "write"
    } else {
        "read"
    }];
    let operations = side["total_ios"].as_u64();
    ensure!(
        operations == Some(row.operations),
        "{operations:?} operations, not {}",
        row.operations
    );
    side["bw_bytes"].as_f64().context("no bw_bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockd::units::Bytes;

    fn row(pattern: Pattern, path: Path) -> Row {
        Row {
            pattern,
            path,
            block: Bytes(4096),
            operations: 7,
        }
    }

    #[test]
    fn each_path_has_its_calls() {
        let words = |pattern, path| arguments("/dev/loop0", &row(pattern, path), 1 << 20);
        let fua = words(Pattern::RandomWrite, Path::Fua);
        for word in [
            "--rw=randwrite",
            "--bs=4096",
            "--io_size=28672",
            "--sync=dsync",
        ] {
            assert!(fua.iter().any(|w| w == word), "{word}: {fua:?}");
        }
        let flush = words(Pattern::SequentialWrite, Path::Flush);
        assert!(flush.contains(&"--fdatasync=1".to_owned()));
        let direct = words(Pattern::SequentialRead, Path::Direct);
        assert!(!direct.iter().any(|w| w.contains("sync=")));
    }

    #[test]
    fn another_number_of_operations_is_no_comparison() {
        let text = r#"note: x
            {"jobs": [{"read": {"total_ios": 7, "bw_bytes": 12}, "write": {"total_ios": 6}}]}"#;
        let read = speed(text, &row(Pattern::RandomRead, Path::Direct));
        assert_eq!(read.unwrap(), 12.0);
        assert!(speed(text, &row(Pattern::RandomWrite, Path::Direct)).is_err());
    }
}
