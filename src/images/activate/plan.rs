//! Decides how an APEX becomes a mount. No I/O: the same facts give the same plan.

use super::super::apex::Contents;
use super::super::avb::{self, HashtreeDescriptor, Vbmeta};
use super::super::facts::{FileAccess, FileFacts, FileKind};
use super::super::linear::{self, Extent};
use super::super::plan::{check_file, AttachRequest, Start, DEFAULT_BLOCK_SIZE, MAX_NAME};
use super::super::verity::TreePlace;
use super::super::{Step, Window};
use crate::device::mapper::{DeviceNumber, Target, DM_MAX_NAME};
use crate::device::mounts::MountFlags;
use crate::error::{Code, Failure, Result};
use crate::units::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};

/// What the names of devices that are mounted begin with.
pub const VERITY_PREFIX: &str = "blockd-apex-";
/// What the names of windows of block devices begin with.
pub const LINEAR_PREFIX: &str = "blockd-data-";
/// In the tag of the loop device, before name and version.
const TAG: &str = "apex:";

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivateRequest {
    /// Name of the APEX; must be its manifest's.
    pub name: String,
    /// The key blob that is trusted; `None` takes the key in the file.
    pub trusted_key: Option<Vec<u8>>,
    /// Whether every read is checked by dm-verity.
    pub verity: bool,
}

/// Name and version of an APEX: the name of its folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Package name, fit to be a folder's name.
    pub name: String,
    /// Version.
    pub version: u64,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl Package {
    /// Reads `NAME@VERSION` as it is written here, and nothing else.
    pub fn parse(text: &str) -> Option<Package> {
        let (name, version) = text.rsplit_once('@')?;
        let package = Package {
            name: name.to_owned(),
            version: version.parse().ok()?,
        };
        (package.to_string() == text && !name.is_empty()).then_some(package)
    }

    /// Name of the dm-verity device.
    pub fn verity_name(&self) -> String {
        format!("{VERITY_PREFIX}{self}")
    }

    /// Name of the dm-linear device.
    pub fn linear_name(&self) -> String {
        format!("{LINEAR_PREFIX}{self}")
    }

    /// Name for the tag of its loop device. One that a tag does not hold ends with a digest, so
    /// that no two packages share one.
    pub fn tag_name(&self) -> String {
        let mut name = format!("{TAG}{self}");
        if name.len() > MAX_NAME {
            let digest = avb::hex(&avb::sha::sha256(&[name.as_bytes()])[..4]);
            name.truncate(MAX_NAME - 9);
            name = format!("{name}~{digest}");
        }
        name
    }
}

/// The device that holds the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A loop device of this window of the file.
    Loop(AttachRequest),
    /// The same window of a block device.
    Linear(Vec<Target>),
}

/// The dm-verity device above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verity {
    /// The signed descriptor.
    pub tree: HashtreeDescriptor,
    /// Where the tree lies.
    pub place: TreePlace,
}

/// What will be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivatePlan {
    /// Name and version.
    pub package: Package,
    /// The payload in the file.
    pub payload: Window,
    /// The device that holds the file system.
    pub data: Data,
    /// The device that checks it; `None` where that is not asked for.
    pub verity: Option<Verity>,
    /// The kernel's name of the file system.
    pub file_system: &'static str,
    /// How it is mounted.
    pub flags: MountFlags,
    /// Where it is mounted, by name and version.
    pub mount_point: PathBuf,
    /// Where it is visible by name alone.
    pub bind_point: PathBuf,
    /// What the mounted manifest must be.
    pub manifest: Vec<u8>,
    /// Why this way.
    pub reason: &'static str,
    /// What is not had as asked.
    pub warnings: Vec<String>,
}

/// What was found out about the file.
pub struct ActivateFacts<'a> {
    /// The descriptor.
    pub file: &'a FileFacts,
    /// Its device number, where it is a block device.
    pub device: Option<DeviceNumber>,
    /// The archive.
    pub contents: &'a Contents,
    /// The one copy of the vbmeta image.
    pub vbmeta: &'a Vbmeta,
    /// The descriptor of the file for a hash tree.
    pub hash_tree: Option<&'a FileFacts>,
    /// The folder of all mounts, e.g. `/apex`.
    pub root: &'a Path,
}

fn refuse(code: Code, message: impl Into<String>, remedy: &str) -> Failure {
    Step::Plan.fail(code, message).remedy(remedy)
}

