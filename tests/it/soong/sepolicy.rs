//! The SELinux policy: it compiles beside AOSP's limits, says what it must and no more, and names
//! the ioctls that the product issues.

use super::rustc::{project, read};
use crate::case::{Case, Outcome};
use crate::needs::Need;
use blockd::service::access::Interface;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cases.
pub fn cases() -> Vec<Case> {
    let tools = [
        Need::Host,
        Need::Program("m4"),
        Need::Program("checkpolicy"),
        Need::Program("secilc"),
    ];
    vec![
        Case::new("sepolicy::says_what_it_must", says_what_it_must).needs(&tools),
        Case::new("sepolicy::faults_do_not_compile", faults_do_not_compile).needs(&tools),
        Case::new("sepolicy::contexts_name_our_types", contexts).needs(&[Need::Host]),
    ]
}

/// Build variant, and whether it is recovery's policy.
type Variant = (&'static str, bool);

const VARIANTS: [Variant; 4] = [
    ("user", false),
    ("user", true),
    ("userdebug", false),
    ("userdebug", true),
];

/// Compiles our policy with `extra` behind it.
fn build((variant, recovery): Variant, extra: &[PathBuf]) -> Result<(), String> {
    let binary = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    let output = Command::new(project().join("tests/sepolicy/build"))
        .args([variant, if recovery { "true" } else { "false" }])
        .arg(binary.path())
        .args(extra)
        .output()
        .map_err(|e| format!("tests/sepolicy/build: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{variant}, recovery {recovery}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Where something is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    Always,
    Never,
    Recovery,
    Userdebug,
}

impl Granted {
    fn holds(self, (variant, recovery): Variant) -> bool {
        match self {
            Granted::Always => true,
            Granted::Never => false,
            Granted::Recovery => recovery,
            Granted::Userdebug => variant == "userdebug",
        }
    }
}

/// Accesses, and where each is granted.
const ACCESSES: [(&str, Granted); 35] = {
    use Granted::{Always, Never, Recovery, Userdebug};
    [
        // Who calls.
        ("apexd blockd_images:binder call", Always),
        ("apexd blockd_images_service:service_manager find", Always),
        ("shell blockd_images:binder call", Never),
        ("dumpstate blockd_images:binder call", Never),
        ("vold blockd_images:binder call", Never),
        ("system_server blockd_images:binder call", Never),
        ("untrusted_app blockd_images:binder call", Never),
        ("shell blockd_diag:binder call", Always),
        ("dumpstate blockd_diag:binder call", Always),
        ("untrusted_app blockd_diag:binder call", Never),
        ("system_app blockd_diag:binder call", Never),
        ("recovery recovery:binder call", Recovery),
        ("shell recovery:binder call", Never),
        // Who serves.
        (
            "recovery blockd_reset_service:service_manager add",
            Recovery,
        ),
        (
            "blockd_images blockd_reset_service:service_manager add",
            Never,
        ),
        (
            "blockd_diag blockd_images_service:service_manager add",
            Never,
        ),
        (
            "blockd_images blockd_images_service:service_manager add",
            Always,
        ),
        // Who is entered how.
        ("init blockd_images:process transition", Always),
        ("init blockd_diag:process transition", Always),
        ("shell blockd_images:process transition", Never),
        ("blockd_diag rootfs:file entrypoint", Recovery),
        ("blockd_images rootfs:file entrypoint", Never),
        // Capabilities.
        ("recovery self:capability sys_rawio", Recovery),
        ("blockd_diag self:capability sys_rawio", Userdebug),
        ("blockd_diag self:capability sys_admin", Never),
        ("blockd_images self:capability sys_rawio", Never),
        // Devices.
        ("recovery emmc_disk_device:blk_file open", Recovery),
        ("recovery misc_block_device:blk_file write", Recovery),
        ("blockd_diag misc_block_device:blk_file open", Never),
        ("blockd_diag emmc_disk_device:blk_file open", Always),
        ("blockd_diag emmc_disk_device:blk_file write", Never),
        ("blockd_images emmc_disk_device:blk_file open", Never),
        ("blockd_images userdata_block_device:blk_file open", Never),
        ("blockd_diag loop_control_device:chr_file open", Never),
        // Files of clients come as descriptors.
        ("blockd_images apex_data_file:file open", Never),
    ]
};

/// The same for ioctls.
const IOCTLS: [(&str, Granted); 11] = {
    use Granted::{Always, Never, Recovery, Userdebug};
    [
        (
            "recovery emmc_disk_device:blk_file ioctl MMC_IOC_MULTI_CMD",
            Recovery,
        ),
        (
            "blockd_diag emmc_disk_device:blk_file ioctl MMC_IOC_MULTI_CMD",
            Never,
        ),
        (
            "blockd_diag emmc_disk_device:blk_file ioctl MMC_IOC_CMD",
            Userdebug,
        ),
        (
            "recovery userdata_block_device:blk_file ioctl BLKFLSBUF",
            Recovery,
        ),
        (
            "recovery userdata_block_device:blk_file ioctl BLKSECDISCARD",
            Recovery,
        ),
        (
            "recovery userdata_block_device:blk_file ioctl MMC_IOC_MULTI_CMD",
            Never,
        ),
        // BLKRRPART
        (
            "recovery userdata_block_device:blk_file ioctl 0x125f",
            Never,
        ),
        (
            "blockd_images loop_device:blk_file ioctl LOOP_CONFIGURE",
            Always,
        ),
        // LOOP_CHANGE_FD: another file below a device in use
        ("blockd_images loop_device:blk_file ioctl 0x4c06", Never),
        (
            "blockd_images loop_control_device:chr_file ioctl LOOP_CTL_ADD",
            Always,
        ),
        // LOOP_CTL_REMOVE
        (
            "blockd_images loop_control_device:chr_file ioctl 0x4c81",
            Never,
        ),
    ]
};

/// Each access is asked for by a neverallow in a file of its own: the compiler complains of the file
/// where the access is granted.
fn says_what_it_must() -> Outcome {
    let statement = |kind: &str, access: &str| format!("{kind} {access};\n");
    let queries: Vec<(String, Granted)> = ACCESSES
        .iter()
        .map(|(access, when)| (statement("neverallow", access), *when))
        .chain(
            IOCTLS
                .iter()
                .map(|(access, when)| (statement("neverallowxperm", access), *when)),
        )
        .collect();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut files = Vec::new();
    for (number, (query, _)) in queries.iter().enumerate() {
        files.push(write(dir.path(), &format!("query{number}.te"), query)?);
    }
    for variant in VARIANTS {
        build(variant, &[])?;
        let Err(complaints) = build(variant, &files) else {
            return Err(format!("{variant:?}: nothing at all is granted"));
        };
        for (number, (query, when)) in queries.iter().enumerate() {
            let found = complaints.contains(&format!("/query{number}.te:"));
            if found != when.holds(variant) {
                return Err(format!(
                    "{variant:?}: `{query}` meets a grant: {found}, should: {when:?}\n{complaints}"
                ));
            }
        }
    }
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Statements that no variant may have, and a part of what the compiler says of each.
const FAULTS: [(&str, &str); 10] = [
    // Limits of AOSP.
    (
        "allow blockd_images block_device:blk_file { open read };",
        "08_limits",
    ),
    (
        "allow blockd_diag metadata_block_device:blk_file read;",
        "08_limits",
    ),
    (
        "allow blockd_diag misc_block_device:blk_file write;",
        "blockd.te",
    ),
    ("allow shell emmc_disk_device:blk_file open;", "neverallow"),
    // Ours.
    (
        "allow untrusted_app emmc_disk_device:blk_file read;",
        "blockd.te",
    ),
    (
        "allow blockd_diag emmc_disk_device:blk_file write;",
        "blockd.te",
    ),
    ("allow shell blockd_images:binder call;", "blockd.te"),
    (
        "allow blockd_images self:capability sys_rawio;",
        "blockd.te",
    ),
    (
        "allowxperm blockd_diag emmc_disk_device:blk_file ioctl MMC_IOC_MULTI_CMD;",
        "blockd.te",
    ),
    // Of everybody.
    ("allow blockd_diag no_such_type:file read;", "no_such_type"),
];

/// The check finds what it is for.
fn faults_do_not_compile() -> Outcome {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let seeded = |variant: Variant, fault: &str| {
        let seed = write(dir.path(), "fault.te", &format!("{fault}\n"))?;
        build(variant, &[seed])
    };
    let fails = |variant: Variant, fault: &str, says: &str| match seeded(variant, fault) {
        Ok(()) => Err(format!("{variant:?}: `{fault}` compiles")),
        Err(why) if !why.contains(says) => {
            Err(format!("{variant:?}: `{fault}`: no `{says}` in {why}"))
        }
        Err(_) => Ok(()),
    };
    for (fault, says) in FAULTS {
        for variant in VARIANTS {
            fails(variant, fault, says)?;
        }
    }
    // A limit that debuggable builds do not have.
    let rawio = "allow ueventd self:capability sys_rawio; allow shell self:capability sys_rawio;";
    fails(("user", false), rawio, "08_limits")?;
    seeded(("userdebug", false), rawio)
}

/// Labels: every service, the executable and the seclabels have types, and these are declared.
fn contexts() -> Outcome {
    let declared = read("sepolicy/public/blockd.te")? + &read("sepolicy/private/blockd.te")?;
    let services = read("sepolicy/private/service_contexts")?;
    for interface in Interface::ALL {
        let name = interface.service_name();
        if !services.lines().any(|line| line.starts_with(name)) {
            return Err(format!("service_contexts does not have {name}"));
        }
    }
    let mut labels = 0;
    for path in [
        "sepolicy/private/service_contexts",
        "sepolicy/private/file_contexts",
        "sepolicy/device/file_contexts",
        "rc/blockd.rc",
        "rc/blockd.recovery.rc",
    ] {
        for line in read(path)?.lines().filter(|l| !l.starts_with('#')) {
            let Some(label) = line.split_whitespace().find(|w| w.starts_with("u:")) else {
                continue;
            };
            labels += 1;
            let of = label.split(':').nth(2).unwrap_or_default();
            // AOSP's own, by which the reset is served.
            if of != "recovery" && !declared.contains(&format!("type {of},")) {
                return Err(format!("{path}: {label} has a type that is not declared"));
            }
        }
    }
    // Three services, the executable, the disk, four lines in the .rc files.
    if labels == 9 {
        Ok(())
    } else {
        Err(format!("found {labels} labels"))
    }
}
