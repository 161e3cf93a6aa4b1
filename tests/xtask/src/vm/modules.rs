//! Kernel modules: which are needed for which, in the order of loading.
//!
//! A kernel package has no modules.dep (depmod makes it at installation), so that the
//! dependencies are read from the modules themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::process;

/// A module ready to load.
#[derive(Clone, Debug)]
pub struct Module {
    /// Name with underscores.
    pub name: String,
    /// The uncompressed ELF file.
    pub bytes: Vec<u8>,
}

/// All modules of a kernel.
#[derive(Debug)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: String,
}

impl Modules {
    /// Looks through lib/modules/VERSION.
    pub fn new(directory: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut directories = vec![directory.join("kernel")];
        while let Some(directory) = directories.pop() {
            let entries =
                fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
            for entry in entries {
                let path = entry?.path();
                if path.is_dir() {
                    directories.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let builtin = fs::read_to_string(directory.join("modules.builtin"))?;
        Ok(Self { files, builtin })
    }

    /// The named modules with all they depend on, each after its dependencies.
    pub fn resolve(&self, names: &[&str]) -> Result<Vec<Module>> {
        let mut result = Vec::new();
        for name in names {
            self.add(&name.replace('-', "_"), &mut result)?;
        }
        Ok(result)
    }

    fn add(&self, name: &str, result: &mut Vec<Module>) -> Result<()> {
        if result.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let Some(path) = self.files.get(name) else {
            if self.is_builtin(name) {
                return Ok(());
            }
            bail!("the kernel has no module {name}");
        };
        let bytes = read(path)?;
        let depends = information(&bytes, "depends").unwrap_or_default();
        for dependency in depends.split(',').filter(|d| !d.is_empty()) {
            self.add(&dependency.replace('-', "_"), result)?;
        }
        result.push(Module {
            name: name.to_owned(),
            bytes,
        });
        Ok(())
    }

    fn is_builtin(&self, name: &str) -> bool {
        self.builtin
            .lines()
            .any(|line| module_name(Path::new(line)).as_deref() == Some(name))
    }
}

/// `kernel/drivers/mmc/host/sdhci-pci.ko.xz` is `sdhci_pci`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, suffix) = file.split_once(".ko")?;
    matches!(suffix, "" | ".xz" | ".zst").then(|| name.replace('-', "_"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).with_context(|| path.display().to_string()),
    };
    process::output(Command::new(tool).arg("-dcq").arg(path))
}

/// A field of the section .modinfo: NUL-terminated `key=value` strings.
fn information(module: &[u8], key: &str) -> Option<String> {
    let pattern = format!("\0{key}=");
    let start = module
        .windows(pattern.len())
        .position(|w| w == pattern.as_bytes())?;
    let value = &module[start + pattern.len()..];
    let end = value.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&value[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_fields() {
        let name = |path| module_name(Path::new(path));
        assert_eq!(name("a/sdhci-pci.ko.xz").as_deref(), Some("sdhci_pci"));
        assert_eq!(name("a/loop.ko").as_deref(), Some("loop"));
        assert_eq!(name("a/modules.dep"), None);
        let bytes = b"ELF\0alias=x\0depends=a,b-c\0license=GPL\0";
        assert_eq!(information(bytes, "depends").as_deref(), Some("a,b-c"));
        assert_eq!(information(bytes, "nothing"), None);
    }
}
