//! Activation on the real kernel, in a mount namespace of the case's own.

use super::place::{opened, text, Place};
use anyhow::{ensure, Context, Result};
use apexgen::{noise, Key, Signing};
use blockd::error::Code;
use blockd::images::{ActivateItem, Images};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the file inside.
const DATA: usize = 300_000;

fn signing() -> Signing {
    Signing::by(Key::Rsa2048)
}

fn unchecked(place: &Place, path: &Path, name: &str) -> Result<ActivateItem> {
    let mut item = place.item(path, name)?;
    item.request.verity = false;
    Ok(item)
}

/// Options that the kernel shows of a mount.
fn options(point: &Path) -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/thread-self/mounts")?;
    let line = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| Path::new(fields[1]) == point)
        .with_context(|| format!("{} is not mounted", point.display()))?;
    Ok(line[3].split(',').map(str::to_owned).collect())
}

/// Without dm-verity: mount, flags, list by another process's eyes, and away without a trace.
pub fn an_apex_is_mounted_and_goes() -> Result<()> {
    Place::run("plain", |place| {
        let data = noise(DATA, 1);
        let path = place.apex("one", 7, &[("data", &data)], &signing())?;
        let name = place.name("one");
        let done = place
            .images
            .activate(&unchecked(place, &path, &name)?)
            .map_err(text)?;
        let point = place.root.join(format!("{name}@7"));
        ensure!(done.plan.mount_point == point);
        for at in [&point, &place.root.join(&name)] {
            ensure!(fs::read(at.join("data"))? == data, "{}", at.display());
            let options = options(at)?;
            for want in ["ro", "nodev", "noatime"] {
                ensure!(options.iter().any(|o| o == want), "{want}: {options:?}");
            }
            ensure!(!options.iter().any(|o| o == "noexec"));
        }
        let other = place.another();
        let active = other.active().map_err(text)?;
        ensure!(
            active.len() == 1 && active[0].bound && !active[0].verity,
            "{active:?}"
        );
        let again = place.images.activate(&unchecked(place, &path, &name)?);
        ensure!(again.map(drop).unwrap_err().code == Code::InUse);
        // In use: it stays as it was.
        let held = File::open(place.root.join(&name).join("data"))?;
        ensure!(other.deactivate(&name).unwrap_err().code == Code::InUse);
        ensure!(other.active().map_err(text)? == active);
        drop(held);
        let held = File::open(point.join("data"))?;
        ensure!(other.deactivate(&name).unwrap_err().code == Code::InUse);
        ensure!(other.active().map_err(text)? == active);
        drop(held);
        other.deactivate(&name).map_err(text)?;
        ensure!(other.deactivate(&name).unwrap_err().code == Code::NoSuchDevice);
        place.is_clean()
    })
}

/// What somebody else has mounted below the folder is neither shown nor touched.
pub fn somebody_else_s_mounts_survive() -> Result<()> {
    Place::run("foreign", |place| {
        let name = place.name("theirs");
        for folder in [format!("{name}@1"), name.clone()] {
            let path = place.root.join(folder);
            fs::create_dir(&path)?;
            place.tmpfs(&path)?;
        }
        ensure!(place.images.active().map_err(text)?.is_empty());
        ensure!(place.images.deactivate(&name).unwrap_err().code == Code::NoSuchDevice);
        let path = place.apex("theirs", 1, &[], &signing())?;
        let failure = place.images.activate(&unchecked(place, &path, &name)?);
        ensure!(failure.map(drop).unwrap_err().code == Code::InUse);
        ensure!(options(&place.root.join(&name)).is_ok());
        place.no_devices()
    })
}

/// Forty in two calls, side by side.
pub fn forty_are_activated_in_two_calls() -> Result<()> {
    Place::run("forty", |place| {
        let mut items = Vec::new();
        for i in 0..40 {
            let short = format!("n{i}");
            let data = noise(5000 + i, i as u64);
            let path = place.apex(&short, 1, &[("data", &data)], &signing())?;
            items.push(unchecked(place, &path, &place.name(&short))?);
        }
        let (first, second) = items.split_at(32);
        for part in [first, second] {
            for result in place.images.activate_all(part).map_err(text)? {
                result.map_err(text)?;
            }
        }
        for i in 0..40 {
            let data = fs::read(place.root.join(place.name(&format!("n{i}"))).join("data"))?;
            ensure!(data == noise(5000 + i, i as u64), "{i}");
        }
        ensure!(place.images.active().map_err(text)?.len() == 40);
        for i in 0..40 {
            place
                .images
                .deactivate(&place.name(&format!("n{i}")))
                .map_err(text)?;
        }
        place.is_clean()
    })
}

