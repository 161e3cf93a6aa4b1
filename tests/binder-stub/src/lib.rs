//! Stands in for libbinder_rs, crate `binder`, where the sources are type-checked the way Soong
//! builds them. It has the items that the facade and generated code use, with the signatures of
//! Android 15 and 16, or with `--cfg binder_dump_file` those of 13 and 14, and no item more: what
//! is missing here is looked up in AOSP before it is added. Nothing in it runs.
//!
//! Only what every one of these versions promises is promised: `Interface` is no `'static` in 13,
//! `Status` no `Clone` in any, and a `ParcelFileDescriptor` no `Clone` and no `Default`.

use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// What a method of an interface returns.
pub type Result<T> = std::result::Result<T, Status>;

/// Errors of the transport.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    OK,
    UNKNOWN_ERROR,
    NAME_NOT_FOUND,
    PERMISSION_DENIED,
    DEAD_OBJECT,
}

/// Kinds of a status.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionCode {
    NONE,
    SECURITY,
    ILLEGAL_ARGUMENT,
    ILLEGAL_STATE,
    UNSUPPORTED_OPERATION,
    SERVICE_SPECIFIC,
    TRANSACTION_FAILED,
}

/// The answer of a call that failed.
pub struct Status(());

impl Status {
    /// The `&CStr` form; the one that takes `&str` is not in every version.
    pub fn new_service_specific_error(_code: i32, _message: Option<&CStr>) -> Status {
        unimplemented!()
    }

    /// As above.
    pub fn new_exception(_exception: ExceptionCode, _message: Option<&CStr>) -> Status {
        unimplemented!()
    }

    /// Kind.
    pub fn exception_code(&self) -> ExceptionCode {
        unimplemented!()
    }

    /// Error of the transport.
    pub fn transaction_error(&self) -> StatusCode {
        unimplemented!()
    }

    /// Code of a `SERVICE_SPECIFIC` one.
    pub fn service_specific_error(&self) -> i32 {
        unimplemented!()
    }

    /// Text for people.
    pub fn get_description(&self) -> String {
        unimplemented!()
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

impl std::error::Error for Status {}

impl From<StatusCode> for Status {
    fn from(_: StatusCode) -> Status {
        unimplemented!()
    }
}

impl From<ExceptionCode> for Status {
    fn from(_: ExceptionCode) -> Status {
        unimplemented!()
    }
}

/// A binder object without a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpIBinder(());

impl SpIBinder {
    /// Gives it a type.
    pub fn into_interface<I: FromIBinder + Interface + ?Sized>(
        self,
    ) -> std::result::Result<Strong<I>, StatusCode> {
        unimplemented!()
    }
}

/// Where a dump goes.
#[cfg(binder_dump_file)]
type Dump<'a> = &'a std::fs::File;
/// Where a dump goes.
#[cfg(not(binder_dump_file))]
type Dump<'a> = &'a mut dyn std::io::Write;

/// What every interface is.
pub trait Interface: Send + Sync {
    /// The object without its type.
    fn as_binder(&self) -> SpIBinder {
        unimplemented!()
    }

    /// `dumpsys`.
    fn dump(&self, _writer: Dump<'_>, _arguments: &[&CStr]) -> std::result::Result<(), StatusCode> {
        unimplemented!()
    }
}

/// What `SpIBinder::into_interface` can make.
pub trait FromIBinder: Interface {
    /// Gives an object its type.
    fn try_from(binder: SpIBinder) -> std::result::Result<Strong<Self>, StatusCode>;
}

/// A reference to an object with a type.
pub struct Strong<I: FromIBinder + ?Sized>(PhantomData<Box<I>>);

impl<I: FromIBinder + ?Sized> Clone for Strong<I> {
    fn clone(&self) -> Strong<I> {
        unimplemented!()
    }
}

impl<I: FromIBinder + ?Sized> AsRef<I> for Strong<I> {
    fn as_ref(&self) -> &I {
        unimplemented!()
    }
}

impl<I: FromIBinder + ?Sized> Deref for Strong<I> {
    type Target = I;

    fn deref(&self) -> &I {
        unimplemented!()
    }
}

impl<I: FromIBinder + fmt::Debug + ?Sized> fmt::Debug for Strong<I> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

/// How an object is made. Open for new fields: made with `..Default::default()`.
#[derive(Default)]
pub struct BinderFeatures {
    /// Ask the driver for the caller's SELinux context.
    pub set_requesting_sid: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// What a `ParcelFileDescriptor` holds.
#[cfg(binder_dump_file)]
type Held = std::fs::File;
/// What a `ParcelFileDescriptor` holds.
#[cfg(not(binder_dump_file))]
type Held = std::os::fd::OwnedFd;

/// A descriptor inside a parcel.
#[derive(Debug)]
pub struct ParcelFileDescriptor(Held);

impl ParcelFileDescriptor {
    /// Wraps a file.
    #[cfg(binder_dump_file)]
    pub fn new(file: std::fs::File) -> ParcelFileDescriptor {
        ParcelFileDescriptor(file)
    }

    /// Wraps a descriptor.
    #[cfg(not(binder_dump_file))]
    pub fn new<F: Into<std::os::fd::OwnedFd>>(fd: F) -> ParcelFileDescriptor {
        ParcelFileDescriptor(fd.into())
    }
}

impl AsRef<Held> for ParcelFileDescriptor {
    fn as_ref(&self) -> &Held {
        &self.0
    }
}

impl From<ParcelFileDescriptor> for Held {
    fn from(fd: ParcelFileDescriptor) -> Held {
        fd.0
    }
}

impl PartialEq for ParcelFileDescriptor {
    fn eq(&self, _: &ParcelFileDescriptor) -> bool {
        unimplemented!()
    }
}

impl Eq for ParcelFileDescriptor {}

/// The calling thread.
pub struct ThreadState;

impl ThreadState {
    /// Effective uid of the caller.
    pub fn get_calling_uid() -> u32 {
        unimplemented!()
    }

    /// Pid of the caller.
    pub fn get_calling_pid() -> i32 {
        unimplemented!()
    }

    /// Shows the caller's SELinux context.
    pub fn with_calling_sid<T, F>(_look: F) -> T
    where
        for<'a> F: FnOnce(Option<&'a CStr>) -> T,
    {
        unimplemented!()
    }
}

/// This process.
pub struct ProcessState;

impl ProcessState {
    /// Threads that the kernel may ask for.
    pub fn set_thread_pool_max_thread_count(_threads: u32) {
        unimplemented!()
    }

    /// Starts the pool.
    pub fn start_thread_pool() {
        unimplemented!()
    }

    /// Gives this thread to the pool.
    pub fn join_thread_pool() {
        unimplemented!()
    }
}

/// Publishes an object.
pub fn add_service(_name: &str, _object: SpIBinder) -> std::result::Result<(), StatusCode> {
    unimplemented!()
}

/// The object of that name; waits up to 5 s for it. Deprecated from 15 on.
#[cfg(binder_dump_file)]
pub fn get_interface<T: FromIBinder + ?Sized>(
    _name: &str,
) -> std::result::Result<Strong<T>, StatusCode> {
    unimplemented!()
}

/// The object of that name, if it is there now. From 15 on.
#[cfg(not(binder_dump_file))]
pub fn check_interface<T: FromIBinder + ?Sized>(
    _name: &str,
) -> std::result::Result<Strong<T>, StatusCode> {
    unimplemented!()
}
