//! The commands of actions that change init's own state: services, properties, events.

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use nix::unistd::Pid;

use super::commands;
use super::machine::{Blocked, Event, Machine};
use super::services::{self, Running, Stop, Surroundings};
use crate::rc::{Command, Parser, Service};

/// `wait` without a time gives up after this.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

impl Machine {
    /// Sets a property; `ctl.start`, `ctl.stop`, `ctl.restart` control a service.
    pub fn set_property(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "ctl.start" => return self.start(value),
            "ctl.stop" => return self.with_service(value, disable),
            "ctl.restart" => return self.with_service(value, Running::restart),
            _ => {}
        }
        if self.properties.set(name, value)? && self.property_triggers {
            self.events.push_back(Event::Property(name.to_owned()));
        }
        Ok(())
    }

    /// Runs one command.
    pub(super) fn execute(&mut self, command: &Command) -> Result<()> {
        let words = command
            .words
            .iter()
            .map(|word| self.properties.expand(word))
            .collect::<Result<Vec<_>>>()?;
        if let Some(result) = commands::run(&words) {
            return result;
        }
        let argument = |n: usize| words[n].as_str();
        match argument(0) {
            "start" => self.start(argument(1)),
            "stop" => self.with_service(argument(1), disable),
            "restart" if words.len() == 2 => self.with_service(argument(1), Running::restart),
            // restart --only-if-running NAME
            "restart" => self.with_service(argument(2), |service, surroundings| {
                service
                    .pid
                    .map_or(Ok(()), |_| service.restart(surroundings))
            }),
            "enable" => self.with_service(argument(1), |service, _| {
                service.disabled = false;
                Ok(())
            }),
            "class_start" => {
                for name in self.names(|s| s.in_class(argument(1)) && !s.disabled) {
                    self.start(&name)?;
                }
                Ok(())
            }
            "class_stop" | "class_reset" => {
                let why = match argument(0) {
                    "class_stop" => Stop::Disable,
                    _ => Stop::Reset,
                };
                for service in self.services.iter_mut().filter(|s| s.in_class(argument(1))) {
                    service.stop(why);
                }
                Ok(())
            }
            "interface_start" => self.start(&self.service_of_interface(argument(1))?),
            "interface_stop" => {
                self.with_service(&self.service_of_interface(argument(1))?, disable)
            }
            "interface_restart" => {
                self.with_service(&self.service_of_interface(argument(1))?, Running::restart)
            }
            "exec_start" => {
                self.start(argument(1))?;
                let started = self
                    .services
                    .iter()
                    .find(|s| s.definition.name == argument(1));
                if let Some(pid) = started.and_then(|s| s.pid) {
                    self.blocked = Blocked::Process(pid);
                }
                Ok(())
            }
            "exec" => {
                let pid = self.exec(&words[1..])?;
                self.blocked = Blocked::Process(pid);
                Ok(())
            }
            "exec_background" => self.exec(&words[1..]).map(drop),
            "export" => {
                self.surroundings
                    .environment
                    .push((argument(1).to_owned(), argument(2).to_owned()));
                Ok(())
            }
            "setprop" => self.set_property(argument(1), argument(2)),
            "trigger" => {
                self.queue(argument(1));
                Ok(())
            }
            "wait" => {
                let patience = match words.get(2) {
                    Some(seconds) => Duration::from_secs(seconds.parse().context("seconds")?),
                    None => WAIT_TIMEOUT,
                };
                self.blocked = Blocked::File(argument(1).into(), Instant::now() + patience);
                Ok(())
            }
            "wait_for_prop" => {
                self.blocked = Blocked::Property(argument(1).to_owned(), argument(2).to_owned());
                Ok(())
            }
            other => bail!("this init has no command `{other}`"),
        }
    }

    /// `exec [SECLABEL [USER [GROUP…]]] -- PROGRAM [ARG…]`
    pub(super) fn exec(&mut self, words: &[String]) -> Result<Pid> {
        let (options, program) = match words.iter().position(|word| word == "--") {
            Some(n) => (&words[..n], &words[n + 1..]),
            None => (&[][..], words),
        };
        let quoted: Vec<_> = program.iter().map(|word| format!("\"{word}\"")).collect();
        let mut text = format!("service exec {}\n oneshot\n", quoted.join(" "));
        if let Some(label) = options.first().filter(|label| *label != "-") {
            text += &format!(" seclabel {label}\n");
        }
        text += &format!(" user {}\n", options.get(1).map_or("root", String::as_str));
        if options.len() > 2 {
            text += &format!(" group {}\n", options[2..].join(" "));
        }
        let pid = services::spawn(&anonymous(&text)?, &self.surroundings)?;
        let pid = Pid::from_raw(pid as i32);
        self.helpers
            .push((pid, format!("exec {}", program.join(" "))));
        Ok(pid)
    }

    pub(super) fn start(&mut self, name: &str) -> Result<()> {
        self.with_service(name, Running::start)?;
        self.set_property(&format!("init.svc.{name}"), "running")
    }

    fn with_service(
        &mut self,
        name: &str,
        action: impl FnOnce(&mut Running, &Surroundings) -> Result<()>,
    ) -> Result<()> {
        let service = self.services.iter_mut().find(|s| s.definition.name == name);
        action(
            service.with_context(|| format!("no service {name}"))?,
            &self.surroundings,
        )
    }

    fn names(&self, wanted: impl Fn(&Running) -> bool) -> Vec<String> {
        let wanted = self.services.iter().filter(|s| wanted(s));
        wanted.map(|s| s.definition.name.clone()).collect()
    }

    /// The service that declares `aidl/NAME/INSTANCE`.
    fn service_of_interface(&self, interface: &str) -> Result<String> {
        let declares = |s: &&Running| {
            s.definition
                .interfaces
                .iter()
                .any(|(kind, name)| match kind.as_str() {
                    "aidl" => interface == format!("aidl/{name}"),
                    package => interface == format!("{package}/{name}"),
                })
        };
        let found = self.services.iter().find(declares);
        Ok(found
            .with_context(|| format!("no service has {interface}"))?
            .definition
            .name
            .clone())
    }
}

fn disable(service: &mut Running, _: &Surroundings) -> Result<()> {
    service.stop(Stop::Disable);
    Ok(())
}

/// A service that no file defines.
fn anonymous(text: &str) -> Result<Service> {
    let mut parser = Parser::new();
    parser.file("init", text);
    match parser.finish() {
        Ok(script) => script.services.into_iter().next().context("no service"),
        Err(diagnostics) => bail!("{}", diagnostics[0]),
    }
}