/// A manifest inside that is another one's, and a folder of all mounts that is not there.
pub fn what_cannot_be_mounted_leaves_nothing() -> Result<()> {
    Place::run("refused", |place| {
        let image = apexgen::erofs_image(&[("apex_manifest.pb", b"\x0a\x03a.b\x10\x01")]);
        let name = place.name("other");
        let path = place.archive(
            "other.apex",
            apexgen::ApexBuilder::new(&name, 1).signed(&image, &signing()),
        )?;
        let mut checked = vec![unchecked(place, &path, &name)?];
        let mut no_file_system = apexgen::erofs_image(&[("apex_manifest.pb", b"")]);
        // A superblock that the kernel cannot use: no blocks of 64 KiB and no root.
        no_file_system[1024 + 12] = 31;
        let path = place.archive(
            "broken.apex",
            apexgen::ApexBuilder::new(&name, 2).signed(&no_file_system, &signing()),
        )?;
        checked.push(unchecked(place, &path, &name)?);
        let want = [
            (Code::BadSignature, "manifest"),
            (Code::DeviceFailed, "mount"),
        ];
        for (item, want) in checked.iter().zip(want) {
            let failure = place.images.activate(item).map(drop).unwrap_err();
            ensure!((failure.code, failure.step.as_str()) == want, "{failure:?}");
            place.is_clean()?;
        }
        let nowhere = Images::new().with_apex_root(&place.root.join("nowhere"));
        let good = place.apex("good", 1, &[], &signing())?;
        let item = unchecked(place, &good, &place.name("good"))?;
        let failure = nowhere.activate(&item).map(drop).unwrap_err();
        ensure!(failure.remedy.contains("--apex-root"), "{failure:?}");
        place.is_clean()
    })
}

/// The whole way: every block is checked when it is read.
pub fn verity_checks_every_read() -> Result<()> {
    Place::run("verity", |place| {
        let data = noise(DATA, 2);
        let path = place.apex("one", 1, &[("data", &data)], &signing())?;
        let name = place.name("one");
        let folder = place.root.join(&name);
        place
            .images
            .activate(&place.item(&path, &name)?)
            .map_err(text)?;
        ensure!(fs::read(folder.join("data"))? == data);
        let active = place.another().active().map_err(text)?;
        ensure!(
            active.len() == 1 && active[0].verity && !active[0].corrupted,
            "{active:?}"
        );
        place.images.deactivate(&name).map_err(text)?;
        place.is_clean()?;

        // A byte in the middle of the file: what was read so far was right, this is EIO.
        flip(&path, &data[100_000..100_016])?;
        place
            .images
            .activate(&place.item(&path, &name)?)
            .map_err(text)?;
        let error = fs::read(folder.join("data")).unwrap_err();
        ensure!(
            error.raw_os_error() == Some(nix::errno::Errno::EIO as i32),
            "{error}"
        );
        let active = place.another().active().map_err(text)?;
        ensure!(active[0].corrupted, "{active:?}");
        place.images.deactivate(&name).map_err(text)?;
        place.is_clean()
    })
}

/// Flips a bit of the first of these bytes, which the file holds once.
fn flip(path: &Path, bytes: &[u8]) -> Result<()> {
    let all = fs::read(path)?;
    let at = all.windows(bytes.len()).position(|w| w == bytes);
    let at = at.context("the bytes are not there")?;
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&[all[at] ^ 1], at as u64)?;
    file.sync_all()?;
    Ok(())
}

