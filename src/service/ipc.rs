//! Binder under one set of names: libbinder_rs (Soong, `--cfg soong`) or rsbinder (Cargo).
//!
//! Every difference between the two stands here and nowhere else. Signatures of libbinder_rs hold
//! for Android 13 to 16; `--cfg binder_dump_file` chooses the dump of 13 and 14.

#[cfg(not(soong))]
pub use rsbinder_backend::*;
#[cfg(soong)]
pub use soong_backend::*;

/// Who makes the call that this thread is handling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Over kernel binder; the kernel vouches for all of it.
    Binder {
        /// Effective uid.
        uid: u32,
        /// Pid; 0 for a oneway call.
        pid: i32,
        /// SELinux context, where the kernel has SELinux.
        sid: Option<String>,
    },
    /// Over a Unix socket, by SO_PEERCRED at connect.
    Socket {
        /// Effective uid.
        uid: u32,
        /// Pid.
        pid: i32,
    },
    /// In this process.
    Local,
}

#[cfg(soong)]
mod soong_backend {
    use super::Caller;
    use std::ffi::CString;
    use std::os::fd::OwnedFd;

    pub use binder::Result as BinderResult;
    pub use binder::{
        BinderFeatures, ExceptionCode, FromIBinder, Interface, ParcelFileDescriptor, SpIBinder,
        Status, StatusCode, Strong,
    };

    /// One argument of `Interface::dump`.
    pub type DumpArg<'a> = &'a std::ffi::CStr;
    /// Where `Interface::dump` writes.
    #[cfg(binder_dump_file)]
    pub type DumpWriter<'a> = &'a std::fs::File;
    /// Where `Interface::dump` writes.
    #[cfg(not(binder_dump_file))]
    pub type DumpWriter<'a> = &'a mut dyn std::io::Write;

    /// An argument of `Interface::dump`.
    pub fn dump_word(argument: &DumpArg<'_>) -> String {
        argument.to_string_lossy().into_owned()
    }

    /// The caller of this thread's transaction.
    pub fn caller() -> Caller {
        Caller::Binder {
            uid: binder::ThreadState::get_calling_uid(),
            pid: binder::ThreadState::get_calling_pid(),
            sid: binder::ThreadState::with_calling_sid(|sid| {
                sid.map(|s| s.to_string_lossy().into_owned())
            }),
        }
    }

    /// A service-specific error. The `&CStr` form is there in every libbinder_rs since 12.
    pub fn service_error(code: i32, message: &str) -> Status {
        Status::new_service_specific_error(code, CString::new(message).ok().as_deref())
    }

    /// EX_SECURITY.
    pub fn security(message: &str) -> Status {
        Status::new_exception(
            ExceptionCode::SECURITY,
            CString::new(message).ok().as_deref(),
        )
    }

    /// What a Status says: the service-specific code if it is one, whether it is EX_SECURITY, and
    /// the text.
    pub fn explain(status: &Status) -> (Option<i32>, bool, String) {
        let specific = status.exception_code() == ExceptionCode::SERVICE_SPECIFIC;
        (
            specific.then(|| status.service_specific_error()),
            status.exception_code() == ExceptionCode::SECURITY,
            message(&status.get_description()),
        )
    }

    /// get_description() of libbinder writes `Status(-8, …): 'code: text'`.
    fn message(description: &str) -> String {
        let inner = description
            .split_once(": '")
            .map_or(description, |(_, rest)| rest.trim_end_matches('\''));
        inner
            .split_once(": ")
            .map_or(inner, |(_, text)| text)
            .to_owned()
    }

    /// Opens the driver.
    pub fn init(threads: u32) -> Result<(), String> {
        binder::ProcessState::set_thread_pool_max_thread_count(threads);
        binder::ProcessState::start_thread_pool();
        Ok(())
    }

    /// Serves until the process ends.
    pub fn join() {
        binder::ProcessState::join_thread_pool();
    }

    /// Publishes `service` under `name`.
    pub fn add_service(name: &str, service: SpIBinder) -> Result<(), String> {
        binder::add_service(name, service).map_err(|code| format!("{code:?}"))
    }

    /// The service `name`, if it is registered now. Android 13 and 14 only know how to wait up to
    /// 5 s for it.
    pub fn get_interface<T: binder::FromIBinder + ?Sized>(name: &str) -> Result<Strong<T>, String> {
        #[cfg(not(binder_dump_file))]
        use binder::check_interface as get;
        #[cfg(binder_dump_file)]
        use binder::get_interface as get;
        get(name).map_err(|code| format!("{code:?}"))
    }

    /// Wraps a descriptor.
    pub fn parcel_fd(fd: OwnedFd) -> ParcelFileDescriptor {
        ParcelFileDescriptor::new(std::fs::File::from(fd))
    }

    /// Makes the binder object of an implementation; it asks the driver for the caller's context.
    #[macro_export]
    macro_rules! new_binder {
        ($native:path, $implementation:expr) => {{
            use $native as Native;
            Native::new_binder(
                $implementation,
                $crate::service::ipc::BinderFeatures {
                    set_requesting_sid: true,
                    ..Default::default()
                },
            )
        }};
    }
}

