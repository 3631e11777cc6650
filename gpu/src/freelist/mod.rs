//! A lock-free pool of blocks of one size.
//!
//! ```text
//!  region[r]   | cursor | free |                        one word, alone in its cache line
//!  bitmap      | words of region 0 | words of region 1 | ...      bit set: block taken
//!  pool        | block 0 | block 1 | ...
//! ```
//!
//! To allocate, a warp *reserves* one block per lane from the count of one region, with one atomic
//! that also moves the region's cursor. It then *claims* that many bits near the cursor, usually
//! all at once in one word. To free, it *releases* the bits and then credits the count. A warp
//! starts at its first region, which its warp index determines. If that region has too few blocks,
//! the warp searches the others.
//!
//! A warp that reserved more blocks than the region had *owes* the difference. It keeps blocks that
//! other threads free before it settles, and cancels what is still owed.
//!
//! Let `bits(r)` be the clear bits of region `r`, `free(r)` its count, `reserved(r)` the blocks
//! reserved in it and not yet claimed, `released(r)` those released and not yet credited.
//! Invariants:
//!
//! - I1. `bits(r) = free(r) + reserved(r) + released(r)`, where `reserved(r)` includes blocks owed.
//!   A thread that has a reservation and owes nothing finds a clear bit.
//! - I2. A set bit has one owner: the thread that turned it from 0 to 1 by its atomic OR.
//! - I3. The owner's writes to its block happen before the release of its bit, and the next claim
//!   of that bit happens before the next owner's writes.
//! - I4. `cursor(r)` moves with every reservation in `r`, so two equal reads of all cursors show
//!   that nothing was reserved in between.
//! - I5. `-free(r)` blocks are owed and not filled while that value is above zero. A cancellation
//!   raises the count to zero at most. A block that is freed while threads owe blocks belongs to
//!   those threads, and they keep it.
//!
//! Any thread writes the words, by atomic read-modify-writes only. The host writes everything
//! between launches.
//!
//! A null result is exact: it is returned only after a scan that finds the pool empty. A scan reads
//! every region twice. It finds the pool empty if no count was above zero and no cursor moved. Each
//! region was then empty for the whole time between its two reads (I4, I5), so all regions were
//! empty when the second pass began. One exception bounds the time of a call: if a group has spent
//! its `PATIENCE` on fruitless searches, because other threads were faster each time, its
//! allocation fails as well. Warps of one region [share a scan](crate::scans):
//!
//! - I6. The result of a scan counts for every warp that arrived before it began.
//!
//! Misuse is detected at the release: a bit that is already clear is a double free, which credits
//! nothing and is recorded. If the block was allocated again between two frees, the second free
//! cannot be distinguished from a free by its owner.
//!
//! There is no ABA problem: no word holds a link, and the claim or release of a bit means the same
//! whatever happened in between. Progress: lock-free while blocks are available; a claim that
//! misses a bit lost it to another claim (I1). A warp that finds its region empty waits at most
//! `WAIT.polls` polls for a scan that is under way.

mod alloc;
mod free;
mod geometry;
mod handle;
#[cfg(all(test, not(loom)))]
mod tests;

pub use geometry::{Geometry, Location, MAX_CAPACITY, MAX_STRIDE};
pub use handle::{FreeList, ORDERINGS, POINTS, Region};