/// Superblock, manifest, tree: refused when activated, each by name, nothing left.
pub fn damage_is_refused() -> Result<()> {
    Place::run("damage", |place| {
        let name = place.name("one");
        let data = noise(DATA, 3);
        type At = fn(&blockd::images::Window, u64) -> u64;
        // In the image: block 0 has the superblock, 3 the manifest; behind it the tree's top.
        let table: [(&str, At); 3] = [
            ("superblock", |payload, _| payload.offset.0 + 1024 + 50),
            ("manifest", |payload, _| payload.offset.0 + 3 * 4096 + 1000),
            ("tree", |payload, image| payload.offset.0 + image + 100),
        ];
        for (what, at) in table {
            let path = place.apex("one", 1, &[("data", &data)], &signing())?;
            let plan = place
                .images
                .activate_plan(&place.item(&path, &name)?)
                .map_err(text)?;
            let image = plan.verity.context("no verity")?.tree.image_size;
            let at = at(&plan.payload, image);
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ 1], at)?;
            file.sync_all()?;
            let failure = place.images.activate(&place.item(&path, &name)?).map(drop);
            let failure = failure.unwrap_err();
            ensure!(failure.code == Code::BadSignature, "{what}: {failure:?}");
            place.is_clean()?;
        }
        Ok(())
    })
}

/// A tree that the file does not bring is built into ours, and checked by the kernel like any.
pub fn a_missing_tree_is_built() -> Result<()> {
    Place::run("tree", |place| {
        let signing = Signing {
            tree: false,
            ..signing()
        };
        let data = noise(DATA, 4);
        let path = place.apex("one", 1, &[("data", &data)], &signing)?;
        let name = place.name("one");
        let failure = place.images.activate(&place.item(&path, &name)?).map(drop);
        let failure = failure.unwrap_err();
        ensure!(failure.message.contains("hashTree"), "{failure:?}");
        let tree = place.path("tree");
        let item = |path: &Path| -> Result<ActivateItem> {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            Ok(ActivateItem {
                hash_tree: Some(options.open(&tree)?),
                ..place.item(path, &name)?
            })
        };
        place.images.activate(&item(&path)?).map_err(text)?;
        ensure!(fs::read(place.root.join(&name).join("data"))? == data);
        place.images.deactivate(&name).map_err(text)?;
        place.is_clean()?;
        flip(&path, &data[100_000..100_016])?;
        let failure = place.images.activate(&item(&path)?).map(drop).unwrap_err();
        ensure!(
            failure.code == Code::BadSignature && failure.step == "hash-tree",
            "{failure:?}"
        );
        place.is_clean()
    })
}

/// An APEX on a block device goes through dm-linear.
pub fn a_block_device_goes_through_dm_linear() -> Result<()> {
    Place::run("linear", |place| {
        let data = noise(DATA, 5);
        let path = place.apex_of_sectors("one", 1, &[("data", &data)], &signing())?;
        let disk = place.disk(&path)?;
        let name = place.name("one");
        for verity in [true, false] {
            let mut item = place.item(&disk.node, &name)?;
            item.request.verity = verity;
            let done = place.images.activate(&item).map_err(text)?;
            drop(item);
            ensure!(
                done.plan.reason.contains("dm-linear"),
                "{}",
                done.plan.reason
            );
            ensure!(fs::read(place.root.join(&name).join("data"))? == data);
            let active = place.another().active().map_err(text)?;
            ensure!(
                active.len() == 1 && active[0].verity == verity,
                "{active:?}"
            );
            place.images.deactivate(&name).map_err(text)?;
        }
        drop(disk);
        place.is_clean()
    })
}

