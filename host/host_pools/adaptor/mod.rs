//! Adaptors: allocators that wrap another one, forward every call and add one feature.

mod annotated;
mod failure;
mod limit;
mod logged;
mod statistics;
mod tagged;
mod traced;

pub use annotated::{Annotated, AnnotatedMemory};
pub use failure::{FailureInjected, Failures};
pub use limit::Limit;
pub use logged::{LogAction, LogRecord, Logged};
#[cfg(feature = "csv")]
pub use logged::{LogReader, LogRow, LogTicks, read_log, read_rows};
pub use statistics::{AllocStats, Statistics};
pub use tagged::{TagStats, Tagged};
pub use traced::Traced;
