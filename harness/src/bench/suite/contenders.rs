//! What a series measures: the floors, the device pools of this library, and CUDA's `malloc`.

use super::extent::Extent;
use super::malloc::{CUDA_MALLOC, Malloc};
use crate::Result;
use crate::bench::context::Bench;
use crate::bench::load::{Load, Pool};
use crate::bench::results::Operation::{self, Alloc, Churn, Free};
use crate::kernels::bench::{
    bench_alloc_floor, bench_bump_alloc, bench_churn_strided_floor, bench_free_floor, bench_freelist_churn,
    bench_heap_alloc_each, bench_heap_churn, bench_heap_churn_cached, bench_heap_free_each,
};
use crate::suite_kernels::{suite_malloc_alloc, suite_malloc_churn, suite_malloc_free};
use warpheap::device_pools::{Bump, FreeList, Heap};
use warpheap::driver::DeviceBuffer;
use warpheap::kernel_names;

/// Pairs per thread of a churn. CUDA's `malloc` takes a second for each with 2^20 threads.
pub(super) const TURNS: u32 = 4;

/// A pool for one load.
pub(super) trait Contender {
    /// Launches the kernel of an operation. After allocations, a free releases all their blocks.
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()>;

    /// Checks the pool after all blocks were freed.
    fn check(&self, _name: &str) -> Result<()> {
        Ok(())
    }
}

/// What a contender is built with.
pub(super) struct Setup<'a> {
    pub bench: &'a Bench,
    pub extent: &'a Extent,
    /// CUDA's `malloc`; `None` if it is left out.
    pub malloc: Option<&'a Malloc>,
}

type Build = fn(&Setup<'_>, u32, u32) -> Result<Box<dyn Contender>>;

/// A kind of contender.
pub(super) struct Kind {
    pub name: &'static str,
    pub operations: &'static [Operation],
    /// Why it is not measured with so many threads and bytes.
    pub limit: fn(&Setup<'_>, u32, u32) -> Option<String>,
    /// Makes a contender for so many threads and bytes.
    pub build: Build,
}

/// All kinds, the floor first.
pub(super) const KINDS: [Kind; 7] = [
    Kind::new(FLOOR, &[Alloc, Free, Churn], |setup, threads, bytes| {
        let stride = bytes.min(MOST_STRIDE) / 8;
        let memory = setup.bench.timer.device.zeroed(threads as usize * stride as usize)?;
        Ok(Box::new(Floor { memory, stride }))
    }),
    Kind::new("bump", &[Alloc], |setup, threads, bytes| {
        let room = setup.extent.room(threads, bytes);
        Ok(Box::new(Bump::builder(room).build(&setup.bench.timer.device)?))
    }),
    Kind::new("free list", &[Alloc, Free, Churn], |setup, threads, bytes| {
        // Twice the blocks that are used at once: searches are short.
        Ok(Box::new(setup.bench.freelist(2 * threads, bytes.into())?))
    }),
    Kind::new(HEAP, &[Alloc, Free, Churn], |setup, threads, bytes| {
        Ok(Box::new(setup.bench.heap(setup.extent.room(threads, bytes))?))
    }),
    Kind::new("heap group calls", &[Alloc, Free], |setup, threads, bytes| {
        Ok(Box::new(Groups(setup.bench.heap(setup.extent.room(threads, bytes))?)))
    }),
    Kind::new("heap block cache", &[Churn], |setup, threads, bytes| {
        Ok(Box::new(Cached(setup.bench.heap(setup.extent.room(threads, bytes))?)))
    }),
    Kind {
        name: CUDA_MALLOC,
        operations: &[Alloc, Free, Churn],
        limit: |setup, threads, bytes| setup.malloc.and_then(|malloc| malloc.limit(threads, bytes)),
        build: |setup, _, _| {
            let malloc = setup.malloc.expect("a contender that is left out is not built");
            Ok(Box::new(malloc.clone()))
        },
    },
];

/// The name of the floor.
pub(super) const FLOOR: &str = "floor";
/// The name of the heap.
pub(super) const HEAP: &str = "heap";

/// The kernels that these contenders launch, besides those of [`Pool`].
pub(super) const LAUNCHED: [&str; 9] = kernel_names![
    bench_alloc_floor,
    bench_bump_alloc,
    bench_churn_strided_floor,
    bench_free_floor,
    bench_freelist_churn,
    bench_heap_alloc_each,
    bench_heap_churn,
    bench_heap_churn_cached,
    bench_heap_free_each
];

impl Kind {
    const fn new(name: &'static str, operations: &'static [Operation], build: Build) -> Kind {
        Kind { name, operations, limit: |_, _, _| None, build }
    }
}

/// Maximum distance between the places of two threads in the floor of a churn, in bytes.
const MOST_STRIDE: u32 = 4096;

/// The kernels without an allocator.
struct Floor {
    /// Where the threads of a churn store: as far from each other as blocks are.
    memory: DeviceBuffer<u64>,
    /// In words of 8 bytes.
    stride: u32,
}

impl Contender for Floor {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (out, order) = (load.out.slice(), load.order(false));
        match operation {
            // SAFETY: `out` is live, and only this stream uses it.
            Alloc => unsafe { load.launch(bench_alloc_floor, (load.out.address(), out, load.sizes)) },
            // SAFETY: `out` and the counter are live, and only this stream uses them.
            Free => unsafe { load.launch(bench_free_floor, (out, order, load.counter())) },
            Churn => {
                let args = (self.memory.slice(), self.stride, TURNS);
                // SAFETY: the memory has `stride` words per thread, and only this stream uses it.
                unsafe { load.launch(bench_churn_strided_floor, args) }
            }
        }
    }
}

/// A free is a reset.
impl Contender for Bump {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        match operation {
            Free => self.reset(),
            _ => {
                let args = (self.handle(), load.out.slice(), load.sizes);
                // SAFETY: the pool and `out` are live, and only this stream uses them.
                unsafe { load.launch(bench_bump_alloc, args) }
            }
        }
    }
}

