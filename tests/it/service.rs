//! The service over a Unix socket, called by the library's client and by the real `blockctl`.

use crate::case::{Case, Outcome};
use crate::needs::Need;
use crate::reset::layout::{expect_erased_exactly, expect_untouched, machine, plain};
use crate::served::{json_of, request, Served};
use blockd::aidl::IProgress::{BnProgress, IProgress};
use blockd::aidl::ResetRequest::ResetRequest;
use blockd::error::{Code, Failure};
use blockd::service::error::failure;
use blockd::service::ipc::BinderResult;
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("service::a_reset_over_the_socket", reset_over_socket),
        Case::new("service::failures_keep_code_step_and_remedy", failures),
        Case::new(
            "service::a_client_that_is_stopped_delays_nothing",
            stopped_client,
        ),
        Case::new("service::the_socket_is_private", private_socket),
        Case::new("service::other_users_are_refused", other_users).needs(&[Need::Host, Need::Root]),
        Case::new("service::blockctl_plans_and_resets", blockctl).needs(&[Need::Host]),
        Case::new("service::blockctl_says_what_is_wrong", blockctl_errors).needs(&[Need::Host]),
        Case::new("service::blockd_refuses_wrong_arguments", blockd_arguments).needs(&[Need::Host]),
        Case::new("service::blockd_waits_for_binder_quietly", blockd_waits).needs(&[Need::Host]),
    ]
}

/// All interfaces over the plain card.
fn serve(allow_uids: &[u32]) -> Result<Served, String> {
    Served::new(machine(plain()), allow_uids, None)
}

struct Steps(Arc<Mutex<Vec<String>>>);

impl blockd::service::ipc::Interface for Steps {}

impl IProgress for Steps {
    fn onProgress(&self, step: &str, _: i64, _: i64, _: i64, _: i64) -> BinderResult<()> {
        self.0.lock().expect("no panic").push(step.to_owned());
        Ok(())
    }
}

fn reset_over_socket() -> Outcome {
    let served = serve(&[])?;
    let reset = served.reset()?;
    let plan = reset
        .plan(&request("userdata"))
        .map_err(|e| format!("{e:?}"))?;
    expect_untouched(&served.card);
    assert_eq!(plan.targets[0].commands.len(), 3);
    assert_eq!(plan.targets[0].commands[0].response, -1, "not sent");

    let steps = Arc::new(Mutex::new(Vec::new()));
    let progress = blockd::new_binder!(BnProgress, Steps(Arc::clone(&steps)));
    let report = reset
        .run(&request("userdata"), Some(&progress))
        .map_err(|e| format!("{e:?}"))?;
    expect_erased_exactly(&served.card, &["userdata"]);
    assert_eq!(served.card.log().count(38), 1);
    assert_eq!(
        report.plan.steps.len(),
        plan.steps.len(),
        "the plan that was shown"
    );
    assert!(report.formatNeeded);
    let last = reset.lastReport().map_err(|e| format!("{e:?}"))?;
    assert_eq!(last.map(|l| l.token), Some(report.token));
    let status = reset.status().map_err(|e| format!("{e:?}"))?;
    assert_eq!((status.state.0, status.markerPresent), (2, false));
    Ok(())
}

fn failures() -> Outcome {
    let served = serve(&[])?;
    let reset = served.reset()?;
    let of = |name: &str| -> Result<Failure, String> {
        match reset.run(&request(name), None) {
            Ok(_) => Err(format!("{name} was erased")),
            Err(status) => Ok(failure(&status)),
        }
    };
    let missing = of("nosuch")?;
    assert_eq!(
        (missing.code, missing.step.as_str()),
        (Code::NoSuchPartition, "facts")
    );
    assert!(missing.remedy.contains("userdata"), "{missing:?}");
    served
        .card
        .mount("mmcblk0p1", "/data")
        .map_err(|e| e.to_string())?;
    let used = of("userdata")?;
    assert_eq!(used.code, Code::InUse);
    assert_eq!(used.errno, Some(nix::errno::Errno::EBUSY));

    let negative = ResetRequest {
        offsetBytes: -512,
        ..request("userdata")
    };
    let status = reset
        .plan(&negative)
        .err()
        .ok_or("a negative offset passed")?;
    assert_eq!(failure(&status).code, Code::InvalidRequest);
    let unknown = ResetRequest {
        method: blockd::aidl::Method::Method(99),
        ..request("userdata")
    };
    let status = reset
        .plan(&unknown)
        .err()
        .ok_or("an unknown method passed")?;
    assert_eq!(failure(&status).code, Code::InvalidRequest);
    expect_untouched(&served.card);
    Ok(())
}

