//! A pool of slots with a word for each, as a user of the harness would write it, and two faulty
//! variants.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use warpheap::{Device, DeviceBuffer};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::kernel::{Arg, DeviceHandle, DevicePtr, DeviceSlice};
use warpheap_device::sync::{AtomicU32, Site, peek_u8, poke_u8};
use warpheap_device::{stress_kernels, thread};
use warpheap_harness::Result;
use warpheap_harness::stress::{Kernels, Plan, Subject};

/// The claim of a slot.
const CLAIM: Site = Site::new("slots/claim");

/// The pool's fault: none.
pub const SOUND: u8 = 0;
/// Some slots are allocated more than once.
pub const OVERLAPS: u8 = 1;
/// A slot is claimed by a load and a store, so that two threads may claim it at once. While one OS
/// thread runs all lanes, none runs between these two, unless delays are switched on.
pub const RACES: u8 = 2;

/// In a pool with planted overlaps, every slot whose number is a multiple of this is allocated to
/// every thread that reaches it.
const SHARED_SLOT_STRIDE: u64 = 64;

/// The handle. A word is 1 if its slot is allocated.
///
/// A search begins at the thread's own slot, and tries each slot once.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slots<const FAULT: u8> {
    words: DeviceSlice<u32>,
    memory: DevicePtr<u8>,
    stride: u64,
    not_send: PhantomData<*mut u8>,
}

// SAFETY: `repr(C)`, made of addresses and integers; all threads may access the words concurrently,
// as atomics.
unsafe impl<const FAULT: u8> DeviceHandle for Slots<FAULT> {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.words.as_ptr() as u64, 4 * self.words.len());
        found(self.memory.0 as u64, self.words.len() * self.stride);
    }
}

impl<const FAULT: u8> Slots<FAULT> {
    fn word(&self, slot: u64) -> &AtomicU32 {
        assert!(slot < self.words.len());
        let word = self.words.as_ptr().wrapping_add(slot as usize).cast::<AtomicU32>();
        // SAFETY: in bounds, live as long as the pool, and accessed by kernels only through this
        // type.
        unsafe { &*word }
    }

    /// Whether the slot was free and is now the caller's.
    fn claim(&self, slot: u64) -> bool {
        let word = self.word(slot);
        if FAULT == RACES {
            let byte = (&raw const *word).cast_mut().cast::<u8>();
            // SAFETY: the low byte of a live word.
            let was_free = unsafe { peek_u8(byte) } == 0;
            if was_free {
                CLAIM.delay();
                // SAFETY: the low byte of a live word.
                unsafe { poke_u8(byte, 1) };
            }
            return was_free;
        }
        // ordering: acquire; pairs with free()'s release; the last owner's accesses before the
        // next one's.
        let was_free = word.at(CLAIM).swap_acquire(1) == 0;
        was_free || FAULT == OVERLAPS && slot.is_multiple_of(SHARED_SLOT_STRIDE)
    }
}

// SAFETY: a thread that changes a word from 0 to 1 owns the slot. Not upheld with planted overlaps,
// on purpose: the harness does not rely on it.
unsafe impl<const FAULT: u8> DeviceAlloc for Slots<FAULT> {
    const RECLAIMS: bool = true;
    const POINTS: &'static [&'static [&'static str]] = &[&["slots/claim"]];

    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() as u64 > self.stride || layout.align() > 16 {
            return None;
        }
        let slots = self.words.len();
        let first = u64::from(thread::index_1d());
        let slot = (0..slots).map(|i| (first + i) % slots).find(|slot| self.claim(*slot))?;
        NonNull::new(self.memory.0.wrapping_add((slot * self.stride) as usize))
    }

    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        let slot = (block.as_ptr() as u64 - self.memory.0 as u64) / self.stride;
        // ordering: release; pairs with alloc()'s acquire.
        self.word(slot).store_release(0);
    }

    fn region(&self) -> (*mut u8, u64) {
        (self.memory.0, self.words.len() * self.stride)
    }
}

