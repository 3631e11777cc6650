//! The global allocator of a program whose kernels run on the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::thread::panicking;
use warpheap_device::global::GlobalHeap;
use warpheap_device::machine::with_global_heap;

/// A global allocator that gives kernels on the CPU the heap of their module, and everything else
/// the memory of another allocator. With it, `Vec`, `Box` and the other collections of kernels
/// appear in the checks, leaks and statistics of the [`Heap`](crate::device_pools::Heap), and fail
/// when it is exhausted, without a GPU.
///
/// ```
/// use warpheap::device_pools::Heap;
/// use warpheap::simt::KernelAllocator;
/// use warpheap::{Device, LaunchConfig};
/// use warpheap_device::kernel;
///
/// #[global_allocator]
/// static ALLOCATOR: KernelAllocator = KernelAllocator::system();
///
/// kernel! {
///     /// Each thread leaks 100 bytes.
///     ///
///     /// # Safety
///     /// None.
///     pub unsafe fn leak() {
///         std::mem::forget(Box::new([1_u8; 100]));
///     }
/// }
///
/// let device = Device::cpu();
/// let (heap, module) = (Heap::builder(64 << 20).build(&device)?, device.native_module()?);
/// module.set_global_heap(&heap)?;
/// let stream = device.stream()?;
/// // SAFETY: the kernel needs nothing.
/// unsafe { stream.launch(&module, leak, &LaunchConfig::linear(64, 32), ()) }?;
/// stream.synchronize()?;
/// assert_eq!(heap.stats()?.live_blocks, 64);
/// # Ok::<(), warpheap::Error>(())
/// ```
///
/// As on a GPU, a failed allocation ends its thread with a fault of the heap, also in `try_reserve`
/// and its like. A kernel of a module without a global heap uses the other allocator, where it
/// would end on a GPU.
///
/// A kernel must not pass the memory that it allocates to the program: not in a thread-local
/// variable, and not by code of `std` that keeps a buffer, such as the first `println!` of a
/// program.
#[derive(Debug, Default)]
pub struct KernelAllocator<A = System> {
    other: A,
}

impl KernelAllocator {
    /// The system's allocator for the program.
    pub const fn system() -> Self {
        KernelAllocator::over(System)
    }
}

impl<A> KernelAllocator<A> {
    /// `other` for the program.
    pub const fn over(other: A) -> Self {
        KernelAllocator { other }
    }
}

/// Calls `f` on the heap of the running thread of a kernel. A panic allocates for its payload and
/// its message, which outlive the thread.
fn with_heap<R>(f: impl FnOnce(&GlobalHeap) -> R) -> Option<R> {
    if panicking() { None } else { with_global_heap(f) }
}

// SAFETY: the heap and the other allocator fulfil the contract of `GlobalAlloc`. A block of the
// heap is recognised by its address.
unsafe impl<A: GlobalAlloc> GlobalAlloc for KernelAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        with_heap(|heap| unsafe { heap.alloc(layout) }).unwrap_or_else(|| {
            // SAFETY: the caller's promises.
            unsafe { self.other.alloc(layout) }
        })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        with_heap(|heap| unsafe { heap.alloc_zeroed(layout) }).unwrap_or_else(|| {
            // SAFETY: the caller's promises.
            unsafe { self.other.alloc_zeroed(layout) }
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // A thread that unwinds frees its blocks, too.
        let freed = with_global_heap(|heap| {
            let is_own = heap.contains(block);
            if is_own {
                // SAFETY: the caller's promises; the block is one of the heap.
                unsafe { heap.dealloc(block, layout) };
            }
            is_own
        });
        if freed != Some(true) {
            // SAFETY: the caller's promises; the block is not one of the heap.
            unsafe { self.other.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let moved = with_global_heap(|heap| {
            // SAFETY: the caller's promises; the block is one of the heap.
            heap.contains(block).then(|| unsafe { heap.realloc(block, layout, new_size) })
        });
        moved.flatten().unwrap_or_else(|| {
            // SAFETY: the caller's promises; the block is not one of the heap.
            unsafe { self.other.realloc(block, layout, new_size) }
        })
    }
}
