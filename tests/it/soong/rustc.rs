//! Type-checks the Rust modules of Android.bp as Soong builds them: bare rustc, `cfg(soong)`, no
//! build script, no `CARGO_*` in the environment, only the crates that `rustlibs` names, stubs of
//! libbinder_rs and of the AIDL crate.

use super::bp::{self, Module};
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

/// Modules of AOSP, and the crate of each.
const OF_AOSP: [(&str, &str); 10] = [
    ("dev.blockd-rust", "dev_blockd"),
    ("libbinder_rs", "binder"),
    ("libclap", "clap"),
    ("libflate2", "flate2"),
    ("liblog_rust", "log"),
    ("libnix", "nix"),
    ("libquickcheck", "quickcheck"),
    ("libserde_json", "serde_json"),
    ("libsha2", "sha2"),
    ("libtempfile", "tempfile"),
];

/// Names, and the libraries of these names.
type Libraries = BTreeMap<String, PathBuf>;

/// A folder with what the modules are built against.
pub struct Bench {
    dir: PathBuf,
    /// Where rustc is searched.
    path: String,
    /// By module: AOSP's, then ours as they are checked.
    libraries: Libraries,
    shape: Shape,
}

/// What rustc is told of one crate.
struct Job<'a> {
    /// Of the module; its results go to a folder of this name.
    module: &'a str,
    crate_name: &'a str,
    root: &'a Path,
    kind: &'a [&'a str],
    cfgs: &'a [String],
    rustlibs: &'a [String],
}

/// The project.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the project.
///
/// # Errors
/// With its path.
pub fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(project().join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Every module of Android.bp that has Rust in it, in its order.
///
/// # Errors
/// What is not understood of the file.
pub fn rust_modules() -> Result<Vec<Module>, String> {
    const KINDS: [&str; 3] = ["rust_library", "rust_binary", "rust_test"];
    let mut modules = bp::modules(&read("Android.bp")?)?;
    modules.retain(|module| KINDS.contains(&module.kind.as_str()));
    Ok(modules)
}

/// The sources of the AIDL interfaces, path and text.
///
/// # Errors
/// A file that cannot be read.
pub fn aidl_sources() -> Result<Vec<(String, String)>, String> {
    let mut sources = Vec::new();
    let dir = "aidl/dev/blockd";
    for entry in fs::read_dir(project().join(dir)).map_err(|e| format!("{dir}: {e}"))? {
        let name = entry.map_err(|e| e.to_string())?.file_name();
        let path = format!("{dir}/{}", name.to_string_lossy());
        let text = read(&path)?;
        sources.push((path, text));
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
        let of_cargo = built_by_cargo()?;
        let libraries = OF_AOSP
            .iter()
            .filter_map(|(module, name)| Some(((*module).to_owned(), of_cargo.get(*name)?.clone())))
            .collect();
        let mut bench = Bench {
            dir,
            path: std::env::var("PATH").unwrap_or_default(),
            libraries,
            shape,
        };
        let generated = bench.dir.join("dev_blockd.rs");
        fs::write(&generated, stub::generate(&aidl_sources()?)?).map_err(|e| e.to_string())?;
        let mut job = Job {
            module: "libbinder_rs",
            crate_name: "binder",
            root: &project().join("tests/binder-stub/src/lib.rs"),
            kind: &["--crate-type", "lib"],
            cfgs: &[],
            rustlibs: &[],
        };
        bench.rustc(&job)?;
        job.module = "dev.blockd-rust";
        job.crate_name = "dev_blockd";
        job.root = &generated;
        let rustlibs = ["libbinder_rs".to_owned()];
        job.rustlibs = &rustlibs;
        bench.rustc(&job)?;
        Ok(bench)
    }

    /// Type-checks one module, with the sources below `root`.
    ///
    /// # Errors
    /// What is not understood of it; what rustc says.
    pub fn check(&mut self, root: &Path, module: &Module) -> Result<(), String> {
        let (Some(name), [source]) = (module.text("name"), module.list("srcs")) else {
            return Err(format!("a {} without name or root", module.kind));
        };
        let edition = module.text("edition");
        if edition != Some("2021") || module.text("lints") != Some("android") {
            return Err(format!("{name} has other lints or another edition"));
        }
        let kind: &[&str] = match module.kind.as_str() {
            "rust_library" => &["--crate-type", "lib"],
            "rust_binary" => &["--crate-type", "bin"],
            _ => &["--test"],
        };
        self.rustc(&Job {
            module: name,
            crate_name: module.text("crate_name").unwrap_or(name),
            root: &root.join(source),
            kind,
            cfgs: module.list("cfgs"),
            rustlibs: module.list("rustlibs"),
        })
    }

    fn rustc(&mut self, job: &Job<'_>) -> Result<(), String> {
        let dir = self.dir.join(job.module);
        let mut command = Command::new("rustc");
        command
            .env_clear()
            .env("PATH", &self.path)
            .current_dir(&self.dir)
            .args(["--crate-name", job.crate_name, "--edition", "2021"])
            .args(job.kind)
            .args(["--emit", "metadata", "--check-cfg"])
            .arg("cfg(soong, binder_dump_file, blockd_recovery, test)")
            // The lints of `lints: "android"`.
            .args(["-D", "warnings", "-D", "missing-docs"])
            .args(["-D", "unsafe_op_in_unsafe_fn"]);
        command.arg("--out-dir").arg(&dir);
        for cfg in job.cfgs {
            command.args(["--cfg", cfg]);
        }
        if matches!(self.shape, Shape::File) {
            command.args(["--cfg", "binder_dump_file"]);
        }
        // What is reached through another crate only.
        for folder in self.libraries.values().filter_map(|path| path.parent()) {
            command.args(["-L", &format!("dependency={}", folder.display())]);
        }
        for module in job.rustlibs {
            let path = self
                .libraries
                .get(module)
                .ok_or_else(|| format!("{}: where is {module}?", job.module))?;
            let name = match OF_AOSP.iter().find(|(aosp, _)| aosp == module) {
                Some((_, name)) => (*name).to_owned(),
                None => crate_of(path),
            };
            command.args(["--extern", &format!("{name}={}", path.display())]);
        }
        let output = command
            .arg(job.root)
            .output()
            .map_err(|e| format!("rustc: {e}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {text}", job.module));
        }
        let library = dir.join(format!("lib{}.rmeta", job.crate_name));
        self.libraries.insert(job.module.to_owned(), library);
        Ok(())
    }
}

/// `blockd` of `…/libblockd.rmeta`.
fn crate_of(library: &Path) -> String {
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    stem.trim_start_matches("lib").to_owned()
}

/// The libraries that the product's own tests are built with, by crate: the command by which a run
/// of all tests has built them, so that nothing is built twice. Cargo is asked once.
fn built_by_cargo() -> Result<&'static Libraries, String> {
    static LIBRARIES: LazyLock<Result<Libraries, String>> = LazyLock::new(ask_cargo);
    LIBRARIES.as_ref().map_err(Clone::clone)
}

fn ask_cargo() -> Result<Libraries, String> {
    let output = Command::new("cargo")
        .current_dir(project())
        .args(["test", "--no-run", "--quiet", "--package", "blockd"])
        .args(["--lib", "--message-format", "json-render-diagnostics"])
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut libraries = Libraries::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let library = message["filenames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .find(|file| file.ends_with(".rlib"));
        if let (Some(name), Some(library)) = (message["target"]["name"].as_str(), library) {
            libraries.insert(name.replace('-', "_"), PathBuf::from(library));
        }
    }
    Ok(libraries)
}
