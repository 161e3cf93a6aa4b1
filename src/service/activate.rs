//! `IImageDevices`, the part about mounts: conversions of activations, and calls of the use case.

use crate::aidl;
use crate::aidl::ActivateRequest::ActivateRequest;
use crate::aidl::ActivateResult::ActivateResult;
use crate::aidl::ActiveApex::ActiveApex;
use crate::error::{Failure, Result};
use crate::images::{self, ActivateItem, Activated, Images, MAX_ITEMS};
use crate::service::images::{invalid, keep_file, long, steps};
use crate::service::ipc::ParcelFileDescriptor;
use std::fs::File;

/// `activateAll`.
///
/// # Errors
/// `INVALID_REQUEST` for too many items.
pub fn activate_all(images: &Images, requests: &[ActivateRequest]) -> Result<Vec<ActivateResult>> {
    // Before any descriptor is copied.
    images::check_count(requests.len())?;
    let mut results: Vec<Option<ActivateResult>> = requests.iter().map(|_| None).collect();
    let (mut items, mut places) = (Vec::with_capacity(MAX_ITEMS), Vec::new());
    for (place, request) in requests.iter().enumerate() {
        match item(request) {
            Ok(item) => {
                items.push(item);
                places.push(place);
            }
            Err(failure) => results[place] = Some(failed(&request.name, &failure)),
        }
    }
    for (place, result) in places.into_iter().zip(images.activate_all(&items)?) {
        results[place] = Some(match result {
            Ok(activated) => done(activated),
            Err(failure) => failed(&requests[place].name, &failure),
        });
    }
    Ok(results.into_iter().flatten().collect())
}

/// `listActive`.
///
/// # Errors
/// Where the kernel does not tell.
pub fn list_active(images: &Images) -> Result<Vec<ActiveApex>> {
    Ok(images.active()?.iter().map(active).collect())
}

/// `deactivate`.
///
/// # Errors
/// `NO_SUCH_DEVICE`, `IN_USE`.
pub fn deactivate(images: &Images, name: &str) -> Result<()> {
    for apex in images.deactivate(name)? {
        log::info!("deactivated {}", apex.package);
    }
    Ok(())
}

/// What is active, for a dump.
pub fn dump(images: &Images) -> String {
    let line = |apex: &images::ActiveApex| {
        let state = match (apex.verity, apex.corrupted) {
            (_, true) => "CORRUPTED",
            (true, _) => "dm-verity",
            (false, _) => "unchecked",
        };
        format!(
            "{}: {} ({state})\n",
            apex.mount_point.display(),
            apex.device
        )
    };
    match images.active() {
        Ok(active) => active.iter().map(line).collect(),
        Err(failure) => format!("{failure}\n"),
    }
}

fn kept(file: Option<&ParcelFileDescriptor>) -> Result<Option<File>> {
    file.map(keep_file).transpose()
}

/// A request as the use case wants it, with descriptors of its own.
fn item(request: &ActivateRequest) -> Result<ActivateItem> {
    let file = kept(request.file.as_ref())?;
    let file = file.ok_or_else(|| invalid("there is no file".to_owned()))?;
    let trusted_key = (!request.trustedKey.is_empty()).then(|| request.trustedKey.clone());
    Ok(ActivateItem {
        file,
        request: images::ActivateRequest {
            name: request.name.clone(),
            trusted_key,
            verity: request.verity,
        },
        hash_tree: kept(request.hashTree.as_ref())?,
    })
}

fn done(activated: Activated) -> ActivateResult {
    let plan = activated.plan;
    ActivateResult {
        error: aidl::ErrorCode::ErrorCode::OK,
        message: None,
        mountPoint: plan.mount_point.to_string_lossy().into_owned(),
        version: long(plan.package.version),
        reason: plan.reason.to_owned(),
        warnings: activated.warnings,
        steps: steps(&activated.steps),
    }
}

/// The result of an item that failed; logged here, once.
fn failed(name: &str, failure: &Failure) -> ActivateResult {
    log::warn!("activateAll: {name:?}: {}: {failure}", failure.code);
    ActivateResult {
        error: aidl::ErrorCode::ErrorCode(failure.code as i32),
        message: Some(failure.to_wire()),
        ..ActivateResult::default()
    }
}

fn active(apex: &images::ActiveApex) -> ActiveApex {
    ActiveApex {
        name: apex.package.name.clone(),
        version: long(apex.package.version),
        mountPoint: apex.mount_point.to_string_lossy().into_owned(),
        bound: apex.bound,
        device: apex.device.clone(),
        verity: apex.verity,
        corrupted: apex.corrupted,
    }
}
