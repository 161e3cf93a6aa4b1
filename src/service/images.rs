//! `IImageDevices`: authorise, convert, call the use case, map errors.

use crate::aidl;
use crate::aidl::ActivateRequest::ActivateRequest;
use crate::aidl::ActivateResult::ActivateResult;
use crate::aidl::ActiveApex::ActiveApex;
use crate::aidl::AttachRequest::AttachRequest;
use crate::aidl::AttachResult::AttachResult;
use crate::aidl::IImageDevices::IImageDevices;
use crate::aidl::ImageDevice::ImageDevice;
use crate::error::{Code, Failure, Result as UseCaseResult};
use crate::images::{self, AttachItem, Attached, Detached, Images, Start, MAX_ITEMS};
use crate::service::access::Gate;
use crate::service::activate;
use crate::service::dump;
use crate::service::error::answer;
use crate::service::ipc::{
    self, BinderResult, DumpArg, DumpWriter, Interface, ParcelFileDescriptor, StatusCode,
};
use crate::units::Bytes;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The service.
pub struct ImageService {
    gate: Gate,
    images: Arc<Images>,
}

impl ImageService {
    /// Serves `images` to those that `gate` lets through.
    pub fn new(gate: Gate, images: Arc<Images>) -> ImageService {
        ImageService { gate, images }
    }

    fn attach_all(&self, requests: &[AttachRequest]) -> UseCaseResult<Vec<AttachResult>> {
        // Before any descriptor is copied.
        images::check_count(requests.len())?;
        let mut results: Vec<Option<AttachResult>> = requests.iter().map(|_| None).collect();
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
        for (place, result) in places.into_iter().zip(self.images.attach_all(&items)?) {
            results[place] = Some(match result {
                Ok(attached) => done(attached),
                Err(failure) => failed(&requests[place].name, &failure),
            });
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn detach_number(&self, number: i32) -> UseCaseResult<()> {
        let number = u32::try_from(number)
            .map_err(|_| invalid(format!("loopNumber is negative ({number})")))?;
        match self.images.detach(number)? {
            Detached::Now => Ok(()),
            Detached::Deferred => {
                let text = format!("loop{number} is open elsewhere: it goes with its last opener");
                Err(Failure::new(Code::InUse, "detach", text)
                    .remedy("unmount it or drop its leases; nothing more is needed then"))
            }
        }
    }

    fn list_all(&self) -> UseCaseResult<Vec<ImageDevice>> {
        let listing = self.images.list(true)?;
        for line in &listing.skipped {
            log::warn!("list: skipped {line}");
        }
        Ok(listing.devices.iter().map(device).collect())
    }
}

impl Interface for ImageService {
    fn dump(&self, writer: DumpWriter<'_>, arguments: &[DumpArg<'_>]) -> Result<(), StatusCode> {
        dump::answer(&self.gate, writer, arguments, || {
            let listing = self.images.list(false);
            let skipped: String = listing
                .iter()
                .flat_map(|listing| &listing.skipped)
                .map(|line| format!("skipped {line}\n"))
                .collect();
            let devices = listing.map(|listing| listing.devices.iter().map(device).collect());
            let more = skipped + &activate::dump(&self.images);
            dump::images(devices.map_err(|failure| failure.to_string()), &more)
        })
    }
}

impl IImageDevices for ImageService {
    fn attachAll(&self, requests: &[AttachRequest]) -> BinderResult<Vec<AttachResult>> {
        self.gate.check("attachAll")?;
        answer("attachAll", self.attach_all(requests))
    }

    fn activateAll(&self, requests: &[ActivateRequest]) -> BinderResult<Vec<ActivateResult>> {
        self.gate.check("activateAll")?;
        let results = activate::activate_all(&self.images, requests);
        answer("activateAll", results)
    }

    fn detach(&self, number: i32) -> BinderResult<()> {
        self.gate.check("detach")?;
        answer("detach", self.detach_number(number))
    }

    fn deactivate(&self, name: &str) -> BinderResult<()> {
        self.gate.check("deactivate")?;
        answer("deactivate", activate::deactivate(&self.images, name))
    }

