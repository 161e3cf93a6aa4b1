//! What is active, by what the kernel says alone, and taking it away.

use super::mapper::{check_verity, made_by_the_dead, remove_and_wait, sweep_one};
use super::plan::{LINEAR_PREFIX, VERITY_PREFIX};
use super::Package;
use crate::device::mapper::DeviceNumber;
use crate::error::{Code, Failure, Result};
use crate::images::{Images, Step};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a loop device may take to go after the last mount of it: looks and pause.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// An APEX that blockd has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveApex {
    /// Name and version.
    pub package: Package,
    /// Where it is mounted, by name and version.
    pub mount_point: PathBuf,
    /// Whether it is visible at its name, too.
    pub bound: bool,
    /// Name of the mounted device: that of device-mapper's, or `loopN`.
    pub device: String,
    /// Reads are checked by dm-verity.
    pub verity: bool,
    /// dm-verity has found something wrong since the activation.
    pub corrupted: bool,
}

/// The topmost mount at a path: the device that is mounted there.
pub(super) fn mounted_at(table: &str, path: &Path) -> Option<DeviceNumber> {
    let mut found = None;
    for line in table.lines() {
        if let Some((device, point)) = mount_line(line) {
            if Path::new(&point) == path {
                found = Some(device);
            }
        }
    }
    found
}

/// Device and mount point of a line of mountinfo (Documentation/filesystems/proc.rst, 3.5).
fn mount_line(line: &str) -> Option<(DeviceNumber, String)> {
    let mut fields = line.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let device = DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    Some((device, unescape(fields.nth(1)?)))
}

