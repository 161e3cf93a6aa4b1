//! Where log lines go: logcat on Android, the kernel's log when init started us elsewhere, stderr
//! for people.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::Write;

/// Sends lines of at least `level` to where they belong. A second call changes nothing.
pub fn init(level: LevelFilter) {
    // Recovery has no library of it either.
    #[cfg(all(target_os = "android", not(blockd_recovery)))]
    if !std::path::Path::new("/sbin/recovery").exists()
        && !std::path::Path::new("/system/bin/recovery").exists()
    {
        android_logger::init_once(
            android_logger::Config::default()
                .with_tag("blockd")
                .with_max_level(level),
        );
        return;
    }
    let by_init = nix::unistd::getppid().as_raw() == 1;
    let kmsg = by_init
        .then(|| OpenOptions::new().write(true).open("/dev/kmsg").ok())
        .flatten();
    // Leaked: it lives as long as the process, and `log` without `std` takes no box.
    if log::set_logger(Box::leak(Box::new(Plain { kmsg }))).is_ok() {
        log::set_max_level(level);
    }
}

/// Lines as text.
struct Plain {
    kmsg: Option<File>,
}

impl Log for Plain {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What the libraries say below a warning is not for our readers.
        metadata.target().starts_with("blockd") || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // A log that cannot be written has nowhere to be complained about.
        let _ = match &self.kmsg {
            Some(kmsg) => {
                // syslog(2): error 3, warning 4, info 6, debug 7.
                let priority = match record.level() {
                    Level::Error => 3,
                    Level::Warn => 4,
                    Level::Info => 6,
                    Level::Debug | Level::Trace => 7,
                };
                let mut kmsg: &File = kmsg;
                kmsg.write_all(format!("<{priority}>blockd: {}\n", record.args()).as_bytes())
            }
            None => writeln!(std::io::stderr(), "blockd: {}", record.args()),
        };
    }

    fn flush(&self) {}
}
