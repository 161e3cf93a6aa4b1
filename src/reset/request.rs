//! What is asked for, in the words of the AIDL interface.

use crate::named_enum;
use crate::units::Bytes;
use std::fs::File;
use std::sync::Arc;

named_enum! {
    /// How a range is erased.
    Method {
        /// The strongest that the card offers.
        Auto = 0 "auto",
        /// CMD38 with 0x80000000 over whole erase groups.
        SecureErase = 1 "secure-erase",
        /// CMD38 with 0x80000001, then 0x80008000.
        SecureTrim = 2 "secure-trim",
        /// CMD38 with 0 over whole erase groups.
        Erase = 3 "erase",
        /// CMD38 with 1.
        Trim = 4 "trim",
        /// Direct writes: a seeded pattern, then the erased value.
        Overwrite = 5 "overwrite",
        /// BLKSECDISCARD.
        SecureDiscard = 6 "secure-discard",
        /// BLKDISCARD with full verification.
        Discard = 7 "discard",
    }
}

named_enum! {
    /// What a reset is worth, in the words of NIST SP 800-88 and IEEE 2883.
    Assurance {
        /// No claim.
        None = 0 "none",
        /// The data cannot be read back through the interface.
        Clear = 1 "clear",
        /// The card claims that the data is gone from its physical blocks too.
        Purge = 2 "purge",
    }
}

named_enum! {
    /// What the card claims to have done.
    Physical {
        /// Nothing.
        None = 0 "none",
        /// Secure erase was accepted.
        SecureErase = 1 "secure-erase",
        /// Both passes of secure trim were accepted.
        SecureTrim = 2 "secure-trim",
        /// SANITIZE was accepted.
        Sanitize = 3 "sanitize",
    }
}

named_enum! {
    /// What our own reading back found.
    Logical {
        /// Nothing was read back.
        NotChecked = 0 "not-checked",
        /// Every position that was read is as it must be.
        Verified = 1 "verified",
        /// At least one position is not.
        Failed = 2 "failed",
    }
}

named_enum! {
    /// How much is read back.
    Verify {
        /// Samples, borders, edges, neighbours.
        Samples = 0 "samples",
        /// Every sector.
        Full = 1 "full",
    }
}

named_enum! {
    /// Where the restart marker lies.
    Marker {
        /// In misc.
        Misc = 0 "misc",
        /// In a file of the caller's.
        File = 1 "file",
        /// Nowhere.
        None = 2 "none",
    }
}

/// A reset that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kernel name of the disk; `None` = wherever the partitions are.
    pub disk: Option<String>,
    /// GPT partition names.
    pub partitions: Vec<String>,
    /// First byte inside the single partition.
    pub offset: Bytes,
    /// Bytes from there; `None` = to the end.
    pub length: Option<Bytes>,
    /// How.
    pub method: Method,
    /// The least assurance that is acceptable.
    pub min_assurance: Assurance,
    /// Largest range of one CMD38; 0 = no limit.
    pub max_chunk: Bytes,
    /// How much is read back.
    pub verify: Verify,
    /// Where the restart marker lies.
    pub marker: Marker,
    /// With [`Marker::File`]: the file.
    pub marker_file: Option<MarkerFile>,
    /// The caller knows that no system update waits for its merge, where misc cannot tell.
    pub merges_done: bool,
    /// Send what the kernel's lists of faulty cards forbid.
    pub ignore_quirks: bool,
}

/// A file for the restart marker, opened for reading and writing.
#[derive(Clone, Debug)]
pub struct MarkerFile(pub Arc<File>);

/// The same open file, not the same content.
impl PartialEq for MarkerFile {
    fn eq(&self, other: &MarkerFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MarkerFile {}

impl Request {
    /// The whole of `partitions`, by the strongest method, samples read back, no restart marker.
    pub fn new(partitions: &[&str]) -> Request {
        Request {
            disk: None,
            partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
            offset: Bytes(0),
            length: None,
            method: Method::Auto,
            min_assurance: Assurance::None,
            max_chunk: Bytes(0),
            verify: Verify::Samples,
            marker: Marker::None,
            marker_file: None,
            merges_done: false,
            ignore_quirks: false,
        }
    }
}
