//! Type-checks the product as Soong builds it: bare rustc, `cfg(soong)`, no build script, no
//! `CARGO_*` in the environment, one root per module, stubs of libbinder_rs and of the AIDL crate.

use super::stub;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Which libbinder_rs.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Android 15 and 16: a dump goes to `&mut dyn Write`.
    Writer,
    /// Android 13 and 14: a dump goes to `&File`.
    File,
}

/// A root module of Android.bp.
pub struct Module {
    name: &'static str,
    root: &'static str,
    kind: &'static [&'static str],
    /// The crates that its `rustlibs` name, besides blockd, binder and dev_blockd.
    crates: &'static [&'static str],
    /// Built against libblockd.
    on_library: bool,
}

const LIBRARY: Module = Module {
    name: "blockd",
    root: "src/lib.rs",
    kind: &["--crate-type", "lib"],
    crates: &["log", "nix"],
    on_library: false,
};

/// Everything that Android.bp builds from src; the library first.
pub const MODULES: [Module; 4] = [
    LIBRARY,
    Module {
        name: "blockd_bin",
        root: "src/main.rs",
        kind: &["--crate-type", "bin"],
        crates: &["log"],
        on_library: true,
    },
    Module {
        name: "blockctl",
        root: "src/bin/blockctl/main.rs",
        kind: &["--crate-type", "bin"],
        crates: &["clap", "log", "nix", "serde_json"],
        on_library: true,
    },
    Module {
        name: "blockd_test",
        root: "src/lib.rs",
        kind: &["--test"],
        crates: &["apexgen", "log", "nix", "quickcheck", "tempfile"],
        on_library: false,
    },
];

/// Names, and the libraries of these names.
type Crates = BTreeMap<String, PathBuf>;

/// A folder with what the modules are built against.
pub struct Bench {
    dir: PathBuf,
    /// Where rustc is searched.
    path: String,
    /// Crates that Cargo has built.
    crates: &'static Crates,
    shape: Shape,
}

/// The project.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of the AIDL interfaces, path and text.
///
/// # Errors
/// A file that cannot be read.
pub fn aidl_sources() -> Result<Vec<(String, String)>, String> {
    let mut sources = Vec::new();
    let dir = project().join("aidl/dev/blockd");
    for entry in fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        sources.push((path.display().to_string(), text));
    }
    Ok(sources)
}

impl Bench {
    /// Builds both stubs in a folder of that name below target.
    ///
    /// # Errors
    /// What Cargo, the generator or rustc says.
    pub fn new(name: &str, shape: Shape) -> Result<Bench, String> {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("soong")
            .join(name);
        // Nothing of an earlier run may be found instead of a new one.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let bench = Bench {
            dir,
            path: std::env::var("PATH").unwrap_or_default(),
            crates: built_by_cargo()?,
            shape,
        };
        let generated = bench.dir.join("dev_blockd.rs");
        fs::write(&generated, stub::generate(&aidl_sources()?)?).map_err(|e| e.to_string())?;
        let library = ["--crate-type", "lib"];
        let stub = project().join("tests/binder-stub/src/lib.rs");
        bench.rustc("binder", &stub, &library, &[])?;
        bench.rustc("dev_blockd", &generated, &library, &["binder"])?;
        Ok(bench)
    }

    /// Type-checks one module of the sources below `root`.
    ///
    /// # Errors
    /// What rustc says.
    pub fn check(&self, root: &Path, module: &Module) -> Result<(), String> {
        let mut crates = module.crates.to_vec();
        crates.extend(["binder", "dev_blockd"]);
        if module.on_library {
            crates.push("blockd");
        }
        self.rustc(module.name, &root.join(module.root), module.kind, &crates)
    }

    fn rustc(&self, name: &str, root: &Path, kind: &[&str], crates: &[&str]) -> Result<(), String> {
        let mut command = Command::new("rustc");
        command
            .env_clear()
            .env("PATH", &self.path)
            .current_dir(&self.dir)
            .args(["--crate-name", name, "--edition", "2021"])
            .args(kind)
            .args(["--emit", "metadata", "--cfg", "soong"])
            .args([
                "--check-cfg",
                "cfg(soong, binder_dump_file, blockd_recovery, test)",
            ])
            // The lints of `lints: "android"`, which are the default.
            .args(["-D", "warnings", "-D", "missing-docs"])
            .args(["-D", "unsafe_op_in_unsafe_fn"])
            .arg("--out-dir")
            .arg(&self.dir);
        if matches!(self.shape, Shape::File) {
            command.args(["--cfg", "binder_dump_file"]);
        }
        for name in crates {
            // Our own are in the folder already.
            let path = match self.crates.get(*name) {
                Some(path) => path.clone(),
                None => self.dir.join(format!("lib{name}.rmeta")),
            };
            let of_crate = format!("{name}={}", path.display());
            command.args(["--extern", &of_crate]);
            if let Some(dir) = path.parent() {
                command.args(["-L", &format!("dependency={}", dir.display())]);
            }
        }
        let output = command
            .arg(root)
            .output()
            .map_err(|e| format!("rustc: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The libraries that the product's own tests are built with: the command by which a run of all
/// tests has built them, so that nothing is built twice. Cargo is asked once.
fn built_by_cargo() -> Result<&'static Crates, String> {
    static CRATES: LazyLock<Result<Crates, String>> = LazyLock::new(ask_cargo);
    CRATES.as_ref().map_err(Clone::clone)
}

fn ask_cargo() -> Result<Crates, String> {
    let output = Command::new("cargo")
        .current_dir(project())
        .args([
            "test",
            "--no-run",
            "--quiet",
            "--package",
            "blockd",
            "--lib",
        ])
        .args(["--message-format", "json"])
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut crates = Crates::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let Some(name) = message["target"]["name"].as_str() else {
            continue;
        };
        let library = message["filenames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .find(|file| file.ends_with(".rlib"));
        // Ours is what is to be checked, not what Cargo has made of it.
        if let (Some(library), false) = (library, name == "blockd") {
            crates.insert(name.replace('-', "_"), PathBuf::from(library));
        }
    }
    Ok(crates)
}
