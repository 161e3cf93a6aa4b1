//! From an APEX file to a mount: verified, attached, checked block by block, mounted.
//!
//! What was verified is one copy of the vbmeta image in memory. Its root digest is the dm-verity
//! device's, so that every block that is ever read belongs to what was signed, whatever becomes of
//! the file; and the device ends where the signed image ends.

pub mod active;
mod failures;
#[cfg(test)]
mod fake;
mod mapper;
pub mod plan;
mod undo;

pub use active::ActiveApex;
pub use plan::{ActivatePlan, ActivateRequest, Package};

use super::apex::{Contents, MAX_MANIFEST};
use super::avb::Vbmeta;
use super::facts::{FileFacts, FileKind};
use super::parallel::{run_all, HELPERS};
use super::plan::{AttachRequest, Start};
use super::verity::{self, TreePlace};
use super::{check_count, AttachItem, FileSource, Images, Step, Steps};
use crate::device::mapper::DeviceNumber;
use crate::error::{Code, Result};
use crate::units::Bytes;
use failures::{errno, mount_code, mount_failure, store};
use nix::errno::Errno;
use plan::{check_descriptor, plan, ActivateFacts, Data, Verity};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::PoisonError;
use undo::{Made, Undo};

/// One APEX to activate.
pub struct ActivateItem {
    /// The client's file.
    pub file: File,
    /// What is asked for.
    pub request: ActivateRequest,
    /// A file that a missing hash tree is built into.
    pub hash_tree: Option<File>,
}

/// An APEX that was activated.
#[derive(Debug)]
pub struct Activated {
    /// What was carried out.
    pub plan: ActivatePlan,
    /// What is not had as asked.
    pub warnings: Vec<String>,
    /// Time per step.
    pub steps: Steps,
}

impl Images {
    /// Activates every item; one result for each, in their order. Items fail one by one, and one
    /// that fails leaves nothing behind.
    ///
    /// # Errors
    /// `INVALID_REQUEST` for more than [`super::MAX_ITEMS`] items.
    pub fn activate_all(&self, items: &[ActivateItem]) -> Result<Vec<Result<Activated>>> {
        check_count(items.len())?;
        Ok(run_all(items, || HELPERS, |item| self.activate(item)))
    }

    /// Activates one APEX.
    ///
    /// # Errors
    /// What the step that failed says; `IN_USE` where one of its name is active already.
    pub fn activate(&self, item: &ActivateItem) -> Result<Activated> {
        let mut steps = Steps::default();
        let plan = self.plan_of(item, &mut steps)?;
        let _turn = self.turn(&plan.package.name)?;
        self.check_inactive(&plan)?;
        let mut undo = Undo::new(&*self.mapper, &*self.mounts);
        let mut warnings = plan.warnings.clone();
        let made = self
            .make_device(item, &plan, &mut undo, &mut steps, &mut warnings)
            .and_then(|()| self.mount(&plan, &mut undo, &mut steps));
        match made {
            Ok(()) => undo.keep(),
            Err(failure) => return Err(undo.back(failure)),
        }
        Ok(Activated {
            plan,
            warnings,
            steps,
        })
    }

    /// What would be done with a file; makes nothing. Verifies the signature.
    ///
    /// # Errors
    /// As [`Images::activate`] up to the plan.
    pub fn activate_plan(&self, item: &ActivateItem) -> Result<ActivatePlan> {
        self.plan_of(item, &mut Steps::default())
    }

    fn plan_of(&self, item: &ActivateItem, steps: &mut Steps) -> Result<ActivatePlan> {
        let file = steps.run(Step::Facts, || FileFacts::read(&item.file))?;
        check_descriptor(&item.request.name, &file)?;
        let device = match file.kind {
            FileKind::Block => Some(DeviceNumber::of(&item.file).map_err(|errno| {
                let text = "cannot look at the block device";
                Step::Facts.fail(Code::DeviceFailed, text).errno(errno)
            })?),
            _ => None,
        };
        let hash_tree = item.hash_tree.as_ref().map(FileFacts::read).transpose()?;
        let source = FileSource::new(&item.file, file.size);
        let contents = steps.run(Step::Apex, || Contents::read(&source))?;
        let vbmeta = steps.run(Step::Avb, || Vbmeta::read(&source, contents.payload))?;
        let facts = ActivateFacts {
            file: &file,
            device,
            contents: &contents,
            vbmeta: &vbmeta,
            hash_tree: hash_tree.as_ref(),
            root: &self.root,
        };
        // The signature is what takes the time.
        steps.run(Step::Avb, || plan(&item.request, &facts))
    }

