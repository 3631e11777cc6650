//! The host side of the heap.
//!
//! | module | content |
//! |---|---|
//! | `memory` | the memory, and the offsets of the parts of the metadata |
//! | `pool`, `builder` | the heap, allocations by the host, and its construction |
//! | `grow` | more memory for a heap |
//! | `reset` | frees all memory |
//! | `snapshot` | checks and measures the heap |
//! | `map` | what each slab contains, to be drawn and saved |
//! | `report` | why allocations failed |
//! | `debug` | records of a debug heap |

mod builder;
mod debug;
mod grow;
mod map;
mod memory;
mod pool;
mod report;
mod reset;
mod snapshot;
#[cfg(test)]
mod tests;

pub use builder::HeapBuilder;
pub use debug::{AllocationSite, Origin};
pub use map::{HeapMap, InvalidMap, MapPart, MapSpan, MapTotals, SlabContent};
pub use pool::Heap;
pub use snapshot::{HeapClassStats, HeapSnapshot, HeapStats, Leak, Leaks, SiteLeaks};
