use super::*;

fn parse(text: &str) -> Result<Script, Vec<Diagnostic>> {
    let mut parser = Parser::new();
    parser.file("test.rc", text);
    parser.finish()
}

fn refused(text: &str) -> String {
    let all = parse(text).expect_err("must be refused");
    all.iter()
        .map(Diagnostic::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

const GOOD: &str = "
service blockd_images /system/bin/blockd --interfaces images
    class core
    user root
    group system readproc
    capabilities SYS_ADMIN SYS_RAWIO
    ioprio rt 0
    interface aidl dev.blockd.IImageDevices/default
    seclabel u:r:blockd_images:s0
    rlimit memlock 0 unlimited
    oom_score_adjust -900
    task_profiles ProcessCapacityHigh
    socket blockd stream+listen 0660 root system
    file /dev/kmsg w
    setenv A b
    onrestart setprop x y
    shutdown critical
    stdio_to_kmsg
    restart_period 7

on post-fs-data && property:ro.debuggable=1
    mkdir /data/misc 0770 root system
    start blockd_images
";

#[test]
fn a_whole_service_and_action() {
    let script = parse(GOOD).unwrap();
    let service = &script.services[0];
    assert_eq!(
        service.command,
        ["/system/bin/blockd", "--interfaces", "images"]
    );
    assert_eq!(service.classes, ["core"]);
    assert_eq!((service.user, service.group), (Some(0), Some(1000)));
    assert_eq!(service.supplementary_groups, [3009]);
    assert_eq!(service.capabilities, Some(CapabilitySet(1 << 21 | 1 << 17)));
    let ioprio = service.ioprio.unwrap();
    assert_eq!((ioprio.class, ioprio.level), (IoClass::RealTime, 0));
    assert_eq!(
        service.rlimits[0],
        Rlimit {
            resource: 8,
            soft: 0,
            hard: u64::MAX
        }
    );
    assert_eq!(service.oom_score_adjust, Some(-900));
    assert_eq!(service.sockets[0].mode, 0o660);
    assert!(service.sockets[0].listen && service.stdio_to_kmsg && service.shutdown_critical);
    assert_eq!(service.restart_period.as_secs(), 7);
    assert!(service.unapplied.is_empty());
    let action = &script.actions[0];
    assert_eq!(action.event.as_deref(), Some("post-fs-data"));
    assert_eq!(
        action.properties,
        [("ro.debuggable".to_owned(), "1".to_owned())]
    );
    assert_eq!(action.commands.len(), 2);
}

/// Each line put into a good service must be refused with these words.
#[test]
fn wrong_options_are_refused() {
    for (line, words) in [
        ("frobnicate 1", "unknown option `frobnicate`"),
        ("ioprio rt 8", "`8` is no number from 0 to 7"),
        ("ioprio fast 1", "not rt, be or idle"),
        ("ioprio rt", "takes 2 to 2 arguments, not 1"),
        ("capabilities CAP_SYS_ADMIN", "unknown capability"),
        ("user nosuch", "unknown user"),
        ("group root nosuch", "unknown group"),
        ("disabled yes", "takes 0 to 0 arguments"),
        ("shutdown soon", "not `critical`"),
        ("file relative w", "no absolute path"),
        ("file /dev/kmsg x", "not r, w or rw"),
        ("socket s pipe 0600", "socket type `pipe`"),
        ("socket s stream 0999", "no octal mode"),
        ("rlimit nosuch 0 0", "is no number"),
        (
            "interface aidl dev.blockd.IDiagnostics",
            "not NAME/INSTANCE",
        ),
        ("oom_score_adjust 1001", "from -1000 to 1000"),
        ("onrestart frob", "unknown command"),
        ("reboot_on_failure halt", "neither shutdown"),
        ("restart_period 0", "from 1"),
        ("critical window=0", "from 1"),
    ] {
        let text = format!("service s /bin/s\n    user root\n    {line}\n");
        let got = refused(&text);
        assert!(got.contains(words), "{line}: {got}");
        assert!(got.starts_with("test.rc:3: "), "{line}: {got}");
    }
}

#[test]
fn wrong_sections_are_refused() {
    for (text, words) in [
        ("service s /bin/s\n", "names no user"),
        ("service s bin/s\n user root\n", "no absolute path"),
        ("service a/b /bin/s\n user root\n", "no service name"),
        ("service s\n", "needs a name and a program"),
        ("service s /bin/s\n user root\n critical\n oneshot\n", "both critical and oneshot"),
        ("service s /s\n user root\nservice s /s\n user root\n", "already defined at test.rc:1"),
        (
            "service s /s\n user root\n interface aidl a/b\nservice t /t\n user root\n interface aidl a/b\n",
            "already declared by s",
        ),
        ("service s /s\n user root\n interface aidl a/b\n interface aidl a/b\n", "declared twice"),
        ("user root\n", "outside any section"),
        ("import /x.rc\n", "import"),
        ("on\n", "needs a trigger"),
        ("on boot fs\n", "where && should"),
        ("on boot && fs\n", "at most one event"),
        ("on boot &&\n", "nothing follows"),
        ("on property:x\n", "has no value"),
        ("on property:x=1 && property:x=2\n", "named twice"),
        ("on boot\n frob x\n", "unknown command `frob`"),
        ("on boot\n start\n", "takes 1 to 1 arguments, not 0"),
        ("on boot\n exec -- busybox\n", "by absolute path"),
        ("on boot\n start \"x\n", "quote is not closed"),
    ] {
        let got = refused(text);
        assert!(got.contains(words), "{text}: {got}");
    }
}

#[test]
fn every_mistake_is_told_once() {
    let got = refused("service bad\n user root\n frob\non boot\n frob\n");
    assert_eq!(got.lines().count(), 2, "{got}");
}

#[test]
fn override_replaces() {
    let text = "service s /old\n user root\nservice s /new\n user root\n override\n";
    assert_eq!(parse(text).unwrap().services[0].command, ["/new"]);
}

#[test]
fn options_that_only_a_device_has_are_kept_apart() {
    for line in [
        "namespace mnt",
        "memcg.swappiness 1",
        "updatable",
        "reboot_on_failure reboot,x",
    ] {
        let script = parse(&format!("service s /s\n user root\n {line}\n")).unwrap();
        assert_eq!(script.services[0].unapplied[0].1, line);
    }
}
