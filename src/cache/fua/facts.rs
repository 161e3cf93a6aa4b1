//! What the kernel says of the queue below a file: whether FUA and flushes reach the disk at all.

use crate::device::block::errno;
use crate::device::Sysfs;
use crate::fact::Fact;

/// The queue of the disk below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Kernel name of the disk.
    pub disk: Fact<String>,
    /// queue/fua: 1 where the disk has FUA writes.
    pub fua: Fact<String>,
    /// queue/write_cache: `write back`, or `write through`, with which the kernel drops both FUA and
    /// flushes.
    pub write_cache: Fact<String>,
}

impl Queue {
    /// Reads about the block device `major:minor`.
    pub fn gather(sysfs: &dyn Sysfs, device: &str) -> Queue {
        let disk = disk_of(sysfs, device);
        let read = |file: &str| match &disk {
            Fact::Known { value, .. } => {
                let path = format!("/sys/block/{value}/queue/{file}");
                match sysfs.read(&path) {
                    Ok(text) => Fact::known(text.trim_end().to_owned(), path),
                    Err(e) => {
                        let errno = errno(e);
                        Fact::unknown(format!("{path}: {}", errno.desc()), Some(errno))
                    }
                }
            }
            Fact::Unknown { reason, errno } => Fact::unknown(reason.clone(), *errno),
        };
        Queue {
            fua: read("fua"),
            write_cache: read("write_cache"),
            disk,
        }
    }

    /// What the paths of a measurement really ask of the disk, in words.
    pub fn meaning(&self) -> String {
        let (Some(write_cache), Some(fua)) = (self.write_cache.value(), self.fua.value()) else {
            let unknown = [&self.write_cache, &self.fua].into_iter().find_map(reason);
            return format!(
                "whether FUA and flushes reach the disk cannot be told here: {}; `cache info` by \
                 somebody who may read it would tell",
                unknown.unwrap_or("unknown")
            );
        };
        if write_cache != "write back" {
            return format!(
                "queue/write_cache says `{write_cache}`: the kernel drops FUA and flushes, all paths \
                 are plain writes, and what lies between them is noise"
            );
        }
        match fua.as_str() {
            "1" => "queue/write_cache says `write back`, queue/fua 1: path fua sends FUA writes (on an \
                    eMMC reliable writes), path flush a cache flush after each write"
                .to_owned(),
            _ => format!(
                "queue/write_cache says `write back`, queue/fua {fua}: the disk has no FUA, so that \
                 path fua is a write and a cache flush, as path flush is"
            ),
        }
    }
}

fn reason<T>(fact: &Fact<T>) -> Option<&str> {
    match fact {
        Fact::Unknown { reason, .. } => Some(reason),
        Fact::Known { .. } => None,
    }
}

/// The disk of a device number; of a partition, the disk that it is on.
fn disk_of(sysfs: &dyn Sysfs, device: &str) -> Fact<String> {
    let path = format!("/sys/dev/block/{device}");
    let name = match sysfs.resolved_name(&path) {
        Ok(name) => name,
        Err(e) => {
            // btrfs, overlayfs and the like have numbers of their own.
            let errno = errno(e);
            return Fact::unknown(format!("{path}: {}", errno.desc()), Some(errno));
        }
    };
    if !sysfs.exists(&format!("/sys/class/block/{name}/partition")) {
        return Fact::known(name, path);
    }
    let parent = format!("/sys/class/block/{name}/..");
    match sysfs.resolved_name(&parent) {
        Ok(disk) => Fact::known(disk, parent),
        Err(e) => {
            let errno = errno(e);
            Fact::unknown(format!("{parent}: {}", errno.desc()), Some(errno))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sysfs::Tree;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_s_queue_is_that_of_its_disk() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        for folder in ["sys/devices/mmcblk0/p", "sys/dev/block", "sys/class/block"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::create_dir_all(at("sys/devices/mmcblk0/mmcblk0p3")).expect("a folder");
        fs::create_dir_all(at("sys/devices/mmcblk0/queue")).expect("a folder");
        fs::create_dir_all(at("sys/block")).expect("a folder");
        fs::write(at("sys/devices/mmcblk0/mmcblk0p3/partition"), "3\n").expect("a file");
        fs::write(at("sys/devices/mmcblk0/queue/fua"), "1\n").expect("a file");
        fs::write(at("sys/devices/mmcblk0/queue/write_cache"), "write back\n").expect("a file");
        for (from, to) in [
            ("sys/dev/block/179:3", "../../devices/mmcblk0/mmcblk0p3"),
            (
                "sys/class/block/mmcblk0p3",
                "../../devices/mmcblk0/mmcblk0p3",
            ),
            ("sys/block/mmcblk0", "../devices/mmcblk0"),
        ] {
            symlink(to, at(from)).expect("a link");
        }
        let tree = Tree::below(root.path());
        let queue = Queue::gather(&tree, "179:3");
        assert_eq!(queue.disk.value().map(String::as_str), Some("mmcblk0"));
        assert!(queue.meaning().contains("sends FUA writes"), "{queue:?}");
        let queue = Queue::gather(&tree, "0:42");
        assert!(queue.meaning().contains("/sys/dev/block/0:42"), "{queue:?}");
    }

    #[test]
    fn nothing_is_claimed_that_the_kernel_does_not_do() {
        let queue = |write_cache: &str, fua: &str| Queue {
            disk: Fact::known("mmcblk0".to_owned(), ""),
            fua: Fact::known(fua.to_owned(), ""),
            write_cache: Fact::known(write_cache.to_owned(), ""),
        };
        // With "write through" queue/fua still reads 1, and neither is sent (Linux 6.12).
        let table = [
            (queue("write back", "1"), "sends FUA writes"),
            (queue("write back", "0"), "has no FUA"),
            (queue("write through", "1"), "drops FUA and flushes"),
            (queue("none", "0"), "drops FUA and flushes"),
        ];
        for (queue, words) in table {
            assert!(queue.meaning().contains(words), "{}", queue.meaning());
        }
    }
}
