//! Progress on stderr: a line that is rewritten, or JSON lines.

use crate::args::Progress;
use blockd::aidl::IProgress::{BnProgress, IProgress};
use blockd::service::ipc::{BinderResult, Interface, Strong};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Shows progress until it is dropped.
pub struct Shown {
    bar: bool,
    ended: Arc<AtomicBool>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if self.bar {
            // Leave the line to what is printed next.
            eprint!("\r\x1b[K");
        }
    }
}

/// The receiver to pass to the service, or `None` where nothing is shown.
pub fn receiver(progress: Progress, quiet: bool) -> Option<(Strong<dyn IProgress>, Shown)> {
    let bar = match progress {
        Progress::None => return None,
        Progress::Json => false,
        Progress::Bar => true,
        Progress::Auto if !quiet && std::io::stderr().is_terminal() => true,
        Progress::Auto => return None,
    };
    if !bar {
        // A reader of events learns first what it reads.
        eprintln!("{}", json!({"event": "version", "version": 1}));
    }
    let ended = Arc::new(AtomicBool::new(false));
    let receiver = blockd::new_binder!(
        BnProgress,
        Receiver {
            bar,
            ended: Arc::clone(&ended),
        }
    );
    Some((receiver, Shown { bar, ended }))
}

struct Receiver {
    bar: bool,
    ended: Arc<AtomicBool>,
}

impl Interface for Receiver {}

impl IProgress for Receiver {
    fn onProgress(
        &self,
        step: &str,
        elapsed: i64,
        done: i64,
        total: i64,
        limit: i64,
    ) -> BinderResult<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        let line = if self.bar {
            format!("\r\x1b[K{}", bar(step, elapsed, done, total, limit))
        } else {
            let event = json!({
                "event": "progress",
                "step": step,
                "elapsed_millis": elapsed,
                "bytes_done": done,
                "bytes_total": total,
                "limit_millis": limit,
            });
            format!("{event}\n")
        };
        // A terminal that is gone is no reason to stop an erase.
        let _ = std::io::stderr().write_all(line.as_bytes());
        Ok(())
    }
}

/// One line: a card tells nothing during one command, so the time and its limit are all there is.
fn bar(step: &str, elapsed: i64, done: i64, total: i64, limit: i64) -> String {
    let seconds = elapsed as f64 / 1000.0;
    let mut line = format!("{step:<12} {seconds:>7.1} s");
    if done >= 0 && total > 0 {
        line.push_str(&format!("  {:>3} %", done * 100 / total));
    } else if total > 0 {
        line.push_str(&format!("  {} MiB", total >> 20));
    }
    if limit >= 0 {
        line.push_str(&format!(
            "  (at most {} s; cannot be called back)",
            limit / 1000
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_line_says_what_is_known() {
        assert_eq!(bar("verify", 1500, -1, -1, -1), "verify           1.5 s");
        assert_eq!(
            bar("erase", 61_000, -1, 1 << 30, 600_000),
            "erase           61.0 s  1024 MiB  (at most 600 s; cannot be called back)"
        );
        assert_eq!(
            bar("canaries", 100, 50, 200, -1),
            "canaries         0.1 s   25 %"
        );
    }
}
