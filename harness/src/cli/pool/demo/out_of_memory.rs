//! What a caching pool does when its upstream is out of memory, one step after the other.

use super::calls::{Block, MIB, layout, words};
use super::stage::Stage;
use std::alloc::Layout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpheap::error::OutOfMemory;
use warpheap::host_pools::{
    CachingPool, CachingPoolBuilder, DeviceAllocator, DriverPool, Limit, PoolBuffer, SyncDriverAllocator,
};
use warpheap::{Device, Error, Result, Stream, Usage};

const SIZE: usize = 2 * MIB;

/// Segments of one block.
fn builder() -> CachingPoolBuilder {
    CachingPool::builder().segment_bytes(SIZE as u64)
}

fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
}

/// An upstream of two segments: pending frees, then cached segments, then the error.
pub fn pending_and_cached(stage: &mut Stage) -> Result<()> {
    let upstream = Limit::new(SyncDriverAllocator::new(&stage.device), 2 * SIZE as u64);
    let pool = builder().build_over(upstream)?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let (one, two) =
        (stage.allocate(&pool, layout(SIZE), &first)?, stage.allocate(&pool, layout(SIZE), &first)?);
    stage.linger(&first)?;
    stage.fill(&first, words(one, SIZE), 9)?;
    stage.free(&pool, one, layout(SIZE), &first)?;
    let next = stage.allocate(&pool, layout(SIZE), &second)?;
    stage.check_words("a pending free serves another stream, which waits", &second, words(next, SIZE), 9)?;
    let rungs = pool.stats().rungs;
    stage.check_is("allocations served by that", rungs.stolen + rungs.done, 1);
    stage.free(&pool, two, layout(SIZE), &first)?;
    stage.free(&pool, next, layout(SIZE), &second)?;
    let large = stage.allocate(&pool, layout(2 * SIZE), &first)?;
    stage.check_reported("4 MiB after the release of cached segments", pool.stats().rungs.released, 1);
    stage.check_fails("the next allocation", stage.allocate(&pool, layout(SIZE), &first), is_out_of_memory);
    stage.check_is("failed allocations", pool.stats().rungs.failed, 1);
    stage.free(&pool, large, layout(2 * SIZE), &first)
}

type Action = Box<dyn FnOnce() -> Result<()> + Send>;

/// An upstream that runs an action when an allocation fails after a free.
struct Late {
    upstream: Limit<DriverPool>,
    /// Whether there was a free, and the action.
    state: Mutex<(bool, Option<Action>)>,
}

impl Late {
    fn state(&self) -> MutexGuard<'_, (bool, Option<Action>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl DeviceAllocator for Late {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<Block> {
        let outcome = self.upstream.allocate(layout, stream);
        let mut state = self.state();
        let action = if outcome.is_err() && state.0 { state.1.take() } else { None };
        drop(state);
        action.map_or(Ok(()), |action| action())?;
        outcome
    }

    unsafe fn deallocate(&self, block: Block, layout: Layout, stream: &Stream) -> Result<()> {
        self.state().0 = true;
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}

/// A third stream frees a block after running work, when the pool has already released all that it
/// could and the upstream has failed again. The only option left is to wait on the host.
pub fn wait(stage: &mut Stage) -> Result<()> {
    let memory = Limit::new(DriverPool::builder().build(&stage.device)?, 3 * SIZE as u64);
    let upstream = Arc::new(Late { upstream: memory, state: Mutex::default() });
    let pool = Arc::new(builder().build_over(upstream.clone())?);
    let [first, second, third] = [stage.new_stream()?, stage.new_stream()?, stage.new_stream()?];
    let large = layout(2 * SIZE);
    let (block, small) =
        (stage.allocate(&pool, large, &third)?, stage.allocate(&pool, layout(SIZE), &second)?);
    stage.free(&pool, small, layout(SIZE), &second)?;
    stage.linger(&third)?;
    stage.fill(&third, words(block, 2 * SIZE), 9)?;
    let written = third.record()?;
    let (same_pool, stream) = (pool.clone(), stage.seen(&third).clone());
    // SAFETY: allocated above, and used only by work submitted to the third stream before.
    let free = move || unsafe { same_pool.deallocate(block, large, &stream) };
    upstream.state().1 = Some(Box::new(free));
    let next = stage.allocate(&pool, large, &first);
    upstream.state().1 = None;
    let is_done = written.is_done()?;
    let next = next?;
    stage.check_is("a block that another stream frees last serves, at its address", next.0, block.0);
    stage.check_is("after a wait on the host, that stream's work is done", is_done, true);
    stage.check_is("allocations served by a wait", pool.stats().rungs.waited, 1);
    stage.check_words("that stream's writes are seen", &first, words(next, 2 * SIZE), 9)?;
    stage.free(&pool, next, large, &first)
}

/// The last step before the error: a hook frees memory of the program.
pub fn hook(stage: &mut Stage) -> Result<()> {
    let stream = stage.stream.clone();
    let upstream = Arc::new(Limit::new(SyncDriverAllocator::new(&stage.device), 2 * SIZE as u64));
    let spare = PoolBuffer::<u8, _>::new_uninit(upstream.clone(), SIZE, &stream)?;
    let spare = Mutex::new(Some(spare));
    let hook = move |_| spare.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
    let pool = builder().on_exhausted(hook).build_over(upstream)?;
    let one = stage.allocate(&pool, layout(SIZE), &stream)?;
    let two = stage.allocate(&pool, layout(SIZE), &stream)?;
    stage.check_reported("allocations after the hook freed memory", pool.stats().rungs.hooked, 1);
    stage.check_fails("when it has no more", stage.allocate(&pool, layout(SIZE), &stream), is_out_of_memory);
    stage.free(&pool, one, layout(SIZE), &stream)?;
    stage.free(&pool, two, layout(SIZE), &stream)
}