    fn listActive(&self) -> BinderResult<Vec<ActiveApex>> {
        self.gate.check("listActive")?;
        answer("listActive", activate::list_active(&self.images))
    }

    fn list(&self) -> BinderResult<Vec<ImageDevice>> {
        self.gate.check("list")?;
        answer("list", self.list_all())
    }
}

pub(super) fn invalid(message: String) -> Failure {
    Failure::new(Code::InvalidRequest, "request", message)
        .remedy("see the documentation of IImageDevices for what each field may be")
}

/// A request as the use case wants it, with a descriptor of its own.
fn item(request: &AttachRequest) -> UseCaseResult<AttachItem> {
    let Some(file) = &request.file else {
        return Err(invalid("there is no file".to_owned()));
    };
    let or_default = |field: &str, value: i64| match value {
        -1 => Ok(None),
        _ => u64::try_from(value)
            .map(|value| Some(Bytes(value)))
            .map_err(|_| invalid(format!("{field} is negative ({value})"))),
    };
    let block_size = match request.blockSizeBytes {
        0 => None,
        size => Some(
            u32::try_from(size)
                .map_err(|_| invalid(format!("blockSizeBytes is negative ({size})")))?,
        ),
    };
    let converted = images::AttachRequest {
        name: request.name.clone(),
        start: or_default("offsetBytes", request.offsetBytes)?.map_or(Start::Payload, Start::At),
        length: or_default("lengthBytes", request.lengthBytes)?,
        block_size,
        read_ahead: or_default("readAheadBytes", request.readAheadBytes)?,
        read_only: request.readOnly,
        direct_io: request.directIo,
        autoclear: request.autoclear,
    };
    let file = keep_file(file)?;
    Ok(AttachItem {
        file,
        request: converted,
    })
}

/// A descriptor of our own.
pub(super) fn keep_file(file: &ParcelFileDescriptor) -> UseCaseResult<File> {
    ipc::dup(file).map(File::from).map_err(|error| {
        let failure = Failure::new(Code::DeviceFailed, "request", "cannot keep the descriptor")
            .remedy("too many files are open: fewer items a call");
        match error.raw_os_error() {
            Some(errno) => failure.errno(nix::errno::Errno::from_raw(errno)),
            None => failure,
        }
    })
}

/// Times for the wire.
pub(super) fn steps(steps: &images::Steps) -> Vec<aidl::StepTime::StepTime> {
    let step = |(step, time): &(images::Step, std::time::Duration)| aidl::StepTime::StepTime {
        step: step.name().to_owned(),
        micros: long(time.as_micros() as u64),
    };
    steps.0.iter().map(step).collect()
}

pub(super) fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn done(attached: Attached) -> AttachResult {
    AttachResult {
        error: aidl::ErrorCode::ErrorCode::OK,
        message: None,
        device: Some(ipc::parcel_fd(attached.device)),
        node: path(&attached.node),
        loopNumber: attached.number as i32,
        reason: attached.plan.reason.to_owned(),
        warnings: attached.warnings,
        steps: steps(&attached.steps),
    }
}

/// The result of an item that failed; logged here, once.
fn failed(name: &str, failure: &Failure) -> AttachResult {
    log::warn!("attachAll: {name:?}: {}: {failure}", failure.code);
    AttachResult {
        error: aidl::ErrorCode::ErrorCode(failure.code as i32),
        message: Some(failure.to_wire()),
        loopNumber: -1,
        ..AttachResult::default()
    }
}

fn device(device: &images::ImageDevice) -> ImageDevice {
    ImageDevice {
        name: device.name.clone(),
        node: path(&device.node),
        loopNumber: device.number as i32,
        backingFile: device.backing_file.clone(),
        offsetBytes: long(device.offset.0),
        sizeBytes: long(device.size.0),
        blockSizeBytes: device.block_size as i32,
        readOnly: device.read_only,
        directIo: device.direct_io,
        autoclear: device.autoclear,
        ours: device.ours,
    }
}
