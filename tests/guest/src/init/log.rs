//! init's log: the console for people, the kernel log for order with the kernel's own lines.

use std::fs::OpenOptions;
use std::io::Write;

/// KERN_INFO: below the console's level, so that no line appears there twice.
const KMSG_LEVEL: u8 = 6;

/// Logs one line.
pub fn info(message: &str) {
    println!("init: {message}");
    if let Ok(mut kmsg) = OpenOptions::new().write(true).open("/dev/kmsg") {
        // One write is one record; a kernel without room for it is no reason to stop.
        let _ = kmsg.write_all(format!("<{KMSG_LEVEL}>init: {message}\n").as_bytes());
    }
}

/// Logs one line as an error; the host looks for this prefix.
pub fn error(message: &str) {
    info(&format!("ERROR: {message}"));
}
