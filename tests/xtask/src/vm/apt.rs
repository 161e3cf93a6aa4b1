//! Debian packages without root: apt with lists, cache and status of its own downloads them,
//! `dpkg -x` unpacks them. Mirror and keys are those of the machine's own apt configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::process;

/// apt with a configuration of its own.
#[derive(Debug)]
pub struct Apt {
    configuration: PathBuf,
    archives: PathBuf,
}

/// What a download would bring.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of packages.
    pub packages: usize,
    /// Size of the download, bytes.
    pub bytes: u64,
}

impl Apt {
    /// Prepares apt for suites of Debian (`trixie`, `trixie-backports`) below `directory` and
    /// reads their lists.
    pub fn new(directory: &Path, suites: &[&str]) -> Result<Self> {
        for tool in ["apt-get", "dpkg"] {
            process::output(Command::new(tool).arg("--version"))
                .context("QEMU and the kernel come as Debian packages")?;
        }
        let source = machine_source()?;
        let archives = directory.join("cache/archives");
        for sub in ["state/lists/partial", "cache/archives/partial", "none"] {
            fs::create_dir_all(directory.join(sub))?;
        }
        // Nothing is installed: every dependency is wanted, whatever this machine has.
        fs::write(directory.join("status"), "")?;
        let lines: String = suites.iter().map(|suite| source.line(suite)).collect();
        fs::write(directory.join("sources.list"), lines)?;
        let configuration = directory.join("apt.conf");
        let own = directory.display();
        fs::write(
            &configuration,
            format!(
                "Dir::State \"{own}/state\";\n\
                 Dir::State::status \"{own}/status\";\n\
                 Dir::Cache \"{own}/cache\";\n\
                 Dir::Etc::sourcelist \"{own}/sources.list\";\n\
                 Dir::Etc::sourceparts \"{own}/none\";\n\
                 Dir::Etc::preferences \"/dev/null\";\n\
                 Dir::Etc::preferencesparts \"{own}/none\";\n\
                 APT::Architecture \"amd64\";\n\
                 APT::Install-Recommends \"false\";\n\
                 APT::Keep-Downloaded-Packages \"true\";\n\
                 APT::Sandbox::User \"root\";\n\
                 Acquire::Languages \"none\";\n\
                 #clear Acquire::IndexTargets::deb::DEP-11;\n\
                 #clear APT::Update::Post-Invoke;\n\
                 #clear APT::Update::Post-Invoke-Success;\n\
                 #clear DPkg::Post-Invoke;\n"
            ),
        )?;
        let apt = Self {
            configuration,
            archives,
        };
        process::output(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    /// What [`fetch`](Self::fetch) would download.
    pub fn plan(&self, suite: &str, packages: &[&str]) -> Result<Plan> {
        let list = self.install(suite, packages, "--print-uris")?;
        let sizes = list
            .lines()
            .filter_map(|line| line.split(' ').nth(2)?.parse().ok());
        let sizes: Vec<u64> = sizes.collect();
        Ok(Plan {
            packages: sizes.len(),
            bytes: sizes.iter().sum(),
        })
    }

    /// Downloads packages with all they depend on and unpacks them into `root`, which is there
    /// only if everything is.
    pub fn fetch(&self, suite: &str, packages: &[&str], root: &Path) -> Result<()> {
        self.install(suite, packages, "--download-only")?;
        self.unpack(root)
    }

    /// Downloads one package alone and unpacks it into `root`.
    pub fn fetch_alone(&self, package: &str, root: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        process::output(
            download
                .current_dir(&self.archives)
                .args(["-qq", "download", package]),
        )?;
        self.unpack(root)
    }

    /// The packages that a package depends on.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = process::text(self.command("apt-cache").args(["depends", package]))?;
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.configuration);
        command
    }

    fn install(&self, suite: &str, packages: &[&str], how: &str) -> Result<String> {
        let mut command = self.command("apt-get");
        process::text(
            command
                .args(["-qq", "-y", how, "-t", suite, "install"])
                .args(packages),
        )
    }

    fn unpack(&self, root: &Path) -> Result<()> {
        let partial = root.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        for entry in fs::read_dir(&self.archives)? {
            let file = entry?.path();
            if file.extension().is_some_and(|e| e == "deb") {
                process::output(Command::new("dpkg").arg("-x").arg(&file).arg(&partial))?;
                fs::remove_file(&file)?;
            }
        }
        fs::rename(&partial, root).with_context(|| root.display().to_string())
    }
}

/// Where this machine gets its packages from.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    address: String,
    /// `[signed-by=… …]` or empty.
    options: String,
}

impl Source {
    fn line(&self, suite: &str) -> String {
        format!("deb {} {} {suite} main\n", self.options, self.address)
    }
}

fn machine_source() -> Result<Source> {
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let field = |key: &str| {
        let value = release
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    if field("ID") != "debian" {
        bail!("this machine is not Debian: install QEMU 11 with vfio-user-pci by hand");
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let suite = field("VERSION_CODENAME");
    let find = |file: &PathBuf| find_source(&fs::read_to_string(file).ok()?, &suite);
    files
        .iter()
        .find_map(find)
        .context("apt's configuration names no source of Debian packages")
}

/// The first source of the suite itself, in either of apt's two formats.
fn find_source(text: &str, suite: &str) -> Option<Source> {
    text.lines()
        .find_map(|line| one_line(line, suite))
        .or_else(|| {
            let stanzas = text.split("\n\n");
            stanzas.filter_map(|stanza| deb822(stanza, suite)).next()
        })
}

fn one_line(line: &str, suite: &str) -> Option<Source> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((options, rest)) => (format!("[{}]", options.trim()), rest),
        None => (String::new(), rest),
    };
    let mut words = rest.split_whitespace();
    let address = words.next()?.to_owned();
    (words.next()? == suite).then_some(Source { address, options })
}

fn deb822(stanza: &str, suite: &str) -> Option<Source> {
    let field = |key: &str| {
        let value = stanza
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        value.unwrap_or_default().trim().to_owned()
    };
    let wanted = field("Types").split(' ').any(|kind| kind == "deb")
        && field("Suites").split(' ').any(|name| name == suite)
        && field("Enabled") != "no";
    let options = [("Signed-By", "signed-by"), ("Trusted", "trusted")].map(|(key, name)| {
        let value = field(key);
        if value.is_empty() {
            value
        } else {
            format!("{name}={value}")
        }
    });
    let options = options.join(" ").trim().to_owned();
    wanted.then(|| Source {
        address: field("URIs")
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned(),
        options: if options.is_empty() {
            options
        } else {
            format!("[{options}]")
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let new = "Types: deb\nURIs: http://m/security\nSuites: x-security\n\n\
                   Types: deb\n# note\nURIs: http://m/d http://other\nSuites: x x-updates\n\
                   Signed-By: /k.gpg\n";
        let source = find_source(new, "x").unwrap();
        assert_eq!(
            source.line("y"),
            "deb [signed-by=/k.gpg] http://m/d y main\n"
        );
        let old = "# deb http://no x main\ndeb [trusted=yes] http://m/d x main\n";
        assert_eq!(
            find_source(old, "x").unwrap().line("y"),
            "deb [trusted=yes] http://m/d y main\n"
        );
        assert_eq!(find_source(old, "z"), None);
    }
}
