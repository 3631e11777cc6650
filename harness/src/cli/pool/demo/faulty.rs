//! Pools with the injected fault of a stage.

use super::fault::Fault;
use super::stage::Stage;
use std::alloc::Layout;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap::Usage;
use warpheap::host_pools::{DeviceAllocator, SyncDriverAllocator};
use warpheap::{Device, Result, Stream};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

pub const MIB: usize = 1 << 20;

/// Additional bytes of each leaked block.
const LEAK: usize = 32 << 20;

pub type Block = DevicePtr<u8>;

pub fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a size far below isize::MAX")
}

/// The words of a block of `bytes`.
pub fn words(block: Block, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

/// A pool with the injected fault, if there is one.
pub struct Faulty<P> {
    pool: P,
    fault: Option<Fault>,
    other_stream: Stream,
    other_memory: SyncDriverAllocator,
    first: Mutex<Option<First>>,
}

/// The first block, and how often it was allocated.
#[derive(Clone, Copy)]
struct First {
    block: Block,
    layout: Layout,
    times: usize,
}

impl<P: DeviceAllocator> Faulty<P> {
    pub fn new(stage: &Stage, pool: P) -> Result<Faulty<P>> {
        let (other_stream, other_memory) = (stage.device.stream()?, SyncDriverAllocator::new(&stage.device));
        Ok(Faulty { pool, fault: stage.fault, other_stream, other_memory, first: Mutex::default() })
    }

    /// Frees a block. Steps use it afterwards only by work submitted to the stream before, or on
    /// purpose in a way that is rejected.
    pub fn free(&self, block: Block, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: P1 as described above. P2: of this pool, or of no pool, which is an error.
        unsafe { self.deallocate(block, layout, stream) }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The stream that is passed to the pool.
    pub fn seen<'a>(&'a self, stream: &'a Stream) -> &'a Stream {
        if self.is(Fault::Unordered) { &self.other_stream } else { stream }
    }

    fn changed(&self, layout: Layout) -> Layout {
        let changed = match self.fault {
            Some(Fault::Misaligned) => Layout::from_size_align(layout.size(), 1),
            Some(Fault::Leaks) => Layout::from_size_align(layout.size() + LEAK, layout.align()),
            _ => Ok(layout),
        };
        changed.expect("a size far below isize::MAX")
    }

    fn allocate_faultily(&self, layout: Layout, stream: &Stream) -> Result<Block> {
        match &mut *self.first() {
            Some(first) if self.is(Fault::Overlapping) => {
                first.times += 1;
                return Ok(first.block);
            }
            Some(_) if self.is(Fault::Elsewhere) => return self.other_memory.allocate(layout, stream),
            _ => {}
        }
        // Without the lock: the pool may call an upstream that frees to this pool.
        let block = self.pool.allocate(self.changed(layout), self.seen(stream))?;
        self.first().get_or_insert(First { block, layout, times: 1 });
        Ok(block)
    }

    fn first(&self) -> MutexGuard<'_, Option<First>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: A1 and A2 hold for the pool. With an injected fault they do not, on purpose: the launches
// of a step fail unless the memory is live, and its kernels that access the same words are ordered
// by `Stage::hold`.
unsafe impl<P: DeviceAllocator> DeviceAllocator for Faulty<P> {
    fn device(&self) -> &Device {
        self.pool.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<Block> {
        if self.fault.is_none() {
            return self.pool.allocate(layout, stream);
        }
        let outcome = self.allocate_faultily(layout, stream);
        match self.fault {
            Some(Fault::Generous) => outcome.or(Ok(DevicePtr(std::ptr::without_provenance_mut(256)))),
            Some(Fault::FailureConsumes) => {
                outcome.inspect_err(|_| drop(self.pool.allocate(Layout::new::<u8>(), stream)))
            }
            _ => outcome,
        }
    }

    unsafe fn deallocate(&self, block: Block, layout: Layout, stream: &Stream) -> Result<()> {
        if self.fault.is_none() {
            // SAFETY: the caller's promises P1 and P2.
            return unsafe { self.pool.deallocate(block, layout, stream) };
        }
        let mut layout = self.changed(layout);
        let mut first = self.first();
        // Threads that allocated the first block at the same time got different ones.
        if let (Some(Fault::Overlapping), Some(shared)) = (self.fault, &mut *first)
            && shared.block.0 == block.0
        {
            shared.times -= 1;
            if shared.times > 0 {
                return Ok(());
            }
            layout = shared.layout;
            *first = None;
        }
        drop(first);
        // SAFETY: the caller's promises P1 and P2.
        let free = || unsafe { self.pool.deallocate(block, layout, self.seen(stream)) };
        // SAFETY: as above, for a block of the other memory.
        let free_other = || unsafe { self.other_memory.deallocate(block, layout, stream) };
        match self.fault {
            Some(Fault::Keeps | Fault::Leaks) => Ok(()),
            Some(Fault::AcceptsAnyFree) => free().or(Ok(())),
            Some(Fault::Elsewhere) => free().or_else(|_| free_other()),
            _ => free(),
        }
    }

    fn usage(&self) -> Usage {
        self.pool.usage()
    }
}

impl<P> Deref for Faulty<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.pool
    }
}
