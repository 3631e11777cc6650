//! The host side of the heap.
//!
//! | module | content |
//! |---|---|
//! | `pool`, `builder` | the heap and its construction |
//! | `offsets` | offsets of the parts of the metadata |
//! | `backing`, `grow` | the memory, and its growth |
//! | `reset` | frees all memory |
//! | `calls`, `allocate` | allocations by the host |
//! | `snapshot`, `stats` | checks and measures the heap |
//! | `map` | what each slab contains, to be drawn and saved |
//! | `report` | why allocations failed |
//! | `debug` | records of a debug heap |

mod allocate;
mod backing;
mod builder;
mod calls;
mod debug;
mod grow;
mod map;
mod offsets;
mod pool;
mod report;
mod reset;
mod snapshot;
mod stats;
#[cfg(test)]
mod tests;

pub use builder::HeapBuilder;
pub use debug::{AllocationSite, Origin};
pub use map::{HeapMap, InvalidMap, MapPart, MapSpan, MapTotals, SlabContent};
pub use pool::Heap;
pub use snapshot::{HeapSnapshot, Leak, Leaks, SiteLeaks};
pub use stats::{HeapClassStats, HeapStats};