/// Whether the descriptor can be looked into at all.
///
/// # Errors
/// As [`check_file`].
pub fn check_descriptor(name: &str, facts: &FileFacts) -> Result<()> {
    check_file(&AttachRequest::apex(name), facts)
}

/// Makes the plan. Checks the signature: nothing of the file is believed before.
///
/// # Errors
/// `BAD_SIGNATURE`; `INVALID_REQUEST` for another name, one that is too long, a missing or wrong
/// file for the hash tree; `UNSUPPORTED` for an unknown file system; as [`linear::table`].
pub fn plan(request: &ActivateRequest, facts: &ActivateFacts<'_>) -> Result<ActivatePlan> {
    let contents = facts.contents;
    let package = package(request, contents)?;
    let mut warnings = Vec::new();
    check_key(request, facts, &mut warnings)?;
    let tree = facts.vbmeta.hashtree.as_ref().ok_or_else(|| {
        let text = "the vbmeta image has no hash tree descriptor: nothing says what is signed";
        refuse(
            Code::BadSignature,
            text,
            "sign the payload by `avbtool add_hashtree_footer`",
        )
    })?;
    let file_system = contents.file_system.ok_or_else(|| {
        let text = "the payload is none of ext4, erofs and f2fs";
        refuse(
            Code::Unsupported,
            text,
            "`blockctl apex info` shows what is in the file",
        )
    })?;
    let verity = match request.verity {
        true => Some(verity(tree, facts.hash_tree)?),
        false => {
            warnings.push("without dm-verity nothing checks what is read".to_owned());
            None
        }
    };
    let window = data_window(contents.payload, tree, verity.as_ref())?;
    let data = match facts.device {
        Some(device) => Data::Linear(linear_table(device, facts.file.size, window)?),
        None => Data::Loop(loop_request(
            &package,
            window,
            tree,
            file_system.block_size,
            request.verity,
        )),
    };
    Ok(ActivatePlan {
        reason: reason(&data, verity.as_ref()),
        payload: contents.payload,
        data,
        verity,
        file_system: file_system.name,
        flags: MountFlags {
            no_exec: contents.manifest.no_code,
        },
        mount_point: facts.root.join(package.to_string()),
        bind_point: facts.root.join(&package.name),
        package,
        manifest: contents.manifest_bytes.clone(),
        warnings,
    })
}

fn package(request: &ActivateRequest, contents: &Contents) -> Result<Package> {
    let package = Package {
        name: contents.manifest.name.clone(),
        version: contents.manifest.version,
    };
    if package.name != request.name {
        let text = format!(
            "the manifest's name is {:?}, not {:?}",
            package.name, request.name
        );
        let remedy = "pass the file that belongs to the name";
        return Err(refuse(Code::InvalidRequest, text, remedy));
    }
    if package.verity_name().len() > DM_MAX_NAME {
        let text = format!("{package} is too long for a device's name (127 bytes in all)");
        return Err(refuse(
            Code::InvalidRequest,
            text,
            "choose a shorter package name",
        ));
    }
    Ok(package)
}

/// Without a trusted key: by the key inside, which must be the archive's.
fn check_key(
    request: &ActivateRequest,
    facts: &ActivateFacts<'_>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let own = facts.contents.public_key.as_deref();
    if let Some(key) = &request.trusted_key {
        return avb::verify(facts.vbmeta, key);
    }
    warnings.push("no trusted key: signed by the key in the file, whoever's that is".to_owned());
    match own {
        Some(key) => avb::verify(facts.vbmeta, key),
        None => avb::verify_signature(facts.vbmeta),
    }
}

fn verity(tree: &HashtreeDescriptor, file: Option<&FileFacts>) -> Result<Verity> {
    let place = TreePlace::of(tree);
    if place == TreePlace::Built {
        check_tree_file(file)?;
    }
    Ok(Verity {
        tree: tree.clone(),
        place,
    })
}

fn check_tree_file(file: Option<&FileFacts>) -> Result<()> {
    let remedy = "pass `hashTree`: a regular file of your own, opened for reading and writing";
    let why = match file {
        None => "the payload does not bring its hash tree, and hashTree is missing",
        Some(file) if file.kind != FileKind::Regular => "hashTree is no regular file",
        Some(file) if file.access != FileAccess::ReadWrite => {
            "hashTree is not opened for reading and writing"
        }
        Some(_) => return Ok(()),
    };
    Err(refuse(Code::InvalidRequest, why, remedy))
}