    /// One at a time for each name; the others go on.
    fn turn(&self, name: &str) -> Result<Turn<'_>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.insert(name.to_owned()) {
            return Ok(Turn {
                images: self,
                name: name.to_owned(),
            });
        }
        let text = format!("{name} is being activated or deactivated by somebody else");
        Err(Step::Plan
            .fail(Code::InUse, text)
            .remedy("name each APEX once"))
    }

    /// Neither place is mounted. What a dead process left half-made is taken away first.
    fn check_inactive(&self, plan: &ActivatePlan) -> Result<()> {
        let taken = |table: &str| {
            [&plan.bind_point, &plan.mount_point]
                .into_iter()
                .find(|point| active::mounted_at(table, point).is_some())
        };
        let mut point = taken(&self.mount_table(Step::Plan)?);
        if point.is_some() && self.clear_half_made(Some(&plan.package.name)) {
            point = taken(&self.mount_table(Step::Plan)?);
        }
        let Some(point) = point else {
            return Ok(());
        };
        let text = format!("{} is mounted already", point.display());
        let name = &plan.package.name;
        let remedy = format!("deactivate it first: `blockctl apex deactivate {name}`");
        Err(Step::Plan.fail(Code::InUse, text).remedy(remedy))
    }

    /// The block device that will be mounted; `undo` has it.
    fn make_device(
        &self,
        item: &ActivateItem,
        plan: &ActivatePlan,
        undo: &mut Undo<'_>,
        steps: &mut Steps,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let built = match &plan.verity {
            Some(verity) if verity.place == TreePlace::Built => {
                Some(self.build_tree(item, plan, verity, undo, steps)?)
            }
            _ => None,
        };
        let data = match &plan.data {
            Data::Loop(request) => {
                let (number, more) = self.loop_device(&item.file, request.clone(), undo, steps)?;
                warnings.extend(more);
                number
            }
            Data::Linear(table) => {
                let name = plan.package.linear_name();
                mapper::make(&*self.mapper, &name, table, undo, steps)?
            }
        };
        if let Some(verity) = &plan.verity {
            let table = verity::table(&verity.tree, verity.place, data, built.unwrap_or(data));
            let name = plan.package.verity_name();
            mapper::make(&*self.mapper, &name, &[table], undo, steps)?;
        }
        Ok(())
    }

    fn loop_device(
        &self,
        file: &File,
        request: AttachRequest,
        undo: &mut Undo<'_>,
        steps: &mut Steps,
    ) -> Result<(DeviceNumber, Vec<String>)> {
        let file = file.try_clone().map_err(|error| {
            let text = "cannot keep the descriptor: too many files are open";
            Step::Open
                .fail(Code::DeviceFailed, text)
                .errno(errno(&error))
        })?;
        let attached = self.attach(&AttachItem { file, request })?;
        steps.add(&attached.steps);
        let number = self
            .loops
            .device_number(attached.number, attached.device.as_fd());
        undo.made(Made::Device(attached.device));
        let number = number.map_err(|errno| {
            let text = format!("cannot look at loop{}", attached.number);
            Step::ReadBack.fail(Code::DeviceFailed, text).errno(errno)
        })?;
        Ok((number, attached.warnings))
    }

    /// Builds the tree into the client's file and attaches that. dm-verity checks the tree itself
    /// against the signed root, so that it does not matter what becomes of the file.
    fn build_tree(
        &self,
        item: &ActivateItem,
        plan: &ActivatePlan,
        verity: &Verity,
        undo: &mut Undo<'_>,
        steps: &mut Steps,
    ) -> Result<DeviceNumber> {
        let Some(file) = &item.hash_tree else {
            let text = "hashTree is missing";
            return Err(Step::HashTree.fail(Code::InvalidRequest, text));
        };
        let length = steps.run(Step::HashTree, || {
            let source = FileSource::new(&item.file, plan.payload.offset + plan.payload.length);
            let tree = verity::build(&source, plan.payload, &verity.tree)?;
            store(file, &tree)?;
            Ok(tree.len() as u64)
        })?;
        let request = AttachRequest {
            start: Start::At(Bytes(0)),
            length: Some(Bytes(length)),
            block_size: Some(verity.tree.hash_block_size.min(4096)),
            ..AttachRequest::apex(&plan.package.tag_name())
        };
        Ok(self.loop_device(file, request, undo, steps)?.0)
    }

    fn mount(&self, plan: &ActivatePlan, undo: &mut Undo<'_>, steps: &mut Steps) -> Result<()> {
        let mounts = &*self.mounts;
        let point = &plan.mount_point;
        steps.run(Step::Mount, || {
            self.folder(Step::Mount, point, undo)?;
            let device = undo.device().ok_or_else(|| {
                Step::Mount.fail(Code::DeviceFailed, "there is no device to mount")
            })?;
            mounts
                .mount(device, point, plan.file_system, plan.flags)
                .map_err(|errno| mount_failure(plan, errno))?;
            undo.made(Made::Mount(point.clone()));
            Ok(())
        })?;
        let same = steps.run(Step::Manifest, || self.compare_manifest(plan));
        // After the first reads: what they found explains a manifest that cannot be read.
        if plan.verity.is_some() {
            let name = plan.package.verity_name();
            steps.run(Step::VerityState, || {
                mapper::check_verity(&*self.mapper, &name)
            })?;
        }
        same?;
        steps.run(Step::Bind, || {
            self.folder(Step::Bind, &plan.bind_point, undo)?;
            mounts.bind(point, &plan.bind_point).map_err(|errno| {
                let text = format!(
                    "cannot mount {} at {}",
                    point.display(),
                    plan.bind_point.display()
                );
                Step::Bind.fail(mount_code(errno), text).errno(errno)
            })?;
            undo.made(Made::Mount(plan.bind_point.clone()));
            Ok(())
        })
    }

    /// A folder to mount on. One that is there is used, and stays on failure.
    fn folder(&self, step: Step, path: &Path, undo: &mut Undo<'_>) -> Result<()> {
        match self.mounts.make_folder(path) {
            Ok(()) => undo.made(Made::Folder(path.to_owned())),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                let text = format!("cannot make the folder {}", path.display());
                let remedy = match errno {
                    Errno::ENOENT => {
                        "mount a tmpfs at the folder of all APEXes, or name another \
                                      one: --apex-root DIR"
                    }
                    Errno::EROFS => {
                        "the folder of all APEXes lies on a read-only file system: \
                                     mount a tmpfs there, or name another one: --apex-root DIR"
                    }
                    _ => "is the folder of all APEXes (--apex-root) writable for root?",
                };
                return Err(step
                    .fail(mount_code(errno), text)
                    .errno(errno)
                    .remedy(remedy));
            }
        }
        Ok(())
    }

    fn compare_manifest(&self, plan: &ActivatePlan) -> Result<()> {
        let path = plan.mount_point.join("apex_manifest.pb");
        let limit = u64::from(MAX_MANIFEST);
        let inside = self.mounts.read(&path, limit).map_err(|errno| {
            let text = format!(
                "cannot read the manifest inside the payload ({})",
                path.display()
            );
            let remedy = "the payload is damaged, or was not made by apexer";
            Step::Manifest
                .fail(Code::NotAnApex, text)
                .errno(errno)
                .remedy(remedy)
        })?;
        if inside == plan.manifest {
            return Ok(());
        }
        let text = "the manifest inside the payload is not the archive's";
        let remedy = "do not use the file: what the archive says of itself was changed";
        Err(Step::Manifest.fail(Code::BadSignature, text).remedy(remedy))
    }

    pub(super) fn mount_table(&self, step: Step) -> Result<String> {
        self.mounts.table().map_err(|errno| {
            let text = "cannot read /proc/self/mountinfo";
            let remedy = "is /proc mounted?";
            step.fail(Code::DeviceFailed, text)
                .errno(errno)
                .remedy(remedy)
        })
    }

    /// The folder of all mounts.
    pub fn apex_root(&self) -> &Path {
        &self.root
    }

    /// The same, with another folder of all mounts than `/apex`. Links in its path are followed
    /// now: the kernel tells mount points without them.
    pub fn with_apex_root(mut self, root: &Path) -> Images {
        self.root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        self
    }
}

/// A name that is being worked on.
struct Turn<'a> {
    images: &'a Images,
    name: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let busy = self.images.busy.lock();
        busy.unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
    }
}

#[cfg(test)]
mod tests;
