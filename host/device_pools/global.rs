//! The heap behind a module's global allocator (`alloc`).

use super::heap::Heap;
use super::shared::Faults;
use crate::driver::{Module, Transfer};
use crate::error::Result;
use std::mem::MaybeUninit;
use warpheap_device::fault::FAULT_LOG_WORDS;
use warpheap_device::global::{GlobalHeap, SYMBOL};
use warpheap_device::kernel::{Arg, KernelArg};

/// Size of the handle in a module's global allocator, and of the entire variable.
const HANDLE_BYTES: usize = GlobalHeap::FAULTS_OFFSET;
const BYTES: u64 = size_of::<GlobalHeap>() as u64;

type HandleBytes = [MaybeUninit<u8>; HANDLE_BYTES];

const _: () = assert!(HANDLE_BYTES == size_of::<Arg<warpheap_device::heap::Heap>>());

impl Module {
    /// Makes `alloc` in the module's kernels allocate from `heap`: `Vec`, `Box` and everything else
    /// that a kernel crate with [`global_heap!`](warpheap_device::global_heap!) uses. Waits for the
    /// device first; launches of the module wait until the call is done. The heap must outlive the
    /// launches, and each launch checks that it is still live.
    ///
    /// On the CPU kernels allocate like the program. They use `heap` if the program has a
    /// [`KernelAllocator`](crate::simt::KernelAllocator) as its `#[global_allocator]`.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule), [`WrongDevice`](crate::Error::WrongDevice),
    /// or an earlier failure of the device.
    pub fn set_global_heap(&self, heap: &Heap) -> Result<()> {
        self.device().same_as(heap.memory().device(), "the heap")?;
        let handle = heap.handle();
        // SAFETY: the array has the size of the handle (asserted above).
        let bytes = unsafe { &*(&raw const handle).cast::<HandleBytes>() };
        let mut named = None;
        handle.for_each_range(&mut |address, bytes| named = Some((address, bytes)));
        self.write_handle(bytes, named, || {
            // SAFETY: only kernels use it, in launches, each of which checks that the heap is live.
            // Dropping the heap waits for them.
            Some(unsafe { GlobalHeap::with_heap(handle) })
        })
    }

    /// Undoes [`set_global_heap`](Self::set_global_heap). A thread that then uses `alloc` is
    /// terminated.
    ///
    /// # Errors
    /// The errors of [`set_global_heap`](Self::set_global_heap).
    pub fn clear_global_heap(&self) -> Result<()> {
        self.write_handle(&[MaybeUninit::new(0); HANDLE_BYTES], None, || None)
    }

    /// Waits for the device, then returns the faults of threads that used `alloc` while no heap was
    /// set. Failed allocations of a heap are in [`Heap::faults`]. On the CPU there are none.
    ///
    /// # Errors
    /// The errors of [`set_global_heap`](Self::set_global_heap).
    pub fn global_heap_faults(&self) -> Result<Faults> {
        let Some(place) = self.global_allocator(SYMBOL, BYTES)? else { return Ok(Faults::default()) };
        let mut words = [0_u64; FAULT_LOG_WORDS];
        self.device().driver().synchronize()?;
        let from = place.address + GlobalHeap::FAULTS_OFFSET as u64;
        let read = Transfer::Read { to: words.as_mut_ptr().cast(), from, bytes: size_of_val(&words) };
        // SAFETY: the log is inside the variable, whose size was checked; `words` has the log's
        // length.
        unsafe { self.device().driver().transfer(read) }?;
        Ok(Faults::read(&words))
    }

    fn write_handle(
        &self,
        bytes: &HandleBytes,
        names: Option<(u64, u64)>,
        on_cpu: impl FnOnce() -> Option<GlobalHeap>,
    ) -> Result<()> {
        let place = self.global_allocator(SYMBOL, BYTES)?;
        self.write_variables(names, || {
            let Some(place) = place else {
                self.set_global_heap_on_cpu(on_cpu());
                return Ok(());
            };
            let (to, from) = (place.address, bytes.as_ptr().cast());
            let write = Transfer::Write { to, from, bytes: bytes.len() };
            // SAFETY: the handle is inside the variable, whose size was checked; no kernel runs.
            unsafe { self.device().driver().transfer(write) }
        })
    }
}
