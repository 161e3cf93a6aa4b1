//! `IImageDevices`: authorise, convert, call the use case, map errors.

use crate::aidl::ActivateRequest::ActivateRequest;
use crate::aidl::ActivateResult::ActivateResult;
use crate::aidl::AttachRequest::AttachRequest;
use crate::aidl::AttachResult::AttachResult;
use crate::aidl::IImageDevices::IImageDevices;
use crate::aidl::ImageDevice::ImageDevice;
use crate::images::Images;
use crate::service::access::Gate;
use crate::service::error::unsupported;
use crate::service::ipc::{BinderResult, Interface};
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
}

impl Interface for ImageService {}

impl IImageDevices for ImageService {
    fn attachAll(&self, _requests: &[AttachRequest]) -> BinderResult<Vec<AttachResult>> {
        self.gate.check("attachAll")?;
        let _ = &self.images;
        unsupported("attachAll")
    }

    fn activateAll(&self, _requests: &[ActivateRequest]) -> BinderResult<Vec<ActivateResult>> {
        self.gate.check("activateAll")?;
        unsupported("activateAll")
    }

    fn detach(&self, _number: i32) -> BinderResult<()> {
        self.gate.check("detach")?;
        unsupported("detach")
    }

    fn deactivate(&self, _name: &str) -> BinderResult<()> {
        self.gate.check("deactivate")?;
        unsupported("deactivate")
    }

    fn list(&self) -> BinderResult<Vec<ImageDevice>> {
        self.gate.check("list")?;
        unsupported("list")
    }
}
