//! What is measured: the floors, the device pools of this library, and CUDA's `malloc`.

use super::engine::{BLOCK, Load, Subject};
use super::results::Operation::{self, Alloc, Churn, Free};
use crate::kernels::bench::{
    CACHE_THREADS, Counter, Places, Sizes, bench_alloc_floor, bench_bump_alloc, bench_churn_floor,
    bench_churn_mixed_floor, bench_churn_strided_floor, bench_free_floor, bench_freelist_alloc,
    bench_freelist_churn, bench_freelist_free, bench_heap_alloc, bench_heap_alloc_each,
    bench_heap_alloc_sparse, bench_heap_churn, bench_heap_free, bench_heap_free_each, bench_heap_free_sparse,
};
use crate::kernels::collections::{collect_map, collect_string, collect_vec};
use crate::suite_kernels::{
    suite_malloc_alloc, suite_malloc_alloc_latency, suite_malloc_churn, suite_malloc_churn_latency,
    suite_malloc_free, suite_malloc_free_latency,
};
use crate::{Error, OwnModule, Result};
use std::cell::RefCell;
use warpheap::device_pools::{Bump, Faults, FreeList, Heap};
use warpheap::driver::{Backend, Device, DeviceBuffer, Module};
use warpheap::{Bytes, kernel_names};
use warpheap_device::heap;
use warpheap_device::kernel::{Arg, Kernel};

const _: () = assert!(CACHE_THREADS == BLOCK, "the cache has room for all threads of a block");

/// The kernels without an allocator. The threads of a churn store to their entries of `out`.
pub(super) struct Floor;

impl Subject for Floor {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let out = load.out.slice();
        match operation {
            // SAFETY: `out` is live, and only this stream uses it.
            Alloc => unsafe { load.launch(bench_alloc_floor, (load.out.address(), out, load.sizes)) },
            // SAFETY: `out` and the counter are live, and only this stream uses them.
            Free => unsafe { load.launch(bench_free_floor, (out, load.order(), load.counter())) },
            // SAFETY: `out` is live, and only this stream uses it.
            Churn => unsafe { load.launch(bench_churn_floor, (out, load.turns)) },
        }
    }
}

/// The kernels without an allocator. The threads of a churn store as far from each other as blocks
/// are.
pub(super) struct StridedFloor {
    /// `stride` words of 8 bytes for each thread.
    pub memory: DeviceBuffer<u64>,
    pub stride: u32,
}

impl Subject for StridedFloor {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        if operation != Churn {
            return Floor.launch(operation, load);
        }
        let args = (self.memory.slice(), self.stride, load.turns);
        // SAFETY: the memory has `stride` words per thread, and only this stream uses it.
        unsafe { load.launch(bench_churn_strided_floor, args) }
    }
}

/// The floor of pairs of another size in each turn.
pub(super) struct MixedFloor {
    /// A word for each turn of each thread.
    pub memory: DeviceBuffer<u64>,
    pub places: Places,
}

impl Subject for MixedFloor {
    fn launch(&self, _: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let args = (self.memory.slice(), self.places, load.sizes, load.turns, load.counter());
        // SAFETY: the memory is live, contains all places, and only this stream uses it.
        unsafe { load.launch(bench_churn_mixed_floor, args) }
    }
}

/// A pool of which a reset frees all blocks.
pub(super) struct Reset<P>(RefCell<P>);

impl<P> Reset<P> {
    pub fn of(pool: P) -> Reset<P> {
        Reset(RefCell::new(pool))
    }
}

impl Subject for Reset<Bump> {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        if operation == Free {
            return self.0.borrow_mut().reset();
        }
        let args = (self.0.borrow().handle(), load.out.slice(), load.sizes);
        // SAFETY: the pool and `out` are live, and only this stream uses them.
        unsafe { load.launch(bench_bump_alloc, args) }
    }
}

impl Subject for Reset<FreeList> {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        if operation == Free { self.0.borrow_mut().reset() } else { self.0.borrow().launch(operation, load) }
    }
}

impl Subject for FreeList {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (pool, out) = (self.handle(), load.out.slice());
        match operation {
            // SAFETY: the pool and `out` are live, and only this stream uses them.
            Alloc => unsafe { load.launch(bench_freelist_alloc, (pool, out)) },
            Free => {
                let args = (pool, out, load.order(), load.counter());
                // SAFETY: the blocks in `out` were allocated, and are freed once before the next
                // allocations.
                unsafe { load.launch(bench_freelist_free, args) }
            }
            // SAFETY: the pool and the counter are live, and only this stream uses them.
            Churn => unsafe { load.launch(bench_freelist_churn, (pool, load.turns, load.counter())) },
        }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        let (stats, faults, broken) = (self.stats()?, self.faults()?, self.check()?);
        let is_free = stats.live_blocks == 0 && stats.free_blocks == stats.blocks;
        if !is_free || faults.count != 0 || !broken.is_empty() {
            let found = format!("{stats:?}, {} faults, {broken:?}", faults.count);
            return Err(Error::wrong(name, found));
        }
        Ok(format!("all {} blocks free afterwards, no fault", stats.blocks))
    }
}

impl Subject for Heap {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (heap, out) = (self.handle(), load.out.slice());
        match operation {
            // SAFETY: the heap and `out` are live, and only this stream uses them.
            Alloc => unsafe { load.launch(bench_heap_alloc, (heap, out, load.sizes)) },
            Free => {
                let args = (heap, out, load.order(), load.counter());
                // SAFETY: the blocks in `out` were allocated, and are freed once before the next
                // allocations.
                unsafe { load.launch(bench_heap_free, args) }
            }
            Churn => {
                let args = (heap, load.sizes, load.turns, load.counter());
                // SAFETY: the heap and the counter are live, and only this stream uses them.
                unsafe { load.launch(bench_heap_churn, args) }
            }
        }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        let Faults { count, first, .. } = self.faults()?;
        match count {
            0 => Ok("no fault".into()),
            _ => Err(Error::wrong(name, format!("{count} faults, the first {:?}", first.first()))),
        }
    }
}

