//! The property store and its socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{bail, Context, Result};

/// Where init listens: one request a connection, `set NAME VALUE` or `get NAME`.
pub const SOCKET: &str = "/dev/socket/property_service";
/// A client that says nothing must not stop init.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);

/// All properties.
#[derive(Debug, Default)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// The value; a property that was never set is empty.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Sets a property. Returns whether the value changed.
    ///
    /// # Errors
    /// A property that begins with `ro.` is set once.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        if name.starts_with("ro.") && self.0.contains_key(name) {
            bail!("property {name} is read-only");
        }
        Ok(self.0.insert(name.to_owned(), value.to_owned()).as_deref() != Some(value))
    }

    /// Replaces `${NAME}` and `${NAME:-DEFAULT}`; `$$` stands for `$`.
    ///
    /// # Errors
    /// A property without value and default, a `$` with nothing sensible after it.
    pub fn expand(&self, text: &str) -> Result<String> {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            result.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                result.push('$');
                rest = after;
                continue;
            }
            let (reference, after) = after
                .strip_prefix('{')
                .and_then(|a| a.split_once('}'))
                .with_context(|| format!("bad property reference in `{text}`"))?;
            let (name, default) = match reference.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (reference, None),
            };
            match (self.get(name), default) {
                ("", Some(default)) => result.push_str(default),
                ("", None) => bail!("property {name} in `{text}` is not set"),
                (value, _) => result.push_str(value),
            }
            rest = after;
        }
        Ok(result + rest)
    }
}

/// What a client asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Set a property.
    Set(String, String),
    /// Read a property.
    Get(String),
}

/// Opens the socket.
pub fn listen() -> Result<UnixListener> {
    let listener = UnixListener::bind(SOCKET).context("property socket")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes the next request, if one waits; the answer goes to the stream.
pub fn accept(listener: &UnixListener) -> Option<(Request, UnixStream)> {
    let (stream, _) = listener.accept().ok()?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).ok()?;
    let mut words = line.trim_end_matches('\n').splitn(3, ' ');
    let request = match (words.next()?, words.next()?, words.next()) {
        ("set", name, value) => Request::Set(name.to_owned(), value.unwrap_or("").to_owned()),
        ("get", name, None) => Request::Get(name.to_owned()),
        _ => return None,
    };
    Some((request, stream))
}

/// The client's side: sends one request, returns init's answer.
///
/// # Errors
/// No init, or init refused.
pub fn ask(request: &Request) -> Result<String> {
    let mut stream = UnixStream::connect(SOCKET).context("property socket")?;
    match request {
        Request::Set(name, value) => writeln!(stream, "set {name} {value}")?,
        Request::Get(name) => writeln!(stream, "get {name}")?,
    }
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end_matches('\n').split_once(' ') {
        Some(("ok", value)) => Ok(value.to_owned()),
        Some(("error", message)) => bail!("{message}"),
        _ => bail!("init gave no answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_expand() {
        let mut properties = Properties::default();
        properties.set("a.b", "x").unwrap();
        assert_eq!(properties.expand("1${a.b}2$$3${c:-d}").unwrap(), "1x2$3d");
        assert!(properties.expand("${c}").is_err());
        assert!(properties.expand("$c").is_err());
        assert!(properties.set("ro.a", "1").unwrap());
        assert!(properties.set("ro.a", "2").is_err());
        assert!(!properties.set("a.b", "x").unwrap());
    }
}
