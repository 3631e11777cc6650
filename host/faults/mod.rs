//! Each driver call of a scenario fails in turn: below each host pool, below handles, growable
//! buffers and heaps. `races` stops driver calls instead, where host threads would race.
//!
//! These are unit tests of the library, because a device with failing calls implements the traits
//! behind `Device`, which are private.

mod growable;
mod handles;
mod heap;
mod pools;
mod races;
mod resets;
mod rig;
mod subjects;
