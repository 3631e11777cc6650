//! A caching pool: blocks of any size, cached for the stream that freed them.
//!
//! ```text
//! stream 7 ── cache: bins, extents ─┐ overflow                   ┌─ blocks of the upstream
//! stream 9 ── cache: bins, extents ─┼─────► shared ◄── segments ─┤ or
//! …                                 ┘ refill  (large pieces,     └─ one reservation that
//!                                              slabs)               grows at its end
//! ```
//!
//! - An allocation that hits a bin of the stream's cache, or a free to it, locks this cache only.
//!   It makes no driver call and records no event. Uncontended, an allocate/free pair costs five
//!   atomic read-modify-writes: two for each lock of the cache and one to claim the block. A block
//!   that the cache no longer remembers is looked up in the global block map, which costs four
//!   more.
//! - Large blocks are cut from the cache's own extents and merge there (`extents`). Cutting or
//!   merging one also locks one shard of the block map exclusively. An allocation costs one search
//!   and two updates of the free pieces' bins, a free up to three updates. The shared state is not
//!   touched.
//! - A request that the cache cannot serve is served from the shared state, where free neighbours
//!   merge, or by the fallback ladder (`ladder`).
//! - `class` defines the size classes and bins. Blocks up to the slab limit take the full size of
//!   their class. Larger blocks take the requested size, cut from a segment by best fit, so that 33
//!   MiB do not take 64.
//!
//! I1: a byte of a segment is in one live block, in one cached block, free, or held by one thread
//! that moves it from one of these states to the next; never in two. I2: work that uses a block
//! runs after all work that may have used it before: on the same stream by stream order, on another
//! stream by an event. I3: `used + cached == reserved`.
//!
//! Modules, each of which names only those before it: `class`, `blocks`, `context`, `arena`,
//! `extents`, `slabs`, `stats`, `cache`, `shared`, `pool`, `growth`, `ladder`, `builder`. A hit
//! passes through `pool`, `class`, `cache` and `blocks`. Methods in `ladder` and `growth` extend
//! the pool, which calls them: they serve a miss from `shared`, which uses `slabs`, `extents` and
//! `arena`.
//!
//! Lock order; a lock is taken only while holding none or locks that come before it: `source`
//! (grows and releases segments; the driver may be waited for), `shared`, then one at a time of:
//! the map of caches; a cache's bins and extents (all of them only to check whether a pool of equal
//! blocks is exhausted); a shard of the block map; its block numbers; a stream's end; the lists of
//! ended streams and of their caches. The hook and upstream allocators are called without holding
//! `shared`.

mod arena;
mod blocks;
mod builder;
mod cache;
mod class;
mod context;
mod extents;
mod growth;
mod ladder;
mod pool;
mod shared;
mod slabs;
mod stats;
#[cfg(test)]
mod tests;

pub(in crate::host_pools) use blocks::ClaimError;
pub use builder::CachingPoolBuilder;
pub(in crate::host_pools) use cache::FreeOutcome;
pub use pool::CachingPool;
pub use stats::{CachingClassStats, CachingPoolStats, RungStats};