/// Takes its first progress and never comes back.
struct Stuck;

impl blockd::service::ipc::Interface for Stuck {}

impl IProgress for Stuck {
    fn onProgress(&self, _: &str, _: i64, _: i64, _: i64, _: i64) -> BinderResult<()> {
        loop {
            std::thread::park();
        }
    }
}

fn stopped_client() -> Outcome {
    let served = serve(&[])?;
    let progress = blockd::new_binder!(BnProgress, Stuck);
    let reset = served.reset()?;
    reset
        .run(&request("userdata"), Some(&progress))
        .map_err(|e| format!("{e:?}"))?;
    expect_erased_exactly(&served.card, &["userdata"]);
    Ok(())
}

fn private_socket() -> Outcome {
    let served = serve(&[])?;
    let metadata = served.socket().metadata().map_err(|e| e.to_string())?;
    assert_eq!(metadata.mode() & 0o777, 0o600);
    Ok(())
}

/// A copy of blockctl that another user can reach. Made by another process: a child that some other
/// case starts meanwhile would inherit the open file, and a file open for writing cannot be run.
fn public_blockctl(folder: &Path) -> Result<PathBuf, String> {
    let copy = folder.join("blockctl");
    let made = Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_blockctl")), &copy])
        .status()
        .map_err(|e| e.to_string())?;
    if !made.success() {
        return Err("cp failed".to_owned());
    }
    // The mask is the process's, and another case may have it narrowed just now.
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))
        .map_err(|e| e.to_string())?;
    Ok(copy)
}

fn other_users() -> Outcome {
    const NOBODY: u32 = 12_345;
    const SHELL: u32 = 2000;
    let call = |served: &Served, uid: u32, arguments: &[&str]| -> Result<Output, String> {
        // The file mode is the first door; open it to see the second and the third.
        for (path, mode) in [
            (served.folder.path().to_owned(), 0o755),
            (served.socket(), 0o666),
        ] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(|e| e.to_string())?;
        }
        Command::new(public_blockctl(served.folder.path())?)
            .arg("--connect")
            .arg(format!("unix:{}", served.socket().display()))
            .arg("--json")
            .args(arguments)
            .stdin(Stdio::null())
            .uid(uid)
            .output()
            .map_err(|e| e.to_string())
    };
    let code = |output: &Output| error_of(output).map(|e| e["code"].clone());

    let served = serve(&[])?;
    let stranger = call(&served, NOBODY, &["reset", "status"])?;
    assert_eq!(code(&stranger)?, "NO_SERVICE", "not even connected");
    // The shell may look, not erase: the socket lets it in, the interface does not.
    let looks = call(&served, SHELL, &["doctor"])?;
    assert!(looks.status.success(), "{looks:?}");
    let erases = call(
        &served,
        SHELL,
        &["reset", "run", "--yes", "--marker", "none", "userdata"],
    )?;
    assert_eq!(code(&erases)?, "PERMISSION");
    let error = error_of(&erases)?;
    assert!(
        error["message"]
            .as_str()
            .unwrap_or_default()
            .contains("2000"),
        "{error}"
    );
    expect_untouched(&served.card);

    let served = serve(&[NOBODY])?;
    let allowed = call(
        &served,
        NOBODY,
        &["reset", "plan", "--marker", "none", "userdata"],
    )?;
    assert!(allowed.status.success(), "{allowed:?}");
    Ok(())
}

fn error_of(output: &Output) -> Result<Value, String> {
    json_of(output).map(|value| value["error"].clone())
}

