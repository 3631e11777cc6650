//! CUDA's own allocator: its kernels, its heap and its limits.

use crate::kernels::collections::{collect_map, collect_string, collect_vec};
use crate::suite_kernels::{
    suite_malloc_alloc, suite_malloc_alloc_latency, suite_malloc_churn, suite_malloc_churn_latency,
    suite_malloc_free, suite_malloc_free_latency,
};
use crate::{OwnModule, Result};
use warpheap::driver::{Backend, Device, Module};
use warpheap::{Bytes, kernel_names};

/// The name of the contender.
pub(super) const CUDA_MALLOC: &str = "CUDA malloc";

/// Begins the note that says why CUDA's `malloc` is left out.
pub(super) const LEFT_OUT: &str = "CUDA's malloc and Rust's collections are left out";

/// Maximum size of CUDA's heap; it is also at most an eighth of the free memory.
const MOST_HEAP_BYTES: u64 = 8 << 30;
/// Maximum number of threads. With 2^20, a kernel takes up to seconds.
const MOST_THREADS: u32 = 1 << 20;

const LAUNCHED: [&str; 9] = kernel_names![
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
        Ok(Malloc { module: own.load_suite(&LAUNCHED)?.module().clone(), heap_bytes })
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
