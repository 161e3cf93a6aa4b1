//! Android's init language: services, actions, their options and commands.
//!
//! The parser is strict: whatever AOSP's init would refuse, and every word that it does not
//! know, is a [`Diagnostic`]. Grammar: system/core/init/README.md and the parsers beside it.

mod action;
mod capabilities;
mod ids;
mod lexer;
mod options;
mod service;

use std::fmt;

pub use action::{Action, Command, COMMANDS};
pub use capabilities::{capability, CapabilitySet};
pub use ids::id;
pub use lexer::{lines, Line};
pub use options::OPTIONS;
pub use service::{
    Critical, FileOption, IoClass, IoPriority, Rlimit, Service, Socket, SocketKind,
    DEFAULT_RESTART_PERIOD,
};

/// Where something stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File name as given to [`Parser::file`].
    pub file: String,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One thing that init would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where it stands.
    pub at: Place,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// All that a set of files defines, in the order of definition.
#[derive(Debug, Default)]
pub struct Script {
    /// Services; names are unique.
    pub services: Vec<Service>,
    /// Actions (`on …` sections).
    pub actions: Vec<Action>,
}

/// Parses files one after the other into one [`Script`].
#[derive(Debug, Default)]
pub struct Parser {
    script: Script,
    diagnostics: Vec<Diagnostic>,
}

enum Section {
    None,
    Service(Box<Service>),
    Action(Action),
    /// The header was refused: its lines are skipped so that one mistake is told once.
    Skipped,
}

impl Parser {
    /// A parser without any files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the text of one file; `name` is used in diagnostics.
    pub fn file(&mut self, name: &str, text: &str) -> &mut Self {
        let mut section = Section::None;
        for line in lines(text) {
            let at = Place {
                file: name.to_owned(),
                line: line.number,
            };
            let words = match line.words {
                Ok(words) => words,
                Err(message) => {
                    self.error(&at, message);
                    continue;
                }
            };
            match words[0].as_str() {
                "service" => {
                    self.close(section);
                    section = match Service::header(&words, &at) {
                        Ok(service) => Section::Service(Box::new(service)),
                        Err(message) => self.skip(&at, message),
                    };
                }
                "on" => {
                    self.close(section);
                    section = match Action::header(&words, &at) {
                        Ok(action) => Section::Action(action),
                        Err(message) => self.skip(&at, message),
                    };
                }
                "import" => {
                    self.close(section);
                    section = self.skip(&at, "import is not supported here".to_owned());
                }
                _ => {
                    let result = match &mut section {
                        Section::Service(service) => options::apply(service, &words, &at),
                        Section::Action(action) => {
                            Command::parse(&words, &at).map(|command| action.commands.push(command))
                        }
                        Section::Skipped => Ok(()),
                        Section::None => Err(format!("`{}` outside any section", words[0])),
                    };
                    if let Err(message) = result {
                        self.error(&at, message);
                    }
                }
            }
        }
        self.close(section);
        self
    }

    /// The script, or everything that was refused.
    ///
    /// # Errors
    /// All diagnostics of all files, in the order of the lines.
    pub fn finish(self) -> Result<Script, Vec<Diagnostic>> {
        if self.diagnostics.is_empty() {
            Ok(self.script)
        } else {
            Err(self.diagnostics)
        }
    }

    fn error(&mut self, at: &Place, message: String) {
        self.diagnostics.push(Diagnostic {
            at: at.clone(),
            message,
        });
    }

    fn skip(&mut self, at: &Place, message: String) -> Section {
        self.error(at, message);
        Section::Skipped
    }

    fn close(&mut self, section: Section) {
        match section {
            Section::None | Section::Skipped => {}
            // Init drops actions without commands silently.
            Section::Action(action) => self.script.actions.push(action),
            Section::Service(service) => self.add(*service),
        }
    }

    fn add(&mut self, service: Service) {
        for message in service.check() {
            self.error(&service.at.clone(), message);
        }
        let taken = self.script.services.iter().find_map(|other| {
            let shared = other
                .interfaces
                .iter()
                .find(|i| service.interfaces.contains(i));
            shared.filter(|_| other.name != service.name).map(|i| {
                format!(
                    "interface {} {} is already declared by {}",
                    i.0, i.1, other.name
                )
            })
        });
        if let Some(message) = taken {
            self.error(&service.at.clone(), message);
        }
        match self
            .script
            .services
            .iter_mut()
            .find(|s| s.name == service.name)
        {
            Some(old) if service.overrides => *old = service,
            Some(old) => {
                let message = format!("service {} is already defined at {}", old.name, old.at);
                self.error(&service.at.clone(), message);
            }
            None => self.script.services.push(service),
        }
    }
}

#[cfg(test)]
mod tests;
