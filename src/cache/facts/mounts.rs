//! What lies above a disk: partitions, device-mapper, loop devices, file systems.

use super::text;
use crate::device::block::errno;
use crate::device::Sysfs;
use crate::fact::Fact;
use std::fmt;

/// A device-mapper or loop device above the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Kernel name.
    pub node: String,
    /// Its queue/write_cache: with `write through` flushes end here.
    pub write_cache: Fact<String>,
    /// The kernel refuses writes to it. Loop devices that are read-only say `write through`.
    pub read_only: bool,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub place: String,
    /// Kernel name of what it is on.
    pub node: String,
    /// Its type.
    pub kind: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
}

/// `/data ext4 rw,nobarrier`
impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.place, self.kind, self.options.join(","))
    }
}

impl Mount {
    /// The option that keeps an fsync from flushing the disk's cache, if there is one: ext4's and
    /// xfs's (before 4.19) `nobarrier`, ext4's `barrier=0`, f2fs's `nobarrier` and
    /// `fsync_mode=nobarrier`, btrfs's `nobarrier`.
    pub fn without_barriers(&self) -> Option<&str> {
        const OPTIONS: [&str; 3] = ["nobarrier", "barrier=0", "fsync_mode=nobarrier"];
        self.options
            .iter()
            .map(String::as_str)
            .find(|option| OPTIONS.contains(option))
    }

    /// True where nothing is written.
    pub fn read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }

    /// True for ext3's and ext4's `data=writeback`: after a crash a file may end in old data.
    pub fn data_writeback(&self) -> bool {
        self.options.iter().any(|option| option == "data=writeback")
    }
}

/// A line of /proc/self/mountinfo.
struct Line {
    device: String,
    mount: Mount,
    source: String,
}

/// proc(5): ID parent major:minor root mount-point options … - type source super-options
fn parse(line: &str) -> Option<Line> {
    let fields: Vec<&str> = line.split(' ').collect();
    let dash = fields.iter().position(|field| *field == "-")?;
    let mut options: Vec<String> = Vec::new();
    let lists = [fields.get(5), fields.get(dash + 3)];
    for option in lists.into_iter().flatten().flat_map(|list| list.split(',')) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    // A mount that is read-only on a file system that is not: nothing is known of the other mounts.
    if options.iter().any(|o| o == "rw") {
        options.retain(|o| o != "ro");
    }
    Some(Line {
        device: (*fields.get(2)?).to_owned(),
        mount: Mount {
            place: unescape(fields.get(4)?),
            node: String::new(),
            kind: (*fields.get(dash + 1)?).to_owned(),
            options,
        },
        source: unescape(fields.get(dash + 2)?),
    })
}

/// mountinfo writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escape, c)| text.replace(escape, c))
}

/// Everything above `disk`: layers, and file systems on any of it.
pub(super) fn above(sysfs: &dyn Sysfs, disk: &str) -> (Vec<Layer>, Fact<Vec<Mount>>) {
    const MOUNTINFO: &str = "/proc/self/mountinfo";
    let (lines, unread) = match sysfs.read(MOUNTINFO) {
        Ok(text) => (text.lines().filter_map(parse).collect(), None),
        Err(e) => (Vec::new(), Some(errno(e))),
    };
    let mut nodes = vec![disk.to_owned()];
    nodes.extend(partitions(sysfs, disk));
    let on_disk = nodes.len();
    let mut found: Vec<Mount> = Vec::new();
    let mut at = 0;
    while let Some(node) = nodes.get(at).cloned() {
        at += 1;
        let holders = sysfs.list(&format!("/sys/class/block/{node}/holders"));
        let mut more = holders.unwrap_or_default();
        let here = mounts_of(sysfs, &lines, &node);
        more.extend(loops_on(sysfs, &lines, &node, &here));
        found.extend(here);
        for name in more {
            if !nodes.contains(&name) {
                nodes.push(name);
            }
        }
    }
    let layers = nodes[on_disk..].iter().map(|node| Layer {
        write_cache: text(sysfs, &format!("/sys/class/block/{node}/queue/write_cache")),
        read_only: sysfs
            .read(&format!("/sys/class/block/{node}/ro"))
            .is_ok_and(|ro| ro.trim() == "1"),
        node: node.clone(),
    });
    let mounts = match unread {
        None => Fact::known(found, MOUNTINFO),
        Some(errno) => Fact::unknown(format!("{MOUNTINFO}: {}", errno.desc()), Some(errno)),
    };
    (layers.collect(), mounts)
}