impl Contender for FreeList {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        match operation {
            Alloc => self.alloc(load),
            Free => self.free(load, false),
            Churn => {
                let args = (self.handle(), TURNS, load.counter());
                // SAFETY: the pool and the counter are live, and only this stream uses them.
                unsafe { load.launch(bench_freelist_churn, args) }
            }
        }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.check_freed(name).map(drop)
    }
}

impl Contender for Heap {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        match operation {
            Alloc => self.alloc(load),
            Free => self.free(load, false),
            Churn => {
                let args = (self.handle(), load.sizes, TURNS, load.counter());
                // SAFETY: the heap and the counter are live, and only this stream uses them.
                unsafe { load.launch(bench_heap_churn, args) }
            }
        }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.check_freed(name).map(drop)
    }
}

/// One allocation for all threads of a block.
struct Groups(Heap);

impl Contender for Groups {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        match operation {
            Free => {
                let args = (self.0.handle(), load.out.slice(), load.counter());
                // SAFETY: `out` holds the blocks that the previous launch allocated.
                unsafe { load.launch(bench_heap_free_each, args) }
            }
            _ => {
                let args = (self.0.handle(), load.out.slice(), load.sizes);
                // SAFETY: the heap and `out` are live, and only this stream uses them.
                unsafe { load.launch(bench_heap_alloc_each, args) }
            }
        }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.0.check_freed(name).map(drop)
    }
}

/// Pairs through the cache of a thread block.
struct Cached(Heap);

impl Contender for Cached {
    fn launch(&mut self, _: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let args = (self.0.handle(), load.sizes, TURNS, load.counter());
        // SAFETY: the heap and the counter are live, and only this stream uses them.
        unsafe { load.launch(bench_heap_churn_cached, args) }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.0.check_freed(name).map(drop)
    }
}

impl Contender for Malloc {
    fn launch(&mut self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (module, out) = (&self.module, load.out.slice());
        match operation {
            // SAFETY: `out` is live, and only this stream uses it.
            Alloc => unsafe { load.launch_in(module, suite_malloc_alloc, (out, load.sizes)) },
            Free => {
                let args = (out, load.order(false), load.counter());
                // SAFETY: `out` holds the blocks that the previous launch allocated.
                unsafe { load.launch_in(module, suite_malloc_free, args) }
            }
            Churn => {
                let args = (load.sizes, TURNS, load.counter());
                // SAFETY: the counter is live.
                unsafe { load.launch_in(module, suite_malloc_churn, args) }
            }
        }
    }
}
