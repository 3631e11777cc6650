//! Each driver call of a scenario fails in turn: below each host pool, below handles, growable
//! buffers and heaps. `races` stops driver calls instead, where host threads would race. `orders`
//! lets none fail but runs all work late, to find memory that is reused too early.
//!
//! These are unit tests of the library, because a device with failing calls implements the traits
//! behind `Device`, which are private.

mod ended_streams;
mod growable;
mod handles;
mod heap;
mod ledger;
mod orders;
mod pools;
mod races;
mod resets;
mod rig;
mod subjects;
