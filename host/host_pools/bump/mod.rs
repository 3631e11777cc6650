//! A bump pool: one region, allocated from its start to its end, and reset.
//!
//! ```text
//! region     | block | block   | block |  free           |   one upstream allocation
//!                                      ^ cursor
//! overflow   block, block                                  upstream blocks, by policy
//! ```
//!
//! I1: `cursor` tracks the live blocks of the region, `overflow` the live blocks of the upstream.
//! I2: only a reset moves the cursor back; only [`reset_unchecked`](BumpPool::reset_unchecked) does
//! so with live blocks. I3: a stream gets blocks only after it was ordered after the last reset,
//! and that reset after all earlier use (`order`). I4: a failed allocation or reset leaves the
//! cursor unchanged.
//!
//! A short lock guards all of it: an allocation makes a few comparisons and a push. The driver is
//! called under the lock by a reset, and when a stream allocates for the first time after one. A
//! free records its event without the lock, while the block is `Moving`. The upstream is called
//! without the lock.

mod builder;
mod cursor;
mod order;
mod pool;
mod reset;
#[cfg(test)]
mod tests;

pub use builder::BumpPoolBuilder;
pub use pool::{BumpPool, Overflow};
pub use reset::BumpPoolStats;
