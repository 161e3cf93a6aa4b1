//! The options of a service: how many words each takes and what they mean.

use std::time::Duration;

use super::{
    capability, id, CapabilitySet, Command, Critical, FileOption, IoClass, IoPriority, Place,
    Rlimit, Service, Socket, SocketKind,
};

/// No upper bound on the number of arguments.
const ANY: usize = usize::MAX;

/// Every option of init: name, least and greatest number of arguments (service_parser.cpp).
pub const OPTIONS: &[(&str, usize, usize)] = &[
    ("capabilities", 0, ANY),
    ("class", 1, ANY),
    ("console", 0, 1),
    ("critical", 0, 2),
    ("disabled", 0, 0),
    ("enter_namespace", 2, 2),
    ("file", 2, 2),
    ("gentle_kill", 0, 0),
    // NGROUPS_MAX of bionic + the primary group
    ("group", 1, 33),
    ("interface", 2, 2),
    ("ioprio", 2, 2),
    ("memcg.limit_in_bytes", 1, 1),
    ("memcg.limit_percent", 1, 1),
    ("memcg.limit_property", 1, 1),
    ("memcg.soft_limit_in_bytes", 1, 1),
    ("memcg.swappiness", 1, 1),
    ("namespace", 1, 2),
    ("oneshot", 0, 0),
    ("onrestart", 1, ANY),
    ("oom_score_adjust", 1, 1),
    ("override", 0, 0),
    ("priority", 1, 1),
    ("reboot_on_failure", 1, 1),
    ("restart_period", 1, 1),
    ("rlimit", 3, 3),
    ("seclabel", 1, 1),
    ("setenv", 2, 2),
    ("shared_kallsyms", 0, 0),
    ("shutdown", 1, 1),
    ("sigstop", 0, 0),
    ("socket", 3, 6),
    ("stdio_to_kmsg", 0, 0),
    ("task_profiles", 1, ANY),
    ("timeout_period", 1, 1),
    ("updatable", 0, 0),
    ("user", 1, 1),
    ("writepid", 1, ANY),
];

/// RLIMIT_ names in the order of their numbers (asm-generic/resource.h).
const RLIMITS: &[&str] = &[
    "cpu",
    "fsize",
    "data",
    "stack",
    "core",
    "rss",
    "nproc",
    "nofile",
    "memlock",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

/// Checks the number of a word's arguments against a table.
pub(super) fn arity(
    table: &[(&str, usize, usize)],
    kind: &str,
    words: &[String],
) -> Result<(), String> {
    let name = &words[0];
    let Some((_, least, most)) = table.iter().find(|(known, _, _)| known == name) else {
        return Err(format!("unknown {kind} `{name}`"));
    };
    let given = words.len() - 1;
    if given < *least || given > *most {
        let most = if *most == ANY {
            "…".to_owned()
        } else {
            most.to_string()
        };
        return Err(format!(
            "{kind} `{name}` takes {least} to {most} arguments, not {given}"
        ));
    }
    Ok(())
}

/// Applies one option line to a service.
pub(super) fn apply(service: &mut Service, words: &[String], at: &Place) -> Result<(), String> {
    arity(OPTIONS, "option", words)?;
    let arguments = &words[1..];
    let first = arguments.first().map_or("", String::as_str);
    match words[0].as_str() {
        "capabilities" => {
            let mut set = CapabilitySet::default();
            for name in arguments {
                set = set.with(capability(name).ok_or(format!("unknown capability `{name}`"))?);
            }
            service.capabilities = Some(set);
        }
        "class" => service.classes = arguments.to_vec(),
        "critical" => service.critical = Some(critical(arguments)?),
        "disabled" => service.disabled = true,
        "file" => service.files.push(file(arguments)?),
        "group" => {
            service.group = Some(group(first)?);
            service.supplementary_groups = arguments[1..]
                .iter()
                .map(|name| group(name))
                .collect::<Result<_, _>>()?;
        }
        "interface" => {
            let declared = (arguments[0].clone(), arguments[1].clone());
            if declared.0 == "aidl" && !declared.1.contains('/') {
                return Err(format!("`{}` is not NAME/INSTANCE", declared.1));
            }
            if service.interfaces.contains(&declared) {
                return Err(format!("interface {} is declared twice", declared.1));
            }
            service.interfaces.push(declared);
        }
        "ioprio" => service.ioprio = Some(ioprio(arguments)?),
        "oneshot" => service.oneshot = true,
        "onrestart" => service.onrestart.push(Command::parse(arguments, at)?),
        "oom_score_adjust" => {
            service.oom_score_adjust = Some(number(first, -1000, 1000)? as i32);
        }
        "override" => service.overrides = true,
        "priority" => service.priority = Some(number(first, -20, 19)? as i32),
        "reboot_on_failure" => {
            if !first.starts_with("shutdown") && !first.starts_with("reboot") {
                return Err(format!("`{first}` is neither shutdown… nor reboot…"));
            }
            unapplied(service, words, at);
        }
        "restart_period" => service.restart_period = seconds(first, 1)?,
        "rlimit" => service.rlimits.push(rlimit(arguments)?),
        "seclabel" => service.seclabel = Some(first.to_owned()),
        "setenv" => service
            .environment
            .push((arguments[0].clone(), arguments[1].clone())),
        "shutdown" if first == "critical" => service.shutdown_critical = true,
        "shutdown" => return Err(format!("shutdown `{first}` is not `critical`")),
        "socket" => service.sockets.push(socket(arguments)?),
        "stdio_to_kmsg" => service.stdio_to_kmsg = true,
        "task_profiles" => service.task_profiles = arguments.to_vec(),
        "timeout_period" => service.timeout_period = Some(seconds(first, 1)?),
        "user" => service.user = Some(id(first).ok_or(format!("unknown user `{first}`"))?),
        "writepid" => service.writepid = arguments.to_vec(),
        _ => unapplied(service, words, at),
    }
    Ok(())
}

fn unapplied(service: &mut Service, words: &[String], at: &Place) {
    service.unapplied.push((at.clone(), words.join(" ")));
}

fn number(text: &str, least: i64, most: i64) -> Result<i64, String> {
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!("`{text}` is no number from {least} to {most}")),
    }
}