stress_kernels! { Slots<SOUND> { stress: stress_slots, exhaust: exhaust_slots, free_all: free_all_slots } }
stress_kernels! {
    Slots<OVERLAPS> { stress: stress_overlapping_slots, exhaust: exhaust_overlapping_slots, free_all: free_all_overlapping_slots }
}

stress_kernels! {
    Slots<RACES> { stress: stress_racing_slots, exhaust: exhaust_racing_slots, free_all: free_all_racing_slots }
}

/// The pool on the host.
pub struct SlotPool<const FAULT: u8> {
    words: DeviceBuffer<u32>,
    memory: DeviceBuffer<u64>,
    stride: u64,
}

/// The kernels and the name of a pool.
pub trait SlotKernels {
    type Handle: DeviceAlloc;
    const KERNELS: Kernels<Self::Handle>;
    const NAME: &'static str;
}

impl SlotKernels for SlotPool<SOUND> {
    type Handle = Slots<SOUND>;
    const KERNELS: Kernels<Slots<SOUND>> = Kernels::new(&stress_slots, &exhaust_slots, &free_all_slots);
    const NAME: &'static str = "slots";
}

impl SlotKernels for SlotPool<OVERLAPS> {
    type Handle = Slots<OVERLAPS>;
    const KERNELS: Kernels<Slots<OVERLAPS>> =
        Kernels::new(&stress_overlapping_slots, &exhaust_overlapping_slots, &free_all_overlapping_slots);
    const NAME: &'static str = "overlapping slots";
}

impl SlotKernels for SlotPool<RACES> {
    type Handle = Slots<RACES>;
    const KERNELS: Kernels<Slots<RACES>> =
        Kernels::new(&stress_racing_slots, &exhaust_racing_slots, &free_all_racing_slots);
    const NAME: &'static str = "racing slots";
}

// SAFETY: the buffers live as long as the pool (S1). `SlotKernels` is implemented above, with
// kernels of `stress_kernels!` (S2). Threads share the words as atomics (S3). No method launches a
// kernel (S4). `module` is the default (S5).
unsafe impl<const FAULT: u8> Subject for SlotPool<FAULT>
where
    Self: SlotKernels<Handle = Slots<FAULT>>,
{
    type Handle = Slots<FAULT>;
    const KERNELS: Kernels<Slots<FAULT>> = <Self as SlotKernels>::KERNELS;
    const NAME: &'static str = <Self as SlotKernels>::NAME;

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let stride = plan.block_bytes().expect("the default shape has blocks of one size");
        let slots = (plan.pool_bytes() / stride) as usize;
        let memory = device.zeroed((plan.pool_bytes() / 8) as usize)?;
        Ok(SlotPool { words: device.zeroed(slots)?, memory, stride })
    }
    fn handle(&self) -> Arg<Slots<FAULT>> {
        let (words, memory) = (self.words.slice(), DevicePtr(self.memory.ptr().0.cast()));
        let slots = Slots { words, memory, stride: self.stride, not_send: PhantomData };
        // SAFETY: both buffers live as long as the pool.
        unsafe { Arg::new(slots) }
    }
    fn start(&self) -> u64 {
        self.memory.ptr().0 as u64
    }
    fn reset(&mut self) -> Result<()> {
        Ok(self.words.fill(0)?)
    }
    fn agrees(&self, live: u64) -> Result<Option<bool>> {
        let allocated: u64 = self.words.copy_to_vec()?.into_iter().map(u64::from).sum();
        Ok(Some(allocated == live))
    }
    fn is_exhausted(&self, plan: &Plan, live: u64, max: u64) -> Result<bool> {
        Ok(live == self.most_blocks(plan).min(max))
    }
    fn most_blocks(&self, _: &Plan) -> u64 {
        self.words.len() as u64
    }
}