/// One allocation for all threads of a block.
pub(super) struct Groups(pub Heap);

impl Subject for Groups {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (heap, out) = (self.0.handle(), load.out.slice());
        if operation == Free {
            // SAFETY: `out` holds the blocks that the previous launch allocated.
            unsafe { load.launch(bench_heap_free_each, (heap, out, load.counter())) }
        } else {
            // SAFETY: the heap and `out` are live, and only this stream uses them.
            unsafe { load.launch(bench_heap_alloc_each, (heap, out, load.sizes)) }
        }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        self.0.check_freed(name)
    }
}

/// One lane in 32 allocates.
pub(super) struct Sparse(pub Heap);

impl Subject for Sparse {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (heap, out) = (self.0.handle(), load.out.slice());
        if operation == Free {
            // SAFETY: the blocks in `out` were allocated, and are freed once before the next
            // allocations.
            unsafe { load.launch(bench_heap_free_sparse, (heap, out)) }
        } else {
            // SAFETY: the heap and `out` are live, and only this stream uses them.
            unsafe { load.launch(bench_heap_alloc_sparse, (heap, out, load.sizes)) }
        }
    }
}

/// Pairs of an allocation and a free of a heap by a kernel: through the cache of a thread block, or
/// of another size in each turn.
pub(super) struct Pairs<K>(pub Heap, pub K);

impl<K> Subject for Pairs<K>
where
    K: Kernel<Args = (Arg<heap::Heap>, Sizes, u32, Counter)> + Copy,
{
    fn launch(&self, _: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let args = (self.0.handle(), load.sizes, load.turns, load.counter());
        // SAFETY: the heap and the counter are live, and only this stream uses them.
        unsafe { load.launch(self.1, args) }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        self.0.check_freed(name)
    }
}

/// The name of CUDA's `malloc` in results.
pub(super) const CUDA_MALLOC: &str = "CUDA malloc";

/// Begins the note that says why CUDA's `malloc` is left out.
pub(super) const LEFT_OUT: &str = "CUDA's malloc and Rust's collections are left out";

/// Maximum size of CUDA's heap; it is also at most an eighth of the free memory.
const MOST_HEAP_BYTES: u64 = 8 << 30;
/// Maximum number of threads. With 2^20, a kernel takes up to seconds.
const MOST_THREADS: u32 = 1 << 20;

const OF_MALLOC: [&str; 9] = kernel_names![
    suite_malloc_alloc,
    suite_malloc_free,
    suite_malloc_churn,
    suite_malloc_alloc_latency,
    suite_malloc_free_latency,
    suite_malloc_churn_latency,
    collect_vec,
    collect_map,
    collect_string
];

/// The kernels of CUDA's `malloc`, and the size of its heap.
#[derive(Clone, Debug)]
pub(super) struct Malloc {
    pub module: Module,
    pub heap_bytes: u64,
}

impl Malloc {
    /// Sets the size of CUDA's heap and loads the kernels. `None` on the CPU, and if the driver
    /// rejects the kernels; says why in `notes`.
    pub fn load(device: &Device, own: &OwnModule, notes: &mut Vec<String>) -> Result<Option<Malloc>> {
        if device.backend() == Backend::Cpu {
            notes.push(format!("{LEFT_OUT}: they need a GPU"));
            return Ok(None);
        }
        let requested = MOST_HEAP_BYTES.min(device.info()?.memory_free / 8);
        let loaded = device.set_malloc_heap_bytes(requested).and_then(|bytes| Malloc::of(own, bytes));
        match loaded {
            Ok(malloc) => {
                let heap = Bytes(malloc.heap_bytes);
                notes.push(format!("CUDA's malloc has a heap of {heap} (cuCtxSetLimit)"));
                Ok(Some(malloc))
            }
            Err(error) if error.is_fatal() => Err(error.into()),
            Err(error) => {
                notes.push(format!("{LEFT_OUT}: {error}"));
                Ok(None)
            }
        }
    }

    /// The kernels, with a heap of `heap_bytes`.
    pub fn of(own: &OwnModule, heap_bytes: u64) -> warpheap::Result<Malloc> {
        Ok(Malloc { module: own.load_suite(&OF_MALLOC)?.module().clone(), heap_bytes })
    }

    /// Why so many threads do not allocate so many bytes each.
    pub fn limit(&self, threads: u32, bytes: u32) -> Option<String> {
        if threads > MOST_THREADS {
            return Some(format!("more than {MOST_THREADS} threads take too long"));
        }
        // Half of the heap is left for its own data and for fragmentation.
        let is_large = u64::from(threads) * u64::from(bytes) > self.heap_bytes / 2;
        is_large.then(|| format!("the requests exceed half of its heap of {}", Bytes(self.heap_bytes)))
    }
}

impl Subject for Malloc {
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()> {
        let (module, out) = (&self.module, load.out.slice());
        match operation {
            // SAFETY: `out` is live, and only this stream uses it.
            Alloc => unsafe { load.launch_in(module, suite_malloc_alloc, (out, load.sizes)) },
            Free => {
                let args = (out, load.order(), load.counter());
                // SAFETY: `out` holds the blocks that the previous launch allocated.
                unsafe { load.launch_in(module, suite_malloc_free, args) }
            }
            Churn => {
                let args = (load.sizes, load.turns, load.counter());
                // SAFETY: the counter is live.
                unsafe { load.launch_in(module, suite_malloc_churn, args) }
            }
        }
    }
}
