//! Host pools by name, and operations on any of them: replay of a log, and benchmarks.
//! [`timeline`] reads a log as a stream of events.
//!
//! ```text
//!   a log of allocations ─┐                          ┌─ each call, and memory held   (replay)
//!   random allocations   ─┴─ Script ── Player ── any ┤
//!   pairs of an allocation and its free ─────── pool ┴─ time of all calls            (bench)
//! ```
//!
//! [`POOLS`] is the list. `warpheap pool` replays, measures and shows every pool in it.

pub mod bench;
mod kinds;
mod player;
pub mod replay;
mod script;
pub mod timeline;

pub use crate::summary::Spread;
pub use kinds::{BLOCKS, CACHING, DRIVER, DRIVER_POOL, POOLS, PoolKind};
pub use script::Demand;
