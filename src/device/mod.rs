//! Devices as the use cases see them: traits named after what they wrap, and their real forms.
//!
//! A trait here is as narrow as the use cases allow, so that a test can put a model behind it. The
//! real forms own file descriptors and turn an errno into meaning only where it has one meaning.

pub mod block;
pub mod buffer;
pub mod cid;
pub mod csd;
pub mod ext_csd;
pub mod host;
pub mod loops;
pub mod mapper;
pub mod medium;
pub mod mmc;
pub mod mounts;
pub mod scratch;
pub mod sysfs;

pub use block::{Access, Block};
pub use buffer::DirectBuffer;
pub use host::{Host, Storage};
pub use loops::{LoopDevice, Loops};
pub use mapper::Mapper;
pub use medium::Medium;
pub use mmc::{Command, Mmc};
pub use mounts::Mounts;
pub use sysfs::Sysfs;
