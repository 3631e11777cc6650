//! Out of memory: one rung after the other, up to the hook and the error.

use super::super::Stage;
use super::{Caching, MIB, Wrap, give, layout, over, words};
use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use warpheap::error::OutOfMemory;
use warpheap::host_pools::{
    CachingPool, DeviceAllocator, DriverPool, Limit, PoolBuffer, SyncDriverAllocator, Usage,
};
use warpheap::{Device, Error, Result, Stream};
use warpheap_device::kernel::DevicePtr;

/// An upstream of two segments: pending frees, then cached segments, then the error.
pub(super) fn ladder(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let size = 2 * MIB;
    let upstream = Limit::new(SyncDriverAllocator::new(stage.device()), 2 * size as u64);
    let pool = over(wrap, CachingPool::builder().segment_bytes(size as u64), upstream)?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let (one, two) = (pool.allocate(layout(size), &first)?, pool.allocate(layout(size), &first)?);
    stage.linger(&first)?;
    // SAFETY: the block is live, and only that stream uses it until the free.
    unsafe { stage.fill(&first, words(one, size), 9) }?;
    give(&*pool, &first, one, size)?;
    let next = pool.allocate(layout(size), &second)?;
    // SAFETY: the second stream owns the block now.
    let others = unsafe { stage.others(&second, words(next, size), 9) }?;
    stage.check_is(
        "no memory upstream: a pending free serves another stream, which waits; words from before",
        others,
        0,
    );
    let rungs = pool.stats().rungs;
    stage.check_is("served by that rung", rungs.stolen + rungs.done, 1);
    give(&*pool, &first, two, size)?;
    give(&*pool, &second, next, size)?;
    let whole = pool.allocate(layout(2 * size), &first)?;
    let rungs = pool.stats().rungs;
    stage.check_is("4 MiB after cached segments of 2 MiB were given back", rungs.released, 1);
    let more = pool.allocate(layout(size), &first);
    stage.check_refused("and then", more, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
    });
    stage.check_is("refused", pool.stats().rungs.failed, 1);
    give(&*pool, &first, whole, 2 * size)
}

type Happens = Box<dyn FnOnce() -> Result<()> + Send>;

/// An upstream that runs a closure when an allocation fails after an earlier free.
struct Meanwhile {
    upstream: Limit<DriverPool>,
    has_back: AtomicBool,
    then: Mutex<Option<Happens>>,
}

impl Meanwhile {
    fn then(&self, happens: Option<Happens>) {
        *self.then.lock().unwrap_or_else(PoisonError::into_inner) = happens;
    }
}

// SAFETY: forwards to the upstream, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Meanwhile {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let refused = match self.upstream.allocate(layout, stream) {
            Err(error) if self.has_back.load(Relaxed) => error,
            outcome => return outcome,
        };
        let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
        then.map_or(Ok(()), |happens| happens())?;
        Err(refused)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        unsafe { self.upstream.deallocate(ptr, layout, stream) }?;
        self.has_back.store(true, Relaxed);
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}

/// A third stream frees a block after running work, when the pool has already returned all that it
/// could and the upstream has failed again. The only option left is to wait on the host.
pub(super) fn waited(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let size = 2 * MIB;
    let memory = DriverPool::builder().build(stage.device())?;
    let (has_back, then) = (AtomicBool::new(false), Mutex::new(None));
    let upstream = Arc::new(Meanwhile { upstream: Limit::new(memory, 3 * size as u64), has_back, then });
    let builder = CachingPool::builder().segment_bytes(size as u64);
    let pool: Arc<dyn Caching> = Arc::from(over(wrap, builder, upstream.clone())?);
    let [first, second, third] = [stage.new_stream()?, stage.new_stream()?, stage.new_stream()?];
    let (large, small) = (pool.allocate(layout(2 * size), &third)?, pool.allocate(layout(size), &second)?);
    give(&*pool, &second, small, size)?;
    stage.linger(&third)?;
    // SAFETY: the block is live, and only that stream uses it until the free.
    unsafe { stage.fill(&third, words(large, 2 * size), 9) }?;
    let written = third.record()?;
    let (theirs, stream) = (pool.clone(), third.clone());
    upstream.then(Some(Box::new(move || give(&*theirs, &stream, large, 2 * size))));
    let next = pool.allocate(layout(2 * size), &first);
    upstream.then(None);
    let is_done = written.is_done()?;
    let next = next?;
    stage.check_is(
        "a block that another stream gives back too late for all else serves, at its address",
        next.0,
        large.0,
    );
    stage.check_is("after the host waited: what that stream did before is done", is_done, true);
    stage.check_is("served by the rung that waits", pool.stats().rungs.waited, 1);
    // SAFETY: the first stream owns the block now.
    let others = unsafe { stage.others(&first, words(next, 2 * size), 9) }?;
    stage.check_is("words in it that are not from before", others, 0);
    give(&*pool, &first, next, 2 * size)
}

/// The last rung: a hook frees memory of the program.
pub(super) fn hook(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (size, stream) = (2 * MIB, stage.stream().clone());
    let upstream = Arc::new(Limit::new(SyncDriverAllocator::new(stage.device()), 2 * size as u64));
    let spare = PoolBuffer::<u8, _>::new_uninit(upstream.clone(), size, &stream)?;
    let spare = Mutex::new(Some(spare));
    let hook = move |_| spare.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
    let pool = over(wrap, CachingPool::builder().segment_bytes(size as u64).on_exhausted(hook), upstream)?;
    let one = pool.allocate(layout(size), &stream)?;
    let two = pool.allocate(layout(size), &stream)?;
    stage.check_is("allocations that the hook made room for", pool.stats().rungs.hooked, 1);
    let more = pool.allocate(layout(size), &stream);
    stage.check_refused("when it has no more", more, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
    });
    give(&*pool, &stream, one, size)?;
    give(&*pool, &stream, two, size)
}
