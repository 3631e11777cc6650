//! The heap behind Rust's `alloc`: `Vec`, `Box`, `String`, `Rc` and `BTreeMap` in kernels.
//!
//! ```
//! #![no_std] // in a kernel crate
//! extern crate alloc;
//! warpheap_device::global_heap!();
//! # fn main() {}
//! ```
//!
//! [`global_heap!`](crate::global_heap!) puts one [`GlobalHeap`] in the module, under the name [`SYMBOL`]; the host writes a heap's
//! handle to it before the first launch.
//!
//! ```text
//! GlobalHeap  | handle | fault log |        all zeroes: no heap is set
//! ```
//!
//! I1. The handle does not change while a kernel of the module runs: only the host writes it.
//! I2. The log holds the faults of threads that found no handle. The others are in the heap's own log.
//!
//! `alloc` has no way to go on without memory: told that there is none, it ends the grid. So a thread that
//! asks in vain is written down, with the bytes it asked for, and ends; the others of its warp go on.
//!
//! Progress: as the heap's.

use crate::fault::{FaultKind, FaultLog};
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

// SAFETY: the handle is only read (I1), and may be by every thread; the log is atomic.
unsafe impl Sync for GlobalHeap {}
// SAFETY: the same.
unsafe impl Send for GlobalHeap {}

impl GlobalHeap {
    /// Bytes before the fault log: the handle's.
    pub const FAULTS_OFFSET: usize = offset_of!(Parts, faults);

    /// Without a heap.
    ///
    /// # Safety
    /// It is used by kernels alone, and so is no `#[global_allocator]` of a program of the host: a thread that asks for
    /// memory ends, which only a kernel's thread can do inside of an allocator.
    pub const unsafe fn unset() -> Self {
        GlobalHeap { parts: UnsafeCell::new(MaybeUninit::zeroed()) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// With a heap.
    ///
    /// # Safety
    /// As for [`unset`](Self::unset), and the heap is live whenever a kernel uses this.
    pub unsafe fn over(heap: Arg<Heap>) -> Self {
        // SAFETY: the caller's promise.
        let handle = unsafe { heap.into_inner() };
        let parts = Parts { handle, faults: FaultLog::default() };
        GlobalHeap { parts: UnsafeCell::new(MaybeUninit::new(parts)) }
    }

    /// What threads did before a heap was set (I2).
    pub fn faults(&self) -> &FaultLog {
        &self.parts().faults
    }

    #[inline(always)]
    fn parts(&self) -> &Parts {
        // SAFETY: no one writes now (I1).
        let parts = unsafe { &*self.parts.get() };
        // SAFETY: written, or all zeroes, which is a handle of nothing and an empty log.
        unsafe { parts.assume_init_ref() }
    }

    /// The heap. Without one the calling thread ends here.
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
        self.faults().record(FaultKind::NoGlobalHeap, 0, size as u64);
        thread::exit()
    }
}

/// The block's address. Without a block the calling thread ends here.
#[inline(always)]
fn or_stop(heap: &Heap, block: Option<NonNull<u8>>, size: usize) -> *mut u8 {
    match block {
        Some(block) => block.as_ptr(),
        None => stop_refused(heap, size),
    }
}

#[cold]
#[inline(never)]
fn stop_refused(heap: &Heap, size: usize) -> ! {
    heap.record_refusal(size);
    thread::exit()
}

// Out of line: the collections call each of these from many places.
// SAFETY: the heap's blocks are as large and as aligned as asked for, and of one owner; none is given out again
// before it is freed. A refusal does not return.
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
            // SAFETY: the caller's promise.
            unsafe { heap.free(block) };
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let heap = self.heap(new_size);
        let Some(block) = NonNull::new(block) else { return null_mut() };
        // SAFETY: the caller's promise.
        or_stop(heap, unsafe { heap.realloc(block, layout, new_size) }, new_size)
    }
}

/// Makes a heap the global allocator of this kernel crate, once in a module. On the host it does nothing: there
/// kernels are functions of the program, and allocate as the program does.
#[macro_export]
macro_rules! global_heap {
    () => {
        /// What `alloc` allocates from; the host sets it.
        #[cfg(target_arch = "nvptx64")]
        #[global_allocator]
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        pub static warpheap_global_heap: $crate::global::GlobalHeap = {
            // SAFETY: on the GPU, kernels alone use it.
            unsafe { $crate::global::GlobalHeap::unset() }
        };
    };
}
