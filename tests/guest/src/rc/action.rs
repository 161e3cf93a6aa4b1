//! An `on` section as a value: its trigger and its commands.

use super::options::arity;
use super::Place;

/// No upper bound on the number of arguments.
const ANY: usize = usize::MAX;

/// The commands known here: name, least and greatest number of arguments (builtins.cpp).
pub const COMMANDS: &[(&str, usize, usize)] = &[
    ("chmod", 2, 2),
    ("chown", 2, 3),
    ("class_reset", 1, 1),
    ("class_start", 1, 1),
    ("class_stop", 1, 1),
    ("copy", 2, 2),
    ("enable", 1, 1),
    ("exec", 1, ANY),
    ("exec_background", 1, ANY),
    ("exec_start", 1, 1),
    ("export", 2, 2),
    ("insmod", 1, ANY),
    ("interface_restart", 1, 1),
    ("interface_start", 1, 1),
    ("interface_stop", 1, 1),
    ("loglevel", 1, 1),
    ("mkdir", 1, 6),
    ("mount", 3, ANY),
    ("restart", 1, 2),
    ("restorecon", 1, ANY),
    ("rm", 1, 1),
    ("rmdir", 1, 1),
    ("setprop", 2, 2),
    ("setrlimit", 3, 3),
    ("start", 1, 1),
    ("stop", 1, 1),
    ("symlink", 2, 2),
    ("trigger", 1, 1),
    ("umount", 1, 1),
    ("wait", 1, 2),
    ("wait_for_prop", 2, 2),
    ("write", 2, 2),
];

/// One command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command and its arguments, before properties are expanded.
    pub words: Vec<String>,
    /// Where it stands.
    pub at: Place,
}

impl Command {
    /// Parses a command line (not empty).
    pub(super) fn parse(words: &[String], at: &Place) -> Result<Self, String> {
        arity(COMMANDS, "command", words)?;
        if matches!(words[0].as_str(), "exec" | "exec_background") {
            let separator = words.iter().position(|word| word == "--");
            let program = separator.map_or(words.get(1), |n| words.get(n + 1));
            if !program.is_some_and(|path| path.starts_with('/')) {
                return Err(format!("`{}` names no program by absolute path", words[0]));
            }
        }
        Ok(Self {
            words: words.to_vec(),
            at: at.clone(),
        })
    }
}

/// An action.
#[derive(Clone, Debug)]
pub struct Action {
    /// The event, if the trigger has one.
    pub event: Option<String>,
    /// Properties that must have these values (`*` = any value but empty).
    pub properties: Vec<(String, String)>,
    /// What to do, in order.
    pub commands: Vec<Command>,
    /// Where its header stands.
    pub at: Place,
}

impl Action {
    /// Parses `on EVENT [&& property:NAME=VALUE …]`.
    pub(super) fn header(words: &[String], at: &Place) -> Result<Self, String> {
        let mut action = Self {
            event: None,
            properties: Vec::new(),
            commands: Vec::new(),
            at: at.clone(),
        };
        if words.len() < 2 {
            return Err("an action needs a trigger".to_owned());
        }
        for (index, word) in words[1..].iter().enumerate() {
            if index % 2 == 1 {
                if word != "&&" {
                    return Err(format!("`{word}` stands where && should"));
                }
            } else if let Some(condition) = word.strip_prefix("property:") {
                let Some((name, value)) = condition.split_once('=') else {
                    return Err(format!("`{word}` has no value"));
                };
                if name.is_empty() {
                    return Err(format!("`{word}` names no property"));
                }
                if action.properties.iter().any(|(known, _)| known == name) {
                    return Err(format!("property {name} is named twice"));
                }
                action.properties.push((name.to_owned(), value.to_owned()));
            } else if action.event.is_some() {
                return Err("an action has at most one event".to_owned());
            } else {
                action.event = Some(word.clone());
            }
        }
        if words.len() % 2 == 1 {
            return Err("nothing follows &&".to_owned());
        }
        Ok(action)
    }
}
