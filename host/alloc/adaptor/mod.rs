//! Allocators that wrap another one, pass every call on, and add one thing.

mod failure;
mod limit;
mod logged;
mod statistics;
mod traced;

pub use failure::{FailureInjected, Failures};
pub use limit::Limit;
pub use logged::{LogAction, LogRecord, Logged};
#[cfg(feature = "csv")]
pub use logged::{LogRow, read_log, read_rows};
pub use statistics::{AllocStats, Statistics};
pub use traced::Traced;