#[cfg(not(soong))]
mod rsbinder_backend {
    use super::Caller;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    pub use rsbinder::{
        BinderFeatures, BinderResult, ExceptionCode, FromIBinder, Interface, ParcelFileDescriptor,
        SIBinder as SpIBinder, Status, StatusCode, Strong,
    };

    /// One argument of `Interface::dump`.
    pub type DumpArg<'a> = String;
    /// Where `Interface::dump` writes.
    pub type DumpWriter<'a> = &'a mut dyn std::io::Write;

    /// An argument of `Interface::dump`.
    pub fn dump_word(argument: &DumpArg<'_>) -> String {
        argument.clone()
    }

    /// The caller of this thread's transaction. Outside of one: this process.
    pub fn caller() -> Caller {
        use rsbinder::rpc::PeerIdentity;
        match rsbinder::calling_caller() {
            Some(rsbinder::Caller::Kernel { uid, pid, sid }) => Caller::Binder {
                uid,
                pid,
                sid: sid.map(|s| s.to_string_lossy().into_owned()),
            },
            Some(rsbinder::Caller::Rpc(PeerIdentity::Local { uid, pid })) => {
                Caller::Socket { uid, pid }
            }
            // Other transports have no identity that could be trusted, and are not served.
            Some(_) => Caller::Socket {
                uid: u32::MAX,
                pid: -1,
            },
            None => Caller::Local,
        }
    }

    /// A service-specific error.
    pub fn service_error(code: i32, message: &str) -> Status {
        Status::new_service_specific_error(code, Some(message.to_owned()))
    }

    /// EX_SECURITY.
    pub fn security(message: &str) -> Status {
        Status::from((ExceptionCode::Security, message))
    }

    /// What a Status says: the service-specific code if it is one, whether it is EX_SECURITY, and
    /// the text.
    pub fn explain(status: &Status) -> (Option<i32>, bool, String) {
        let specific = status.exception_code() == ExceptionCode::ServiceSpecific;
        let text = status
            .message()
            .map_or_else(|| format!("{status:?}"), |text| text.to_string());
        (
            specific.then(|| status.service_specific_error()),
            status.exception_code() == ExceptionCode::Security,
            text,
        )
    }

    /// Opens the driver.
    pub fn init(threads: u32) -> Result<(), String> {
        // init_default() would fix the pool at 15 threads; the path is chosen as it does.
        let path = [rsbinder::DEFAULT_BINDER_PATH, rsbinder::LEGACY_BINDER_PATH]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or_else(|| {
                format!(
                    "neither {} nor {} exists",
                    rsbinder::DEFAULT_BINDER_PATH,
                    rsbinder::LEGACY_BINDER_PATH
                )
            })?;
        rsbinder::ProcessState::init(path, threads)
            .map(|_| rsbinder::ProcessState::start_thread_pool())
            .map_err(|error| format!("{path}: {error}"))
    }

    /// Serves until the process ends.
    pub fn join() {
        if let Err(error) = rsbinder::ProcessState::join_thread_pool() {
            log::error!("binder thread pool: {error:?}");
        }
    }

    /// Publishes `service` under `name`.
    pub fn add_service(name: &str, service: SpIBinder) -> Result<(), String> {
        rsbinder::hub::add_service(name, service).map_err(|status| format!("{status:?}"))
    }

    /// The service `name`, if it is registered now.
    pub fn get_interface<T: rsbinder::FromIBinder + ?Sized>(
        name: &str,
    ) -> Result<Strong<T>, String> {
        rsbinder::hub::check_interface(name).map_err(|code| format!("{code:?}"))
    }

    /// Wraps a descriptor.
    pub fn parcel_fd(fd: OwnedFd) -> ParcelFileDescriptor {
        ParcelFileDescriptor::new(fd)
    }

    /// Makes the binder object of an implementation; it asks the driver for the caller's context.
    #[macro_export]
    macro_rules! new_binder {
        ($native:path, $implementation:expr) => {{
            use $native as Native;
            let mut features = $crate::service::ipc::BinderFeatures::default();
            features.set_requesting_sid = true;
            Native::new_binder_with_features($implementation, features)
        }};
    }
}

/// `dup` of a received descriptor. `as_ref()` is an `OwnedFd`, or a `File` on Android 13 and 14.
///
/// # Errors
/// EMFILE.
#[allow(clippy::useless_conversion)]
pub fn dup(fd: &ParcelFileDescriptor) -> std::io::Result<std::os::fd::OwnedFd> {
    Ok(fd.as_ref().try_clone()?.into())
}

/// Writes the text of a dump. A reader that went away is no failure of the service.
pub fn write_dump(writer: DumpWriter<'_>, text: &str) {
    #[cfg(all(soong, binder_dump_file))]
    use std::io::Write;
    #[cfg(all(soong, binder_dump_file))]
    let mut writer = writer;
    if let Err(error) = writer.write_all(text.as_bytes()) {
        log::info!("dump: {error}");
    }
}