fn seconds(text: &str, least: i64) -> Result<Duration, String> {
    Ok(Duration::from_secs(
        number(text, least, i64::from(i32::MAX))? as u64,
    ))
}

fn group(name: &str) -> Result<u32, String> {
    id(name).ok_or(format!("unknown group `{name}`"))
}

fn critical(arguments: &[String]) -> Result<Critical, String> {
    let mut result = Critical {
        window_minutes: 4,
        target: "bootloader".to_owned(),
    };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("window", minutes)) if minutes.starts_with("${") => {}
            Some(("window", minutes)) => {
                result.window_minutes = number(minutes, 1, i64::from(i32::MAX))? as u32;
            }
            Some(("target", target)) => result.target = target.to_owned(),
            _ => return Err(format!("`{argument}` is neither window=… nor target=…")),
        }
    }
    Ok(result)
}

fn file(arguments: &[String]) -> Result<FileOption, String> {
    let path = arguments[0].clone();
    let (read, write) = match arguments[1].as_str() {
        "r" => (true, false),
        "w" => (false, true),
        "rw" => (true, true),
        other => return Err(format!("file type `{other}` is not r, w or rw")),
    };
    if !path.starts_with('/') || path.contains("../") {
        return Err(format!("`{path}` is no absolute path"));
    }
    Ok(FileOption { path, read, write })
}

fn ioprio(arguments: &[String]) -> Result<IoPriority, String> {
    let class = match arguments[0].as_str() {
        "rt" => IoClass::RealTime,
        "be" => IoClass::BestEffort,
        "idle" => IoClass::Idle,
        other => return Err(format!("ioprio `{other}` is not rt, be or idle")),
    };
    Ok(IoPriority {
        class,
        level: number(&arguments[1], 0, 7)? as u8,
    })
}

/// `RESOURCE SOFT HARD`, of the option `rlimit` and the command `setrlimit`.
pub(super) fn rlimit(arguments: &[String]) -> Result<Rlimit, String> {
    let name = arguments[0].to_ascii_lowercase();
    let name = name
        .strip_prefix("rlimit_")
        .or(name.strip_prefix("rlim_"))
        .unwrap_or(&name);
    let resource = match RLIMITS.iter().position(|known| *known == name) {
        Some(index) => index as i32,
        None => number(name, 0, RLIMITS.len() as i64 - 1)? as i32,
    };
    let limit = |text: &str| match text {
        "unlimited" | "-1" => Ok(u64::MAX),
        _ => text.parse().map_err(|_| format!("`{text}` is no limit")),
    };
    Ok(Rlimit {
        resource,
        soft: limit(&arguments[1])?,
        hard: limit(&arguments[2])?,
    })
}

fn socket(arguments: &[String]) -> Result<Socket, String> {
    let mut kind = arguments[1].split('+');
    let word = kind.next().unwrap_or_default();
    let mut result = Socket {
        name: arguments[0].clone(),
        kind: match word {
            "stream" => SocketKind::Stream,
            "dgram" => SocketKind::Datagram,
            "seqpacket" => SocketKind::SequencedPacket,
            other => {
                return Err(format!(
                    "socket type `{other}` is not stream, dgram, seqpacket"
                ))
            }
        },
        passcred: false,
        listen: false,
        mode: u32::from_str_radix(&arguments[2], 8)
            .map_err(|_| format!("`{}` is no octal mode", arguments[2]))?,
        uid: 0,
        gid: 0,
        label: arguments.get(5).cloned(),
    };
    for flag in kind {
        match flag {
            "passcred" => result.passcred = true,
            "listen" => result.listen = true,
            other => return Err(format!("unknown socket flag `{other}`")),
        }
    }
    if let Some(user) = arguments.get(3) {
        result.uid = id(user).ok_or(format!("unknown user `{user}`"))?;
    }
    if let Some(name) = arguments.get(4) {
        result.gid = group(name)?;
    }
    Ok(result)
}
