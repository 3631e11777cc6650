//! The allocators whose calls are timed one by one.

use super::malloc::Malloc;
use crate::OwnModule;
use crate::bench::load::Load;
use crate::bench::results::Operation::{self, Alloc, Churn, Free};
use crate::suite_kernels::{
    suite_heap_alloc_latency, suite_heap_churn_latency, suite_heap_free_latency, suite_malloc_alloc_latency,
    suite_malloc_churn_latency, suite_malloc_free_latency,
};
use warpheap::device_pools::Heap;
use warpheap::driver::{DeviceBuffer, Module};
use warpheap::kernel_names;

/// Pairs of allocation and free per thread in a launch of a churn.
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

/// A duration for each call of a launch.
pub(super) struct Durations {
    pub allocs: DeviceBuffer<u64>,
    pub frees: DeviceBuffer<u64>,
}

impl Durations {
    /// For `turns` pairs of an allocation and a free per thread.
    pub fn new(load: &Load<'_>, turns: u32) -> warpheap::Result<Durations> {
        let buffer = || load.timer.device.zeroed(load.threads() as usize * turns as usize);
        Ok(Durations { allocs: buffer()?, frees: buffer()? })
    }
}

/// An allocator whose calls are timed.
pub(super) trait Calls {
    /// Launches the kernel of an operation, which stores the duration of each call. A free releases
    /// the blocks that the launch before it allocated.
    fn launch(&self, operation: Operation, load: &Load<'_>, to: &Durations) -> warpheap::Result<()>;
}

/// The calls of a heap.
pub(super) struct OfHeap<'a> {
    heap: &'a Heap,
    module: &'a Module,
}

impl Calls for OfHeap<'_> {
    fn launch(&self, operation: Operation, load: &Load<'_>, to: &Durations) -> warpheap::Result<()> {
        let (module, heap, out, sizes) = (self.module, self.heap.handle(), load.out.slice(), load.sizes);
        let (allocs, frees) = (to.allocs.slice(), to.frees.slice());
        match operation {
            Alloc => {
                let args = (heap, sizes, out, allocs);
                // SAFETY: heap and buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_heap_alloc_latency, args) }
            }
            // SAFETY: `out` holds the blocks that the previous launch allocated.
            Free => unsafe { load.launch_in(module, suite_heap_free_latency, (heap, out, frees)) },
            Churn => {
                let args = (heap, sizes, TURNS, allocs, frees);
                // SAFETY: heap and buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_heap_churn_latency, args) }
            }
        }
    }
}

impl Calls for Malloc {
    fn launch(&self, operation: Operation, load: &Load<'_>, to: &Durations) -> warpheap::Result<()> {
        let (module, out, sizes) = (&self.module, load.out.slice(), load.sizes);
        let (allocs, frees) = (to.allocs.slice(), to.frees.slice());
        match operation {
            // SAFETY: the buffers are live, and only this stream uses them.
            Alloc => unsafe { load.launch_in(module, suite_malloc_alloc_latency, (sizes, out, allocs)) },
            // SAFETY: `out` holds the blocks that the previous launch allocated.
            Free => unsafe { load.launch_in(module, suite_malloc_free_latency, (out, frees)) },
            Churn => {
                let args = (sizes, TURNS, allocs, frees);
                // SAFETY: the buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_malloc_churn_latency, args) }
            }
        }
    }
}
