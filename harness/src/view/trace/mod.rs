//! Traces for viewers: Chrome trace JSON, which Perfetto opens, and snapshots that PyTorch's memory
//! viewer opens. `docs/guide/traces.md` documents what is written.
//!
//! `chrome` has the events of the JSON; `pool` writes a log as such events, `heap` maps of heaps.
//! `snapshot` writes a log as a snapshot, whose segments `extents` collects. Logs are written while
//! they are read: `streamed` serialises events one by one.

mod chrome;
mod extents;
mod heap;
mod pool;
mod snapshot;
mod streamed;

pub use heap::{check_times, perfetto as perfetto_of_maps};
pub use pool::perfetto;
pub use snapshot::pytorch;
