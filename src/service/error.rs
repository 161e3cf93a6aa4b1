//! The one place where a failure becomes a binder status, and back.

use crate::error::{Code, Failure};
use crate::service::ipc::{self, BinderResult, Status};

/// The answer of a method; a failure is logged here, once.
///
/// # Errors
/// The failure as a service-specific error.
pub fn answer<T>(method: &str, result: crate::error::Result<T>) -> BinderResult<T> {
    result.map_err(|failure| {
        log::error!("{method}: {}: {failure}", failure.code);
        ipc::service_error(failure.code as i32, &failure.to_wire())
    })
}

/// What a status of the service means to its client.
pub fn failure(status: &Status) -> Failure {
    match ipc::explain(status) {
        (Some(code), _, text) => Failure::from_wire(code, &text),
        (None, true, text) => Failure::new(Code::Permission, "authorise", text).remedy(
            "call as an allowed user, from an allowed domain; see the interface's documentation",
        ),
        (None, false, text) => Failure::new(
            Code::NoService,
            "call",
            format!("the service did not answer: {text}"),
        )
        .remedy("it may have died or be refused by SELinux; look into the log of blockd"),
    }
}
