//! Kernels on the CPU: the executor, which is the crate [`warpheap_sim`], and the global allocator
//! of a program that runs kernels on the CPU.

use crate::lock::lock;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{copy_nonoverlapping, from_ref, null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::panicking;
use warpheap_device::global::GlobalHeap;
use warpheap_device::machine::{installed, runs_a_lane};
use warpheap_sim::Around;

#[doc(inline)]
pub use warpheap_sim::{Call, Executor, Grid, Mode, OnPanic, Panic, SimtError, Stats, Thread};
pub(crate) use warpheap_sim::{Settings, message};

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
/// A failed allocation ends its thread with a fault of the heap, like on a GPU, also in
/// `try_reserve` and its like. A kernel of a module without a global heap uses the other allocator,
/// where it would end on a GPU. A block that is freed outside of kernels of its heap stays live.
///
/// Other lanes run during an allocation, and a failed one does not return. So a kernel must not
/// allocate while it initialises a `LazyLock` or holds a lock of `std`: the other lanes would wait
/// for ever. And it must not pass the memory that it allocates to the program (P4 of
/// [`launch`](crate::Stream::launch)): not in a static or thread-local variable, and not by code of
/// `std` that keeps a buffer, such as `println!`, which a test captures.
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

/// The maximum number of heaps with blocks that are recognised.
const MOST_HEAPS: usize = 64;

/// The memory of the global heaps on the CPU. The first address is 0 in unused places.
static HEAPS: [Memory; MOST_HEAPS] =
    [const { Memory { first: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MOST_HEAPS];

/// Held by changes of `HEAPS`.
static CHANGES: Mutex<()> = Mutex::new(());

struct Memory {
    first: AtomicUsize,
    end: AtomicUsize,
}

impl Memory {
    fn contains(&self, address: usize) -> bool {
        // ordering: acquire; pairs with the release in `note_heap`: the end is set.
        let first = self.first.load(Ordering::Acquire);
        first != 0 && first <= address && address < self.end.load(Ordering::Relaxed)
    }
}

/// Notes that this memory has blocks of a global heap.
pub(crate) fn note_heap(first: u64, bytes: u64) {
    let (first, end) = (first as usize, (first + bytes) as usize);
    let _changes = lock(&CHANGES);
    let is_at = |memory: &&Memory, at| memory.first.load(Ordering::Relaxed) == at;
    let known = HEAPS.iter().find(|memory| is_at(memory, first));
    let Some(place) = known.or_else(|| HEAPS.iter().find(|memory| is_at(memory, 0))) else {
        tracing::warn!(
            "more than {MOST_HEAPS} global heaps at a time: a block of this one must be freed by kernels of its module only"
        );
        return;
    };
    place.end.store(end, Ordering::Relaxed);
    // ordering: release; pairs with the acquire in `contains`.
    place.first.store(first, Ordering::Release);
}

/// Forgets heaps in memory that is freed.
pub(crate) fn forget_memory(first: u64, bytes: u64) {
    let freed = first as usize..(first + bytes) as usize;
    let _changes = lock(&CHANGES);
    for memory in HEAPS.iter().filter(|memory| freed.contains(&memory.first.load(Ordering::Relaxed))) {
        memory.first.store(0, Ordering::Relaxed);
    }
}

std::thread_local! {
    /// The global heap of the lanes of a machine on this OS thread, and the address of the machine.
    /// Null if they have none. A kernel that a lane of theirs runs has another machine, and not
    /// their heap.
    static GLOBAL_HEAP: Cell<(*const GlobalHeap, usize)> = const { Cell::new((null(), 0)) };
}

/// Gives lanes a global heap: what is done around them.
pub(crate) fn with_heap(heap: Arc<GlobalHeap>) -> Arc<Around> {
    struct Back((*const GlobalHeap, usize));
    impl Drop for Back {
        fn drop(&mut self) {
            GLOBAL_HEAP.set(self.0);
        }
    }
    Arc::new(move |lanes| {
        // Also if `lanes` panics.
        let _back = Back(GLOBAL_HEAP.replace((from_ref(&*heap), installed())));
        lanes();
    })
}

/// Calls `f` on the global heap of the running lane. `None` if no lane runs, or if its kernel has
/// no global heap.
#[inline]
fn with_global_heap<R>(f: impl FnOnce(&GlobalHeap) -> R) -> Option<R> {
    let (heap, machine) = GLOBAL_HEAP.get();
    if heap.is_null() || machine != installed() || !runs_a_lane() {
        return None;
    }
    // SAFETY: `with_heap` keeps it live until the guard is dropped.
    Some(f(unsafe { &*heap }))
}

/// Calls `f` on the heap of the running thread of a kernel. A panic allocates for its message,
/// which outlives the thread.
fn with_own_heap<R>(f: impl FnOnce(&GlobalHeap) -> R) -> Option<R> {
    if panicking() { None } else { with_global_heap(f) }
}

/// Where a block is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The heap of the running thread.
    Own,
    /// Another heap, or that of a kernel that does not run here now.
    Foreign,
    /// The other allocator.
    Other,
}

fn origin(block: *mut u8) -> Origin {
    match with_global_heap(|heap| heap.contains(block)) {
        Some(true) => Origin::Own,
        _ if HEAPS.iter().any(|memory| memory.contains(block.addr())) => Origin::Foreign,
        _ => Origin::Other,
    }
}

// SAFETY: the heap and the other allocator fulfil the contract of `GlobalAlloc`. A block of a heap
// is recognised by its address.
unsafe impl<A: GlobalAlloc> GlobalAlloc for KernelAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        with_own_heap(|heap| unsafe { heap.alloc(layout) }).unwrap_or_else(|| {
            // SAFETY: the caller's promises.
            unsafe { self.other.alloc(layout) }
        })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        with_own_heap(|heap| unsafe { heap.alloc_zeroed(layout) }).unwrap_or_else(|| {
            // SAFETY: the caller's promises.
            unsafe { self.other.alloc_zeroed(layout) }
        })
    }

    /// A thread that unwinds frees its blocks, too.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match origin(block) {
            // SAFETY: the caller's promises; the block is one of the heap.
            Origin::Own => drop(with_global_heap(|heap| unsafe { heap.dealloc(block, layout) })),
            Origin::Foreign => {}
            // SAFETY: the caller's promises; the block is not one of a heap.
            Origin::Other => unsafe { self.other.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match origin(block) {
            Origin::Own if !panicking() => {
                // SAFETY: the caller's promises; the block is one of the heap.
                let moved = with_global_heap(|heap| unsafe { heap.realloc(block, layout, new_size) });
                moved.unwrap_or(null_mut())
            }
            // SAFETY: the caller's promises; the block is not one of a heap.
            Origin::Other => unsafe { self.other.realloc(block, layout, new_size) },
            Origin::Own | Origin::Foreign => {
                // SAFETY: the caller's promises: the new size is not 0, and does not overflow.
                let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
                // SAFETY: as above.
                let new = unsafe { self.alloc(new_layout) };
                if !new.is_null() {
                    // SAFETY: both blocks have that many bytes, and the new one is not the old one.
                    unsafe { copy_nonoverlapping(block, new, layout.size().min(new_size)) };
                    // SAFETY: the caller's promises.
                    unsafe { self.dealloc(block, layout) };
                }
                new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap_device::machine::{Coords, Machine, install, stand_at};

    struct Lane(Coords);

    // SAFETY: the lane is alone.
    unsafe impl Machine for Lane {
        fn coords(&self) -> Coords {
            self.0
        }
    }

    #[test]
    fn a_kernel_that_a_lane_runs_does_not_have_the_heap_of_the_lane() {
        let has_heap = || with_global_heap(|_| ()).is_some();
        let (outer, inner) = (Lane(Coords::SOLE), Lane(Coords::SOLE));
        // SAFETY: the machine outlives the guard.
        let _outer = unsafe { install(&outer) };
        // SAFETY: the coordinates live as long as the machine.
        unsafe { stand_at(&outer.0) };
        // SAFETY: nothing allocates from it.
        with_heap(Arc::new(unsafe { GlobalHeap::unset() }))(&mut || {
            assert!(has_heap());
            {
                // SAFETY: the machine outlives the guard.
                let _inner = unsafe { install(&inner) };
                // SAFETY: the coordinates live as long as the machine.
                unsafe { stand_at(&inner.0) };
                assert!(!has_heap());
            }
            assert!(has_heap());
        });
        assert!(!has_heap());
    }
}
