//! A bump arena: memory is allocated front to back and freed all at once by a reset.
//!
//! ```text
//!  root      one counter: memory in no lease | remaining |
//!  shard[s]  one per SM: a part of the pool  | lease: end, remaining | tail: end, remaining |
//!
//!  pool      [ lease of 0 |###---][ lease of 1 |#-----][ lease of 0, used up ][ ... root's ... ]
//! ```
//!
//! A warp allocates for all its lanes from the lease of its SM's shard with one atomic subtraction.
//! Only the warps of one SM contend for a word. Half of the pool is leased from the start. When a
//! lease is exhausted, the shard gets another one from the root. When the root is empty, warps
//! allocate from other shards. An arena without sharding has a single shard, which is retired from
//! the start.
//!
//! Everything is counted in granules (the least alignment). Invariants:
//!
//! - I1. The allocated granules, `wasted`, the root's remaining granules and those of every lease
//!   and tail are disjoint; together they are the pool.
//! - I2. A counter below zero belongs to the one thread that took it there (the *crosser*). Until
//!   that thread swaps in the next value, every other subtraction fails, and the swap discards it.
//! - I3. A counter at or above zero is exact: it includes no failed subtraction.
//! - I4. A retired shard (no lease, and none to come) stays retired, and its tail only shrinks.
//! - I5. `ceiling` is above the size of every request that could still succeed. It only falls.
//!
//! Writers. `remaining` and `lease`: any thread by subtraction, the crosser by a swap, and (`lease`
//! only) any thread by compare-and-swap from a value at or above zero. All are read-modify-writes:
//! what a thread's fence has put before its write is before every later value too. `tail`: the
//! crosser, and any thread by compare-and-swap. The host writes everything between launches.
//!
//! An allocation fails only if neither the root nor any lease or tail has its size in one piece. A
//! failed allocation changes none of them (I3). `wasted` counts what sharding loses: remainders of
//! leases that do not fit the next request and that are not kept because a larger remainder is kept
//! already. Requests of a single size that divides 512 granules lose nothing. Requests of another
//! single size lose less than one request per shard.
//!
//! Progress: a warp that finds a counter below zero waits for the crosser, `SETTLE_POLLS` polls at
//! most, then allocates from the root or fails. Every call ends in bounded time.

mod alloc;
mod handle;
mod lease;
#[cfg(all(test, not(loom)))]
#[path = "../../tests/support/arena.rs"]
#[allow(dead_code, reason = "unit tests use a part of it")]
mod test_arena;

pub use handle::{Bump, MAX_GRANULES, ORDERINGS, POINTS, Root, Shard, first_lease};
pub use lease::RESIDENT_WARPS;
