//! The doctor: what this kernel, card and build allow, each line with what shows it.

use super::{Finding, Severity};
use crate::device::{Storage, Sysfs};
use crate::reset::facts;

/// Looks at binder, the cards and the loop driver.
pub fn doctor(storage: &dyn Storage) -> Vec<Finding> {
    let mut findings = vec![binder(storage.sysfs())];
    findings.extend(cards(storage));
    findings.push(loops(storage.sysfs()));
    findings
}

/// The same without asking a card anything: a command would wait for a running erase.
pub fn without_cards(sysfs: &dyn Sysfs) -> Vec<Finding> {
    let disks = facts::emmc_disks(sysfs);
    let mmc = match disks.is_empty() {
        true => none(),
        false => Finding::new(
            "mmc",
            Severity::Ok,
            format!(
                "{}; `blockctl doctor` asks what it can erase",
                disks.join(", ")
            ),
            "/sys/block/*/device/type".to_owned(),
        ),
    };
    vec![binder(sysfs), mmc, loops(sysfs)]
}

fn none() -> Finding {
    Finding::new(
        "mmc",
        Severity::Warning,
        "there is no eMMC".to_owned(),
        "no /sys/block/*/device/type says MMC".to_owned(),
    )
    .remedy("a factory reset by commands needs one; images do not")
}

fn binder(sysfs: &dyn Sysfs) -> Finding {
    let nodes = ["/dev/binderfs/binder", "/dev/binder"];
    match nodes.into_iter().find(|node| sysfs.exists(node)) {
        Some(node) => Finding::new(
            "binder",
            Severity::Ok,
            "the binder driver is there".to_owned(),
            node.to_owned(),
        ),
        None => Finding::new(
            "binder",
            Severity::Problem,
            "there is no binder node".to_owned(),
            format!("neither {} nor {}", nodes[0], nodes[1]),
        )
        .remedy(
            "mount binderfs on /dev/binderfs and make `binder` through binder-control, or load the \
             module binder_linux; without binder use --serve unix:PATH or --connect local",
        ),
    }
}

fn cards(storage: &dyn Storage) -> Vec<Finding> {
    let names = facts::emmc_disks(storage.sysfs());
    if names.is_empty() {
        return vec![none()];
    }
    names.iter().map(|name| card(storage, name)).collect()
}

fn card(storage: &dyn Storage, name: &str) -> Finding {
    let disk = match facts::gather_disk(storage, name) {
        Ok(disk) => disk,
        Err(failure) => {
            return Finding::new("mmc", Severity::Unknown, failure.message, name.to_owned())
        }
    };
    let evidence = "CMD8 SEND_EXT_CSD".to_owned();
    match &disk.ext_csd {
        crate::fact::Fact::Unknown { reason, .. } => Finding::new(
            "mmc",
            Severity::Unknown,
            format!("what {name} can erase cannot be told here"),
            reason.clone(),
        )
        .remedy("run as root with CAP_SYS_RAWIO, in a domain that may use MMC_IOC_CMD on the disk"),
        crate::fact::Fact::Known { value, .. } if value.implausible().is_some() => Finding::new(
            "mmc",
            Severity::Problem,
            format!("the EXT_CSD of {name} makes no sense"),
            value.implausible().unwrap_or_default(),
        ),
        crate::fact::Fact::Known { value, .. } if value.has_secure_erase() => Finding::new(
            "mmc",
            Severity::Ok,
            format!("{name} offers secure erase"),
            format!("{evidence}: SEC_FEATURE_SUPPORT {:#04x}", value.0[231]),
        ),
        crate::fact::Fact::Known { value, .. } => Finding::new(
            "mmc",
            Severity::Problem,
            format!("{name} does not offer secure erase"),
            format!("{evidence}: SEC_FEATURE_SUPPORT {:#04x}", value.0[231]),
        )
        .remedy("this version has no weaker method"),
    }
}

fn loops(sysfs: &dyn Sysfs) -> Finding {
    let control = "/dev/loop-control";
    if !sysfs.exists(control) {
        return Finding::new(
            "loop",
            Severity::Problem,
            "there is no loop driver".to_owned(),
            format!("{control} is missing"),
        )
        .remedy("build the kernel with CONFIG_BLK_DEV_LOOP, or load the module loop");
    }
    let release = sysfs.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::new(
        "loop",
        Severity::Ok,
        "the loop driver is there".to_owned(),
        format!("{control}, Linux {release}"),
    )
}
