//! Who uses a disk or a partition.

use crate::device::Sysfs;

/// Who uses the node, in words. O_EXCL sees mounts, swap and device-mapper, but not loop devices
/// (facts of Linux ≥ 4.14), and names nobody; so we look ourselves.
pub(super) fn holders(sysfs: &dyn Sysfs, node: &str) -> Vec<String> {
    let mut holders = Vec::new();
    let device = sysfs
        .read(&format!("/sys/class/block/{node}/dev"))
        .unwrap_or_default();
    for line in sysfs
        .read("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
    {
        // proc(5): ID parent major:minor root mount-point options … - type source
        let fields: Vec<&str> = line.split(' ').collect();
        let source = fields
            .iter()
            .position(|field| *field == "-")
            .and_then(|dash| fields.get(dash + 2));
        let same_device = fields.get(2).is_some_and(|d| *d == device) && !device.is_empty();
        // File systems with anonymous device numbers (btrfs) are seen by their source alone.
        let same_source = source.is_some_and(|path| is_node(path, node));
        if same_device || same_source {
            let place = fields.get(4).copied().unwrap_or("?");
            let text = format!("mounted at {place}");
            if !holders.contains(&text) {
                holders.push(text);
            }
        }
    }
    for line in sysfs.read("/proc/swaps").unwrap_or_default().lines() {
        if line
            .split_whitespace()
            .next()
            .is_some_and(|p| is_node(p, node))
        {
            holders.push("used as swap".to_owned());
        }
    }
    for dm in sysfs
        .list(&format!("/sys/class/block/{node}/holders"))
        .unwrap_or_default()
    {
        let name = sysfs
            .read(&format!("/sys/class/block/{dm}/dm/name"))
            .map_or(String::new(), |name| format!(" ({name})"));
        holders.push(format!("held by {dm}{name}"));
    }
    for other in sysfs.list("/sys/block").unwrap_or_default() {
        let backing = sysfs.read(&format!("/sys/block/{other}/loop/backing_file"));
        if backing.is_ok_and(|path| is_node(&path, node)) {
            holders.push(format!("the backing file of {other}"));
        }
    }
    holders
}

/// Who has mapped a node into memory. The pages of a claimed partition are dropped whoever maps them;
/// those of a whole disk cannot be, since nobody can claim it while a partition is claimed. Processes
/// that this one may not look into are passed over.
pub(super) fn mappings(sysfs: &dyn Sysfs, node: &str) -> Vec<String> {
    let is_pid = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    let processes = sysfs.list("/proc").unwrap_or_default();
    processes
        .into_iter()
        .filter(is_pid)
        .filter(|pid| {
            let maps = sysfs.read(&format!("/proc/{pid}/maps")).unwrap_or_default();
            // proc(5): addresses permissions offset device inode path
            maps.lines()
                .filter_map(|line| line.split_whitespace().nth(5))
                .any(|path| is_node(path, node))
        })
        .map(|pid| {
            let name = sysfs
                .read(&format!("/proc/{pid}/comm"))
                .map_or(String::new(), |name| format!(" ({})", name.trim_end()));
            format!("mapped into memory by process {pid}{name}")
        })
        .collect()
}

/// True where `path` is the device node of the kernel name `node`.
fn is_node(path: &str, node: &str) -> bool {
    path.strip_prefix("/dev/")
        .is_some_and(|rest| rest.rsplit('/').next() == Some(node))
}

#[cfg(test)]
mod tests {
    use super::is_node;

    #[test]
    fn nodes_are_known_by_their_last_name() {
        assert!(is_node("/dev/mmcblk0p2", "mmcblk0p2"));
        assert!(is_node("/dev/block/mmcblk0p2", "mmcblk0p2"));
        assert!(!is_node("/dev/mmcblk0p21", "mmcblk0p2"));
        assert!(!is_node("/data/mmcblk0p2", "mmcblk0p2"));
    }
}
