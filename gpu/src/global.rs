//! The heap behind Rust's `alloc`: `Vec`, `Box`, `String`, `Rc` and `BTreeMap` in kernels.
//!
//! ```
//! #![no_std] // in a kernel crate
//! extern crate alloc;
//! warpheap_device::global_heap!();
//! # fn main() {}
//! ```
//!
//! [`global_heap!`](crate::global_heap!) defines one [`GlobalHeap`] in the module, under the name
//! [`SYMBOL`]. The host writes a heap's handle to it before the first launch.
//!
//! ```text
//! GlobalHeap  | handle | fault log |        all zeroes: no heap is set
//! ```
//!
//! I1. The handle does not change while a kernel of the module runs: only the host writes it.
//! I2. The log holds the faults of threads that found no handle. All other faults are in the heap's
//! own log.
//!
//! Rust's `alloc` cannot continue without memory: on a null result it ends the grid. So if an
//! allocation fails, the fault and the requested bytes are recorded and the thread ends; the other
//! threads of its warp continue.
//!
//! Progress: that of the heap.

use crate::fault::{FaultCheck, FaultLog};
use crate::heap::Heap;
#[cfg(not(target_arch = "nvptx64"))]
use crate::kernel::Arg;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{NonNull, null_mut};

/// The name of the static in a module that uses [`global_heap!`](crate::global_heap!).
pub const SYMBOL: &str = "warpheap_global_heap";

#[repr(C)]
struct Parts {
    handle: Heap,
    faults: FaultLog,
}

/// The global allocator of a module.
#[repr(transparent)]
pub struct GlobalHeap {
    parts: UnsafeCell<MaybeUninit<Parts>>,
}

const _: () = assert!(!NATIVE_LAYOUT || align_of::<GlobalHeap>() == 8);

impl fmt::Debug for GlobalHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalHeap").finish_non_exhaustive()
    }
}

// SAFETY: the handle is only read (I1), by any number of threads; the log is atomic.
unsafe impl Sync for GlobalHeap {}
// SAFETY: as for `Sync`: the handle is only read (I1), and the log is atomic.
unsafe impl Send for GlobalHeap {}

impl GlobalHeap {
    /// The offset of the fault log in bytes: the size of the handle.
    pub const FAULTS_OFFSET: usize = offset_of!(Parts, faults);

    /// A global allocator without a heap.
    ///
    /// # Safety
    /// Only kernels use it. In particular it is not the `#[global_allocator]` of a host program: if
    /// an allocation fails, the thread ends, which only a kernel's thread can do inside an
    /// allocator.
    pub const unsafe fn unset() -> Self {
        GlobalHeap { parts: UnsafeCell::new(MaybeUninit::zeroed()) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// A global allocator with a heap.
    ///
    /// # Safety
    /// See [`unset`](Self::unset). In addition, the heap is live whenever a kernel uses this.
    pub unsafe fn with_heap(heap: Arg<Heap>) -> Self {
        // SAFETY: only kernels use the handle, while the heap is live, by the caller's promises.
        let handle = unsafe { heap.into_inner() };
        let parts = Parts { handle, faults: FaultLog::default() };
        GlobalHeap { parts: UnsafeCell::new(MaybeUninit::new(parts)) }
    }

    /// The faults of threads that allocated before a heap was set (I2).
    pub fn faults(&self) -> &FaultLog {
        &self.parts().faults
    }

    #[inline(always)]
    fn parts(&self) -> &Parts {
        // SAFETY: no thread writes at the same time (I1).
        let parts = unsafe { &*self.parts.get() };
        // SAFETY: written, or all zeros, which is a null handle and an empty log.
        unsafe { parts.assume_init_ref() }
    }

    /// The first address and the bytes of the heap's memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn memory(&self) -> (u64, u64) {
        let handle = &self.parts().handle;
        (handle.base().addr() as u64, handle.capacity())
    }

    /// Whether `address` is in the memory of the heap.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn contains(&self, address: *const u8) -> bool {
        let (first, bytes) = self.memory();
        (address.addr() as u64).wrapping_sub(first) < bytes
    }

    /// The heap. If none is set, the calling thread ends.
    #[inline(always)]
    fn heap(&self, size: usize) -> &Heap {
        let handle = &self.parts().handle;
        if handle.base().is_null() {
            self.stop_without_heap(size);
        }
        handle
    }

    #[cold]
    #[inline(never)]
    fn stop_without_heap(&self, size: usize) -> ! {
        self.faults().record(FaultCheck::NoHeap, 0, size as u64);
        thread::exit()
    }
}

/// The block's address. If there is no block, the calling thread ends.
#[inline(always)]
fn or_stop(heap: &Heap, block: Option<NonNull<u8>>, size: usize) -> *mut u8 {
    match block {
        Some(block) => block.as_ptr(),
        None => stop_out_of_memory(heap, size),
    }
}

#[cold]
#[inline(never)]
fn stop_out_of_memory(heap: &Heap, size: usize) -> ! {
    heap.record_out_of_memory(size);
    thread::exit()
}

// Out of line: the collections call each of these from many places.
// SAFETY: the heap's blocks have the requested size and alignment, and one owner; none is allocated
// again before it is freed. A failed allocation does not return.
unsafe impl GlobalAlloc for GlobalHeap {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let heap = self.heap(layout.size());
        or_stop(heap, heap.alloc(layout), layout.size())
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let heap = self.heap(layout.size());
        or_stop(heap, heap.alloc_zeroed(layout), layout.size())
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let heap = self.heap(layout.size());
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the block was allocated here and is used no more, by `dealloc`'s contract.
            unsafe { heap.free(block) };
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let heap = self.heap(new_size);
        let Some(block) = NonNull::new(block) else { return null_mut() };
        // SAFETY: the block was allocated here with this layout, by `realloc`'s contract.
        or_stop(heap, unsafe { heap.realloc(block, layout, new_size) }, new_size)
    }
}

/// Makes a heap the global allocator of this kernel crate. Use it once per module. On the host it
/// has no effect: there, kernels are functions of the program and use its allocator, which may be
/// `warpheap::simt::KernelAllocator`.
#[macro_export]
macro_rules! global_heap {
    () => {
        /// The global allocator of this module. The host sets its heap.
        #[cfg(target_arch = "nvptx64")]
        #[global_allocator]
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        pub static warpheap_global_heap: $crate::global::GlobalHeap = {
            // SAFETY: on the GPU, only kernels use it.
            unsafe { $crate::global::GlobalHeap::unset() }
        };
    };
}