/// Blanks, tabs, newlines and backslashes are written as `\040` …
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        let octal = digits.and_then(|d| u8::from_str_radix(d, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Images {
    /// The APEXes that blockd has mounted below its folder, sorted. What somebody else has mounted
    /// there is not ours and not shown.
    ///
    /// # Errors
    /// `DEVICE_FAILED` where the kernel does not tell.
    pub fn active(&self) -> Result<Vec<ActiveApex>> {
        let table = self.mount_table(Step::List)?;
        let mapped = self.mapped()?;
        let mut points = BTreeMap::new();
        for (device, point) in table.lines().filter_map(mount_line) {
            let point = PathBuf::from(point);
            if let Some(name) = self.below_root(&point) {
                // A later line lies above an earlier one.
                points.insert(name.to_owned(), (device, point));
            }
        }
        let mut loops = None;
        let mut found = Vec::new();
        for (name, (device, point)) in &points {
            let Some(package) = Package::parse(name) else {
                continue;
            };
            let names = match mapped.get(device) {
                Some(name) => Some(name.clone()),
                None => self.loop_name(*device, &package, &mut loops)?,
            };
            let Some(device_name) = names.filter(|name| is_of(name, &package)) else {
                continue;
            };
            let verity = device_name.starts_with(VERITY_PREFIX);
            found.push(ActiveApex {
                mount_point: point.clone(),
                bound: points.get(&package.name).is_some_and(|(d, _)| d == device),
                corrupted: verity && check_verity(&*self.mapper, &device_name).is_err(),
                verity,
                device: device_name,
                package,
            });
        }
        Ok(found)
    }

    /// The last part of a path that lies directly below the folder of all mounts.
    fn below_root<'a>(&self, point: &'a Path) -> Option<&'a str> {
        let inside = point.strip_prefix(&self.root).ok()?;
        let mut parts = inside.iter();
        let name = parts.next()?.to_str()?;
        parts.next().is_none().then_some(name)
    }

    /// Our devices of device-mapper by number; none where the kernel has no device-mapper.
    fn mapped(&self) -> Result<BTreeMap<DeviceNumber, String>> {
        match self.mapper.prepare() {
            Ok(()) => {}
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => return Ok(BTreeMap::new()),
            Err(errno) => return Err(list_failure(errno)),
        }
        let devices = self.mapper.list().map_err(list_failure)?;
        Ok(devices
            .into_iter()
            .filter(|(name, _)| name.starts_with(VERITY_PREFIX) || name.starts_with(LINEAR_PREFIX))
            .map(|(name, number)| (number, name))
            .collect())
    }

    /// `loopN` where the mounted device is the loop device of this package.
    fn loop_name(
        &self,
        device: DeviceNumber,
        package: &Package,
        known: &mut Option<BTreeMap<DeviceNumber, (u32, String)>>,
    ) -> Result<Option<String>> {
        let loops = match known {
            Some(loops) => loops,
            None => known.insert(self.tagged_loops()?),
        };
        Ok(loops
            .get(&device)
            .filter(|(_, tag)| *tag == package.tag_name())
            .map(|(number, _)| format!("loop{number}")))
    }

    /// Number and name from the tag of every loop device that blockd has made.
    fn tagged_loops(&self) -> Result<BTreeMap<DeviceNumber, (u32, String)>> {
        let mut found = BTreeMap::new();
        for device in self.list(false)?.devices {
            if let Some(number) = self.loop_number(device.number) {
                found.insert(number, (device.number, device.name));
            }
        }
        Ok(found)
    }

    /// Deactivates the APEX of this name: every version that blockd has mounted.
    ///
    /// # Errors
    /// `NO_SUCH_DEVICE` where blockd has none of the name active; `IN_USE` where it is in use: it
    /// stays active as it was.
    pub fn deactivate(&self, name: &str) -> Result<Vec<ActiveApex>> {
        let _turn = self.turn(name)?;
        let mut active = self.active()?;
        active.retain(|apex| apex.package.name == name);
        if active.is_empty() {
            let text = format!(
                "blockd has no APEX {name:?} active below {}",
                self.root.display()
            );
            let remedy = "`blockctl apex list` shows what is; what apexd has mounted is apexd's";
            return Err(Step::Deactivate
                .fail(Code::NoSuchDevice, text)
                .remedy(remedy));
        }
        for apex in &active {
            self.take_down(apex)?;
        }
        Ok(active)
    }

    fn take_down(&self, apex: &ActiveApex) -> Result<()> {
        let bind_point = self.root.join(&apex.package.name);
        if apex.bound {
            self.mounts
                .unmount(&bind_point)
                .map_err(|e| busy(&bind_point, e))?;
        }
        if let Err(errno) = self.mounts.unmount(&apex.mount_point) {
            let mut failure = busy(&apex.mount_point, errno);
            if apex.bound {
                // As it was: it is in use, and its users look for it by name.
                if let Err(errno) = self.mounts.bind(&apex.mount_point, &bind_point) {
                    let point = bind_point.display();
                    failure.message += &format!("; and {point} is gone: {}", errno.desc());
                }
            }
            return Err(failure);
        }
        if apex.bound {
            self.remove_folder(&bind_point)?;
        }
        self.remove_folder(&apex.mount_point)?;
        self.remove_devices(apex)
    }

    /// They go by themselves with the mount; here it is made sure of.
    fn remove_devices(&self, apex: &ActiveApex) -> Result<()> {
        let (verity, linear) = (apex.package.verity_name(), apex.package.linear_name());
        if !apex.device.starts_with("loop") {
            for name in [&verity, &linear] {
                remove_and_wait(&*self.mapper, name).map_err(|errno| {
                    let text = format!("unmounted, but the device {name} stays");
                    let remedy = "somebody has it open (`dmsetup info`): it goes with the last";
                    let failure = Step::Deactivate.fail(Code::InUse, text);
                    failure.errno(errno).remedy(remedy)
                })?;
            }
        }
        let tag = apex.package.tag_name();
        for _ in 0..LOOKS {
            let left = self.list(false)?.devices;
            if !left.iter().any(|device| device.name == tag) {
                return Ok(());
            }
            self.mapper.pause(PAUSE);
        }
        let text = format!("unmounted, but its loop device ({tag}) stays");
        let remedy = "somebody has it open (`losetup -a`): it goes with the last";
        Err(Step::Deactivate.fail(Code::InUse, text).remedy(remedy))
    }

    /// One that somebody has put something into stays: it is not ours to empty.
    fn remove_folder(&self, path: &Path) -> Result<()> {
        match self.mounts.remove_folder(path) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => {
                let text = format!("unmounted, but the folder {} stays", path.display());
                Err(Step::Deactivate.fail(Code::InUse, text).errno(errno))
            }
        }
    }

    /// Takes away what processes left behind that were killed within an activation: mounts
    /// without a name, devices without a mount.
    pub fn sweep(&self) {
        if self.mapper.prepare().is_err() {
            return;
        }
        self.clear_half_made(None);
        // A dm-verity device may lie on a dm-linear one: the former first.
        for prefix in [VERITY_PREFIX, LINEAR_PREFIX] {
            for (name, _) in self.mapper.list().unwrap_or_default() {
                if name.starts_with(prefix) && sweep_one(&*self.mapper, &name) {
                    log::warn!("removed {name}, which a dead process had left half-made");
                }
            }
        }
    }
}