fn partitions(sysfs: &dyn Sysfs, disk: &str) -> Vec<String> {
    let mut names = sysfs
        .list(&format!("/sys/block/{disk}"))
        .unwrap_or_default();
    names.retain(|name| sysfs.exists(&format!("/sys/block/{disk}/{name}/partition")));
    names
}

fn mounts_of(sysfs: &dyn Sysfs, lines: &[Line], node: &str) -> Vec<Mount> {
    let device = sysfs.read(&format!("/sys/class/block/{node}/dev")).ok();
    let dm_name = sysfs.read(&format!("/sys/class/block/{node}/dm/name")).ok();
    let mut mounts: Vec<Mount> = Vec::new();
    for line in lines {
        // btrfs and the like have device numbers of their own and are seen by their source alone.
        let is_source = line.source.strip_prefix("/dev/").is_some_and(|rest| {
            let last = rest.rsplit('/').next();
            last == Some(node) || (dm_name.is_some() && last == dm_name.as_deref())
        });
        if device.as_deref() == Some(line.device.as_str()) || is_source {
            let mount = Mount {
                node: node.to_owned(),
                ..line.mount.clone()
            };
            if !mounts.contains(&mount) {
                mounts.push(mount);
            }
        }
    }
    mounts
}

/// Loop devices whose file is the node, or lies on a file system on it.
fn loops_on(sysfs: &dyn Sysfs, lines: &[Line], node: &str, here: &[Mount]) -> Vec<String> {
    let names = sysfs.list("/sys/block").unwrap_or_default();
    let backing = |name: &String| {
        sysfs
            .read(&format!("/sys/block/{name}/loop/backing_file"))
            .ok()
    };
    names
        .into_iter()
        .filter(|name| {
            backing(name).is_some_and(|file| {
                let is_node = file
                    .strip_prefix("/dev/")
                    .is_some_and(|rest| rest.rsplit('/').next() == Some(node));
                is_node || place_of(lines, &file).is_some_and(|p| here.iter().any(|m| m.place == p))
            })
        })
        .collect()
}

/// The mount point that a path lies below: the longest, of several at one place the last.
fn place_of<'a>(lines: &'a [Line], path: &str) -> Option<&'a str> {
    lines
        .iter()
        .map(|line| line.mount.place.as_str())
        .filter(|place| {
            path.strip_prefix(place)
                .is_some_and(|rest| rest.starts_with('/') || place.ends_with('/'))
        })
        .max_by_key(|place| place.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo() {
        let line = parse(
            r"36 25 179:1 / /my\040data rw,noatime shared:1 - f2fs /dev/block/dm-3 rw,fsync_mode=nobarrier",
        )
        .expect("a line");
        assert_eq!(line.device, "179:1");
        assert_eq!(line.source, "/dev/block/dm-3");
        assert_eq!(
            line.mount.to_string(),
            "/my data f2fs rw,noatime,fsync_mode=nobarrier"
        );
        assert_eq!(line.mount.without_barriers(), Some("fsync_mode=nobarrier"));
        assert!(parse("").is_none() && parse("36 25 - ext4").is_none());
    }

    #[test]
    fn a_file_lies_on_the_longest_mount() {
        let lines: Vec<Line> = ["/", "/data", "/data/x"]
            .iter()
            .filter_map(|place| parse(&format!("1 1 1:1 / {place} rw - ext4 /dev/a rw")))
            .collect();
        let table = [
            ("/data/x/y", Some("/data/x")),
            ("/data/xy", Some("/data")),
            ("/database", Some("/")),
        ];
        for (path, want) in table {
            assert_eq!(place_of(&lines, path), want, "{path}");
        }
    }
}
