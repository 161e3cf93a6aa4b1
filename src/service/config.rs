//! The command line of blockd.

use crate::service::access::Interface;
use std::path::{Path, PathBuf};

/// Printed by `--help`.
pub const USAGE: &str = "\
Usage: blockd [--serve binder|unix:PATH] [--interfaces LIST] [--allow-uid UID]… [--allow-domain TYPE]…
              [--state DIR] [--apex-root DIR]

Serves block device jobs. Started by init; see blockctl for the client.

  --serve binder       register with the service manager (default where a binder node exists)
  --serve unix:PATH    serve the same interfaces over a Unix socket, mode 0600
  --interfaces LIST    comma-separated of reset, images, diagnostics (default: all)
  --allow-uid UID      also let this uid call
  --allow-domain TYPE  also let this SELinux domain call
  --state DIR          keep the last reset's report in DIR/last-reset.json, so that it outlives blockd;
                       DIR exists and is for blockd alone
  --apex-root DIR      mount APEXes below DIR (default: /apex); it exists and only root may write it
  -h, --help           print this
  -V, --version        print the version

Exit status: 1 for an error in these options; otherwise blockd runs until it is killed.
";

/// Where the service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Kernel binder, by the service manager.
    Binder,
    /// A Unix socket.
    Unix(PathBuf),
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where.
    pub endpoint: Endpoint,
    /// What.
    pub interfaces: Vec<Interface>,
    /// Uids besides those of each interface.
    pub allow_uids: Vec<u32>,
    /// SELinux domains besides those of each interface.
    pub allow_domains: Vec<String>,
    /// The folder that keeps the last report.
    pub state: Option<PathBuf>,
    /// The folder that APEXes are mounted below; `None` = the usual one.
    pub apex_root: Option<PathBuf>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve.
    Serve(Config),
    /// Print [`USAGE`].
    Help,
    /// Print the version.
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// A line that names the argument and what would be right.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Action, String> {
    let mut endpoint = None;
    let mut interfaces = Interface::ALL.to_vec();
    let mut allow_uids = Vec::new();
    let mut allow_domains = Vec::new();
    let mut state = None;
    let mut apex_root = None;
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, mut inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value = || {
            inline
                .take()
                .or_else(|| arguments.next())
                .ok_or_else(|| format!("{name} needs a value; try --help"))
        };
        match name.as_str() {
            "-h" | "--help" => return Ok(Action::Help),
            "-V" | "--version" => return Ok(Action::Version),
            "--serve" => endpoint = Some(parse_endpoint(&value()?)?),
            "--interfaces" => interfaces = parse_interfaces(&value()?)?,
            "--allow-uid" => {
                let text = value()?;
                let uid = text
                    .parse()
                    .map_err(|_| format!("--allow-uid {text}: not a number"))?;
                allow_uids.push(uid);
            }
            "--allow-domain" => allow_domains.push(value()?),
            "--state" => state = Some(absolute(&name, value()?)?),
            "--apex-root" => apex_root = Some(absolute(&name, value()?)?),
            _ => return Err(format!("unknown argument {name}; try --help")),
        }
    }
    let endpoint =
        match endpoint {
            Some(endpoint) => endpoint,
            None if has_binder_node() => Endpoint::Binder,
            None => return Err(
                "this machine has no binder node (/dev/binderfs/binder, /dev/binder): say --serve \
                 binder to wait for one, or --serve unix:PATH"
                    .to_owned(),
            ),
        };
    Ok(Action::Serve(Config {
        endpoint,
        interfaces,
        allow_uids,
        allow_domains,
        state,
        apex_root,
    }))
}

fn absolute(name: &str, path: String) -> Result<PathBuf, String> {
    match path.starts_with('/') {
        true => Ok(PathBuf::from(path)),
        false => Err(format!("{name} {path}: the path must be absolute")),
    }
}

/// True where a binder node exists.
pub fn has_binder_node() -> bool {
    ["/dev/binderfs/binder", "/dev/binder"]
        .iter()
        .any(|node| Path::new(node).exists())
}

/// Reads `binder` or `unix:PATH`.
///
/// # Errors
/// A line that says what would be right.
pub fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    match text.split_once(':') {
        None if text == "binder" => Ok(Endpoint::Binder),
        Some(("unix", path)) if path.starts_with('/') => Ok(Endpoint::Unix(PathBuf::from(path))),
        Some(("unix", path)) => Err(format!("unix:{path}: the path must be absolute")),
        _ => Err(format!("`{text}`: use binder or unix:PATH")),
    }
}

fn parse_interfaces(text: &str) -> Result<Vec<Interface>, String> {
    text.split(',')
        .map(|word| {
            Interface::ALL
                .into_iter()
                .find(|interface| interface.word() == word)
                .ok_or_else(|| {
                    format!("--interfaces {word}: use reset, images, diagnostics, with commas")
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(line: &str) -> Result<Action, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read() {
        let line = "--serve unix:/run/b --interfaces=reset,images --allow-uid 7 --allow-domain x \
                    --state /var/b --apex-root /run/apex";
        assert_eq!(
            config(line),
            Ok(Action::Serve(Config {
                endpoint: Endpoint::Unix(PathBuf::from("/run/b")),
                interfaces: vec![Interface::Reset, Interface::Images],
                allow_uids: vec![7],
                allow_domains: vec!["x".to_owned()],
                state: Some(PathBuf::from("/var/b")),
                apex_root: Some(PathBuf::from("/run/apex")),
            }))
        );
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, word) in [
            ("--serve", "--serve"),
            ("--serve tcp:1", "tcp:1"),
            ("--serve unix:relative", "absolute"),
            ("--serve binder --interfaces reset,all", "all"),
            ("--serve binder --allow-uid root", "root"),
            ("--serve binder --state here", "absolute"),
            ("--serve binder --apex-root here", "absolute"),
            ("--frobnicate", "--frobnicate"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