impl Images {
    /// Takes down what is mounted by version, but not by name, and was made by a dead process.
    /// Says whether there was any.
    pub(super) fn clear_half_made(&self, name: Option<&str>) -> bool {
        let mut cleared = false;
        for apex in self.active().unwrap_or_default() {
            let asked = name.map_or(true, |name| apex.package.name == name);
            if !asked || apex.bound || !made_by_the_dead(&*self.mapper, &apex.device) {
                continue;
            }
            match self.take_down(&apex) {
                Ok(()) => {
                    log::warn!(
                        "removed {}, which a dead process had left half-made",
                        apex.package
                    );
                    cleared = true;
                }
                Err(failure) => log::warn!("{} is half-made: {failure}", apex.package),
            }
        }
        cleared
    }
}

fn is_of(device: &str, package: &Package) -> bool {
    device == package.verity_name() || device == package.linear_name() || device.starts_with("loop")
}

fn list_failure(errno: Errno) -> Failure {
    let text = "device-mapper does not list its devices";
    let code = match errno {
        Errno::EACCES | Errno::EPERM => Code::Permission,
        _ => Code::DeviceFailed,
    };
    let remedy = "run as root; under SELinux see `dmesg | grep avc`";
    Step::List.fail(code, text).errno(errno).remedy(remedy)
}

fn busy(point: &Path, errno: Errno) -> Failure {
    let point = point.display();
    match errno {
        Errno::EBUSY => {
            let text = format!("{point} is in use");
            let remedy = format!("end what uses it (`fuser -vm {point}`), then try again");
            Step::Deactivate.fail(Code::InUse, text).remedy(remedy)
        }
        Errno::EPERM | Errno::EACCES => {
            let text = format!("{point} may not be unmounted");
            let remedy = "run as root; under SELinux see `dmesg | grep avc`";
            Step::Deactivate.fail(Code::Permission, text).remedy(remedy)
        }
        _ => Step::Deactivate.fail(Code::DeviceFailed, format!("cannot unmount {point}")),
    }
    .errno(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw - ext4 /dev/root rw
30 21 0:20 / /apex rw - tmpfs tmpfs rw
31 30 253:0 / /apex/a.b@1 ro,nodev - ext4 /proc/self/fd/9 ro
32 30 253:0 / /apex/a.b ro,nodev - ext4 /proc/self/fd/9 ro
33 30 7:8 / /apex/with\\040blank ro shared:7 master:1 - erofs x ro
34 30 7:9 / /apex/a.b ro - erofs x ro
";

    #[test]
    fn the_topmost_mount_counts() {
        let at = |path: &str| mounted_at(TABLE, Path::new(path)).map(|n| n.to_string());
        assert_eq!(at("/apex/a.b@1").as_deref(), Some("253:0"));
        assert_eq!(at("/apex/a.b").as_deref(), Some("7:9"));
        assert_eq!(at("/apex/with blank").as_deref(), Some("7:8"));
        assert_eq!(at("/apex/a"), None);
    }

    #[test]
    fn names_of_folders_are_read_as_they_are_written() {
        let table = [
            ("a.b@1", Some(("a.b", 1))),
            ("a@b@18446744073709551615", Some(("a@b", u64::MAX))),
            ("a.b", None),
            ("a.b@", None),
            ("@1", None),
            ("a@01", None),
            ("a@+1", None),
            ("a@-1", None),
            ("a@1.tmp", None),
        ];
        for (text, want) in table {
            let found = Package::parse(text);
            let found = found.as_ref().map(|p| (p.name.as_str(), p.version));
            assert_eq!(found, want, "{text}");
        }
    }
}
