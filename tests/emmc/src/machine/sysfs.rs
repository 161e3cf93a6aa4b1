//! /sys and /proc of the machine, as text in memory.
use blockd::device::Sysfs;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
struct Tree {
    /// Canonical path → text, or the errno of reading it.
    files: BTreeMap<String, Result<String, Errno>>,
    /// Kernel name → folder that /sys/class/block/NAME links to.
    nodes: BTreeMap<String, String>,
}

/// Text files; folders exist where something lies in them.
#[derive(Default)]
pub struct FakeSysfs(Mutex<Tree>);

const CLASS: &str = "/sys/class/block/";

impl Tree {
    /// Follows /sys/class/block links and `..`.
    fn canonical(&self, path: &str) -> String {
        let start = path.strip_prefix(CLASS).and_then(|rest| {
            let (node, rest) = rest.split_once('/').unwrap_or((rest, ""));
            Some(format!("{}/{rest}", self.nodes.get(node)?))
        });
        let mut parts = Vec::new();
        for part in start.as_deref().unwrap_or(path).split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    /// Names directly below a canonical folder.
    fn children(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let below = self.files.range(prefix.clone()..);
        let mut names: Vec<String> = below
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
            .collect();
        names.dedup();
        names.retain(|n| !n.is_empty());
        names
    }
}

impl FakeSysfs {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes `/sys/class/block/node` a link to `folder`.
    pub(super) fn link(&self, node: &str, folder: &str) {
        let mut tree = self.tree();
        tree.nodes.insert(node.to_owned(), folder.to_owned());
    }

    /// Creates or replaces a file.
    pub fn set(&self, path: &str, text: impl ToString) {
        let mut tree = self.tree();
        let path = tree.canonical(path);
        tree.files.insert(path, Ok(text.to_string()));
    }

    /// Adds a line to a file.
    pub fn append(&self, path: &str, line: &str) {
        let mut tree = self.tree();
        let path = tree.canonical(path);
        let entry = tree.files.entry(path).or_insert(Ok(String::new()));
        if let Ok(text) = entry {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
        }
    }

    /// Makes reading a file fail; the folder still lists it.
    pub fn deny(&self, path: &str, errno: Errno) {
        let mut tree = self.tree();
        let path = tree.canonical(path);
        tree.files.insert(path, Err(errno));
    }

    /// Removes a file, or a folder with everything in it.
    pub fn remove(&self, path: &str) {
        let mut tree = self.tree();
        let path = tree.canonical(path);
        let below = format!("{path}/");
        tree.files
            .retain(|p, _| *p != path && !p.starts_with(&below));
    }
}

impl Sysfs for FakeSysfs {
    fn read(&self, path: &str) -> io::Result<String> {
        let tree = self.tree();
        match tree.files.get(&tree.canonical(path)) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(errno)) => Err((*errno).into()),
            None => Err(Errno::ENOENT.into()),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let tree = self.tree();
        let mut names = tree.children(&tree.canonical(path));
        if format!("{path}/") == CLASS || path == CLASS {
            names.extend(tree.nodes.keys().cloned());
        }
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        Ok(names)
    }

    fn resolved_name(&self, path: &str) -> io::Result<String> {
        if !self.exists(path) {
            return Err(Errno::ENOENT.into());
        }
        let path = self.tree().canonical(path);
        Ok(path.rsplit('/').next().unwrap_or_default().to_owned())
    }

    fn exists(&self, path: &str) -> bool {
        let tree = self.tree();
        let path = tree.canonical(path);
        tree.files.contains_key(&path) || !tree.children(&path).is_empty()
    }
}