fn blockctl() -> Outcome {
    let served = serve(&[])?;
    let dry = served.blockctl(&["reset", "run", "--dry-run", "--marker", "none", "userdata"])?;
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.status.success(), "{dry:?}");
    for word in [
        "CMD35",
        "CMD36",
        "CMD38 0x80000000",
        "canaries",
        "no restart marker",
    ] {
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
    }
    expect_untouched(&served.card);

    let unconfirmed =
        served.blockctl(&["--json", "reset", "run", "--marker", "none", "userdata"])?;
    assert_eq!(error_of(&unconfirmed)?["step"], "confirm");
    expect_untouched(&served.card);

    let run = served.blockctl(&[
        "--json",
        "--progress",
        "json",
        "reset",
        "run",
        "--yes",
        "--marker",
        "none",
        "userdata",
    ])?;
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let report = json_of(&run)?;
    assert_eq!(report["logical"], "verified");
    assert_eq!(report["physical"], "secure-erase");
    assert_eq!(report["targets"][0]["erased_bytes"], 64 * 512 * 1024);
    expect_erased_exactly(&served.card, &["userdata"]);
    let events = String::from_utf8_lossy(&run.stderr).into_owned();
    let first: Value = serde_json::from_str(events.lines().next().unwrap_or_default())
        .map_err(|e| format!("{e}: {events}"))?;
    assert_eq!(first["event"], "version");
    Ok(())
}

fn blockctl_errors() -> Outcome {
    let served = serve(&[])?;
    served
        .card
        .files()
        .set("/sys/block/mmcblk0/device/type", "SD");
    let table: [(&[&str], i32, &str); 4] = [
        (
            &["reset", "plan", "nosuch", "--marker", "none"],
            1,
            "NO_SUCH_PARTITION",
        ),
        (
            &["reset", "plan", "userdata", "--marker", "none"],
            2,
            "NOT_EMMC",
        ),
        (&["reset", "plan", "nosuch"], 1, "NO_SUCH_PARTITION"),
        (&["card", "info", "mmcblk7"], 1, "NO_SUCH_DEVICE"),
    ];
    for (arguments, status, code) in table {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let output = served.blockctl(&all)?;
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?} {output:?}"
        );
        let error = error_of(&output)?;
        assert_eq!(error["code"], code, "{arguments:?}");
        assert_ne!(error["remedy"], "", "{arguments:?} {error}");
        // For people: the same on stderr, nothing on stdout.
        let output = served.blockctl(arguments)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text.contains(code) && text.contains("try:"), "{text}");
    }
    for arguments in [
        &["reset"][..],
        &["reset", "plan"],
        &["frob"],
        &["reset", "plan", "-o", "1Q", "x"],
    ] {
        let output = served.blockctl(arguments)?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let help = served.blockctl(&["--help"])?;
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit status"));
    let absent = Command::new(env!("CARGO_BIN_EXE_blockctl"))
        .args(["--json", "--connect", "unix:/nonexistent/socket", "doctor"])
        .output()
        .map_err(|e| e.to_string())?;
    assert_eq!(error_of(&absent)?["code"], "NO_SERVICE");
    Ok(())
}

fn blockd_arguments() -> Outcome {
    for arguments in [
        &["--serve", "tcp:1"][..],
        &["--interfaces", "x"],
        &["--frob"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_blockd"))
            .args(arguments)
            .output()
            .map_err(|e| e.to_string())?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    Ok(())
}

/// Without a binder node it waits, says so once, and burns no time.
fn blockd_waits() -> Outcome {
    if blockd::service::config::has_binder_node() {
        return Err("this machine has a binder node; the case needs one without".to_owned());
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_blockd"))
        .args(["--serve", "binder"])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    std::thread::sleep(Duration::from_secs(2));
    let running = child.try_wait().map_err(|e| e.to_string())?.is_none();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()));
    let _ = child.kill();
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(running, "it ended: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("waiting for the binder driver"), "{text}");
    // proc(5): utime and stime are fields 14 and 15, in ticks of 10 ms.
    let stat = stat.map_err(|e| e.to_string())?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    assert!(ticks <= 10, "{ticks} ticks in two seconds");
    Ok(())
}
