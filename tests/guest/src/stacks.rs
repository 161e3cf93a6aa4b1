//! Where every process waits: told when something hangs.

use std::fs;
use std::path::Path;

/// One line for each thread and one for each function of its kernel stack, the innermost first.
/// Kernel threads are left out.
pub fn all() -> Vec<String> {
    let mut lines = Vec::new();
    let numbers = |directory: &Path| -> Vec<u32> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter_map(|name| name.parse().ok()).collect()
    };
    for process in numbers(Path::new("/proc")) {
        let process = Path::new("/proc").join(process.to_string());
        let is_user = fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty());
        if !is_user {
            continue;
        }
        // Where the program lies, so that its addresses can be looked up.
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        if let Some(first) = maps.lines().next() {
            lines.push(format!("{} {first}", process.display()));
        }
        for thread in numbers(&process.join("task")) {
            let thread = process.join("task").join(thread.to_string());
            let read = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
            let (name, call) = (read("comm"), read("syscall"));
            lines.push(format!(
                "{} {} system call {}",
                thread.display(),
                name.trim(),
                call.trim()
            ));
            lines.extend(read("stack").lines().map(|line| format!("    {line}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_is_among_them() {
        let own = format!("/proc/{}/task/", std::process::id());
        assert!(super::all().iter().any(|line| line.starts_with(&own)));
    }
}
