//! Pools that kernels allocate from: setup, host-side inspection, and release.
//!
//! A pool owns its memory and its metadata, in separate allocations, and provides a handle that is
//! passed to kernels by value. The handle names the pool's memory, so a launch after the pool was
//! dropped fails.

mod bump;
mod freelist;
mod global;
mod heap;
mod shared;

pub use bump::{Bump, BumpBuilder, BumpStats};
pub use freelist::{FreeList, FreeListBuilder, FreeListStats};
pub use heap::{
    AllocationSite, Heap, HeapBuilder, HeapClassStats, HeapMap, HeapSnapshot, HeapStats, InvalidMap, Leak,
    Leaks, MapPart, MapSpan, MapTotals, Origin, SiteLeaks, SlabContent,
};
pub use shared::{Faults, Violation};

/// Asserts that threads can share all of these.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Heap>();
    is_shared::<HeapSnapshot>();
    is_shared::<FreeList>();
    is_shared::<Bump>();
};