/// Pieces of two disks in any order are one device, byte for byte.
pub fn extents_of_two_disks_are_one_device() -> Result<()> {
    use blockd::device::mapper::{DeviceNumber, HostMapper, Mapper};
    use blockd::images::linear::{table, Extent};
    use blockd::images::Window;
    use blockd::units::Bytes;
    Place::run("extents", |place| {
        let contents = [noise(64 << 10, 6), noise(64 << 10, 7)];
        let mut disks = Vec::new();
        for (i, bytes) in contents.iter().enumerate() {
            let path = place.path(&format!("disk{i}"));
            fs::write(&path, bytes)?;
            disks.push(place.disk(&path)?);
        }
        let number = |i: usize| -> Result<DeviceNumber> {
            Ok(DeviceNumber::of(&File::open(&disks[i].node)?)?)
        };
        // Disk, first byte there, length.
        let pieces = [
            (0, 8192, 4096),
            (1, 512, 12800),
            (0, 0, 512),
            (0, 512, 1024),
        ];
        let (mut extents, mut whole) = (Vec::new(), Vec::<u8>::new());
        for (disk, at, length) in pieces {
            extents.push(Extent {
                logical: Bytes(whole.len() as u64),
                device: number(disk)?,
                physical: Bytes(at as u64),
                length: Bytes(length as u64),
            });
            whole.extend(&contents[disk][at..at + length]);
        }
        let window = Window {
            offset: Bytes(1024),
            length: Bytes(whole.len() as u64 - 1536),
        };
        let lines = table(&extents, window).map_err(text)?;
        ensure!(lines.len() == 3, "{lines:?}");
        let mapper = HostMapper::new();
        let name = format!("blockd-data-{}@1", place.name("extents"));
        let uuid = format!("blockd-{}-0-extents", std::process::id());
        let device = mapper.create(&name, &uuid)?;
        let read = (|| -> Result<Vec<u8>> {
            mapper.load(&name, &lines)?;
            mapper.resume(&name)?;
            let file = File::from(mapper.open(device, std::time::Duration::from_secs(5))?);
            let mut bytes = vec![0; window.length.0 as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        })();
        mapper.remove(&name, false)?;
        ensure!(read? == whole[1024..whole.len() - 512], "other bytes");
        drop(disks);
        place.is_clean()
    })
}

/// A process that is killed at each of its calls: what the kernel does not take away the next
/// activation does.
pub fn a_killed_process_leaves_nothing_that_stays() -> Result<()> {
    Place::run("killed", |place| {
        let path = place.apex("one", 1, &[("data", &noise(DATA, 8))], &signing())?;
        let name = place.name("one");
        let (mut at, mut killed) = (0, 0);
        loop {
            let status = super::dying::run(at, &place.root, &path, &name)?;
            if status.success() {
                break;
            }
            killed += 1;
            place
                .images
                .activate(&place.item(&path, &name)?)
                .map_err(text)
                .with_context(|| format!("after a process was killed at call {at}"))?;
            place.images.deactivate(&name).map_err(text)?;
            place
                .is_clean()
                .with_context(|| format!("killed at call {at}"))?;
            at += 1;
        }
        ensure!(killed >= 12, "killed {killed} times");
        place.images.deactivate(&name).map_err(text)?;
        place.is_clean()
    })
}

/// AOSP's own files, and why some are refused.
const REAL: [(&str, Option<Code>); 7] = [
    ("com.android.apex.cts.shim.v1.apex", None),
    ("com.android.apex.test.foo.v1.libvX.apex", None),
    ("com.android.apex.test.bar_stripped.v1.libvX.apex", None),
    ("sharedlibs.apex", None),
    ("com.android.apex.cts.shim.v2_no_hashtree.apex", None),
    (
        "com.android.apex.cts.shim.v2_unsigned_payload.apex",
        Some(Code::NotAnApex),
    ),
    ("corrupted_b146895998.apex", Some(Code::PayloadUnaligned)),
];

/// AOSP's own files: activated, their manifests read; or refused by name.
pub fn real_apexes_are_activated() -> Result<()> {
    Place::run("real", |place| {
        let folder = crate::needs::apex_files().context("no APEX files")?;
        for (file, refused) in REAL {
            let result = opened(&folder.join(file)).and_then(|mut item| {
                let name = item.request.name.clone();
                // Most of them do not bring their tree.
                item.hash_tree = Some(tempfile::tempfile()?);
                place.images.activate(&item).map_err(text)?;
                let manifest = fs::read(place.root.join(&name).join("apex_manifest.pb"))?;
                ensure!(!manifest.is_empty());
                let active = place.another().active().map_err(text)?;
                ensure!(
                    active.len() == 1 && active[0].verity && active[0].bound,
                    "{active:?}"
                );
                place.images.deactivate(&name).map_err(text)?;
                Ok(())
            });
            match (refused, result) {
                (None, result) => result.with_context(|| file)?,
                (Some(code), Err(error)) => {
                    ensure!(
                        error.to_string().starts_with(code.name()),
                        "{file}: {error}"
                    );
                }
                (Some(_), Ok(())) => anyhow::bail!("{file} was activated"),
            }
            place.is_clean()?;
        }
        Ok(())
    })
}
