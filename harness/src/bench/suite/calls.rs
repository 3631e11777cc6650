//! The allocators whose calls are timed one by one.

use super::malloc::Malloc;
use crate::OwnModule;
use crate::bench::load::Load;
use crate::suite_kernels::{
    suite_heap_alloc_latency, suite_heap_churn_latency, suite_heap_free_latency, suite_malloc_alloc_latency,
    suite_malloc_churn_latency, suite_malloc_free_latency,
};
use warpheap::device_pools::Heap;
use warpheap::driver::{DeviceBuffer, Module};
use warpheap::kernel_names;

/// Pairs of allocation and free per thread in a launch of [`Calls::churn`].
pub(super) const TURNS: u32 = 4;

const LAUNCHED: [&str; 3] =
    kernel_names![suite_heap_alloc_latency, suite_heap_free_latency, suite_heap_churn_latency];

/// The kernels that time calls of the heap.
pub(super) struct Timed(Module);

impl Timed {
    pub fn load(own: &OwnModule) -> warpheap::Result<Timed> {
        Ok(Timed(own.load_suite(&LAUNCHED)?.module().clone()))
    }

    /// The calls of `heap`.
    pub fn calls<'a>(&'a self, heap: &'a Heap) -> OfHeap<'a> {
        OfHeap { heap, module: &self.0 }
    }
}

/// An allocator whose calls are timed. Each launch stores a duration for each call.
pub(super) trait Calls {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()>;
    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()>;
    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()>;
}

/// The calls of a heap.
pub(super) struct OfHeap<'a> {
    heap: &'a Heap,
    module: &'a Module,
}

impl Calls for OfHeap<'_> {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.sizes, load.out.slice(), durations.slice());
        // SAFETY: heap and buffers are live, and only this stream uses them.
        unsafe { load.launch_in(self.module, suite_heap_alloc_latency, args) }
    }

    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.out.slice(), durations.slice());
        // SAFETY: `out` holds the blocks that the previous launch allocated.
        unsafe { load.launch_in(self.module, suite_heap_free_latency, args) }
    }

    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.sizes, TURNS, allocs.slice(), frees.slice());
        // SAFETY: heap and buffers are live, and only this stream uses them.
        unsafe { load.launch_in(self.module, suite_heap_churn_latency, args) }
    }
}

impl Calls for Malloc {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (load.sizes, load.out.slice(), durations.slice());
        // SAFETY: the buffers are live, and only this stream uses them.
        unsafe { load.launch_in(&self.module, suite_malloc_alloc_latency, args) }
    }

    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (load.out.slice(), durations.slice());
        // SAFETY: `out` holds the blocks that the previous launch allocated.
        unsafe { load.launch_in(&self.module, suite_malloc_free_latency, args) }
    }

    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()> {
        let args = (load.sizes, TURNS, allocs.slice(), frees.slice());
        // SAFETY: the buffers are live, and only this stream uses them.
        unsafe { load.launch_in(&self.module, suite_malloc_churn_latency, args) }
    }
}