/// What the device shows of the file: what the tree covers, and the tree where it is needed. What
/// lies behind it is never mounted.
fn data_window(
    payload: Window,
    tree: &HashtreeDescriptor,
    verity: Option<&Verity>,
) -> Result<Window> {
    let stored = verity.map_or(0, |_| tree.tree_size);
    let end = match stored {
        0 => Some(tree.image_size),
        size => tree.tree_offset.checked_add(size),
    };
    let length = end.filter(|end| *end <= payload.length.0).ok_or_else(|| {
        let text = format!(
            "image and hash tree run past the payload of {}",
            payload.length.0
        );
        refuse(Code::NotAnApex, text, "the file is damaged: copy it again")
    })?;
    Ok(Window {
        offset: payload.offset,
        length: Bytes(length),
    })
}

fn linear_table(device: DeviceNumber, size: Bytes, window: Window) -> Result<Vec<Target>> {
    let whole = Extent {
        logical: Bytes(0),
        device,
        physical: Bytes(0),
        length: size,
    };
    linear::table(&[whole], window)
}

/// The largest block that every reader above is a multiple of.
fn loop_request(
    package: &Package,
    window: Window,
    tree: &HashtreeDescriptor,
    file_system_block: Option<u32>,
    verity: bool,
) -> AttachRequest {
    let readers = match verity {
        true => tree.data_block_size.min(tree.hash_block_size),
        false => file_system_block.unwrap_or(512).min(tree.data_block_size),
    };
    AttachRequest {
        start: Start::At(window.offset),
        length: Some(window.length),
        block_size: Some(readers.min(DEFAULT_BLOCK_SIZE)),
        ..AttachRequest::apex(&package.tag_name())
    }
}

fn reason(data: &Data, verity: Option<&Verity>) -> &'static str {
    match (data, verity.map(|verity| verity.place)) {
        (Data::Loop(_), Some(TreePlace::Stored(_))) => "dm-verity on a loop device",
        (Data::Loop(_), Some(TreePlace::Built)) => {
            "dm-verity on a loop device, its hash tree built into the caller's file"
        }
        (Data::Loop(_), None) => "a loop device alone, as asked",
        (Data::Linear(_), Some(TreePlace::Stored(_))) => {
            "dm-verity on dm-linear: the file is a block device"
        }
        (Data::Linear(_), Some(TreePlace::Built)) => {
            "dm-verity on dm-linear, its hash tree built into the caller's file"
        }
        (Data::Linear(_), None) => "dm-linear alone, as asked: the file is a block device",
    }
}

impl ActivatePlan {
    /// The steps, a line each. Device numbers, which the kernel chooses, are named as such.
    pub fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if self
            .verity
            .as_ref()
            .is_some_and(|v| v.place == TreePlace::Built)
        {
            steps.push(format!(
                "build the hash tree of the payload ({})",
                self.payload
            ));
        }
        match &self.data {
            Data::Loop(request) => steps.push(format!(
                "attach {} bytes from byte {} to a loop device, blocks of {}",
                request.length.map_or(0, |length| length.0),
                match request.start {
                    Start::At(offset) => offset.0,
                    Start::Payload => self.payload.offset.0,
                },
                request.block_size.unwrap_or(DEFAULT_BLOCK_SIZE),
            )),
            Data::Linear(table) => {
                let name = self.package.linear_name();
                steps.extend(table.iter().map(|line| format!("dm {name}: {line}")));
            }
        }
        if let Some(verity) = &self.verity {
            let name = self.package.verity_name();
            let (image, algorithm) = (verity.tree.image_size, &verity.tree.hash_algorithm);
            let root = avb::hex(&verity.tree.root_digest);
            steps.push(format!(
                "dm {name}: verity of {image} bytes, {algorithm} {root}"
            ));
        }
        let (point, flags) = (self.mount_point.display(), self.flags.names());
        steps.push(format!("mount -t {} -o {flags} {point}", self.file_system));
        steps.push(format!("compare {point}/apex_manifest.pb"));
        steps.push(format!(
            "mount --bind {point} {}",
            self.bind_point.display()
        ));
        steps
    }
}

#[cfg(test)]
mod tests;
