//! AOSP's own APEX files.

use super::support::{contents, item, text, Bench};
use crate::needs::apex_files;
use anyhow::{bail, ensure, Context, Result};
use blockd::error::Code;
use blockd::images::AttachItem;

/// Offset and length of the payload, or why there is none.
type Verdict = std::result::Result<(u64, u64), Code>;

/// The files, and what another zip reader (Python's) says of them.
const FILES: [(&str, Verdict); 7] = [
    ("com.android.apex.cts.shim.v1.apex", Ok((4096, 274_432))),
    (
        "com.android.apex.cts.shim.v2_no_hashtree.apex",
        Ok((4096, 270_336)),
    ),
    (
        "com.android.apex.cts.shim.v2_unsigned_payload.apex",
        Ok((4096, 262_144)),
    ),
    (
        "com.android.apex.test.bar_stripped.v1.libvX.apex",
        Ok((12288, 270_336)),
    ),
    (
        "com.android.apex.test.foo.v1.libvX.apex",
        Ok((12288, 843_776)),
    ),
    ("corrupted_b146895998.apex", Err(Code::PayloadUnaligned)),
    ("sharedlibs.apex", Ok((12288, 266_240))),
];

fn items(bench: &Bench) -> Result<Vec<AttachItem>> {
    let folder = apex_files().context("no APEX files")?;
    let items = FILES.iter().enumerate();
    items
        .map(|(i, (name, _))| item(&folder.join(name), bench.apex(i)))
        .collect()
}

pub fn each_real_apex_has_its_verdict() -> Result<()> {
    let bench = Bench::new("verdict", 14)?;
    for (item, (name, want)) in items(&bench)?.iter().zip(FILES) {
        let plan = bench.images.plan(item);
        let window = plan.map(|p| (p.setup.offset.0, p.setup.size_limit.0));
        let verdict = window.map_err(|failure| failure.code);
        ensure!(verdict == want, "{name}: {verdict:?}");
    }
    Ok(())
}

/// All of them hold ext4: its magic is where the device says.
pub fn real_payloads_are_file_systems() -> Result<()> {
    const MAGIC_AT: usize = 1024 + 0x38;
    let bench = Bench::new("ext4", 15)?;
    let results = bench.images.attach_all(&items(&bench)?).map_err(text)?;
    for (result, (name, want)) in results.iter().zip(FILES) {
        match (result, want) {
            (Ok(attached), Ok(_)) => {
                let bytes = contents(attached)?;
                ensure!(bytes[MAGIC_AT..MAGIC_AT + 2] == [0x53, 0xef], "{name}");
            }
            (Err(_), Err(_)) => {}
            _ => bail!("{name}: {result:?}"),
        }
    }
    drop(results);
    bench.is_clean()
}
