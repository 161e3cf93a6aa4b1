//! Capability names of the `capabilities` option (linux/capability.h, without the CAP_ prefix).

const NAMES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The number of a capability.
pub fn capability(name: &str) -> Option<u8> {
    NAMES
        .iter()
        .position(|known| *known == name)
        .map(|n| n as u8)
}

/// A set of capabilities: bit n stands for capability n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    /// The set with one more capability.
    #[must_use]
    pub fn with(self, capability: u8) -> Self {
        Self(self.0 | 1 << capability)
    }

    /// Whether the set has a capability.
    pub fn has(self, capability: u8) -> bool {
        self.0 & 1 << capability != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(capability("CHOWN"), Some(0));
        assert_eq!(capability("SETPCAP"), Some(8));
        assert_eq!(capability("SYS_RAWIO"), Some(17));
        assert_eq!(capability("SYS_ADMIN"), Some(21));
        assert_eq!(capability("SYS_NICE"), Some(23));
        assert_eq!(capability("MKNOD"), Some(27));
        assert_eq!(capability("CHECKPOINT_RESTORE"), Some(40));
        assert_eq!(capability("CAP_SYS_ADMIN"), None);
    }
}
