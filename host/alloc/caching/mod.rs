//! Blocks of any size, kept for the stream that freed them.
//!
//! ```text
//!   stream 7 ── cache: bins, extents ─┐ overflow                     ┌─ blocks of the upstream
//!   stream 9 ── cache: bins, extents ─┼──────► shared ◄── segments ──┤ or
//!   …                                 ┘ refill  large pieces, slabs  └─ one reservation that grows at its end
//! ```
//!
//! - An allocation and a free that a stream's cache serves lock that cache, and no one else's; no driver is called and no event recorded.
//!   Uncontended, the pair is five atomic read-modify-writes: two for each lock of the cache, one to claim the block. A block that the cache does
//!   not know again is looked up in the map of all, which takes four more.
//! - Large blocks are cut out of the cache's own extents and merge there (`local`), under the cache's lock as well: a search and two changes of a tree for an
//!   allocation, up to three for a free, and the map is written at each. What all share is not touched.
//! - What a cache does not have comes from what all share, where what is side by side merges, or by the ladder of `ladder`.
//! - Classes and bins are those of `class`. Blocks up to the slabs' limit take their whole class; larger ones take what was asked for, cut out of a
//!   segment by best fit, so that 33 MiB do not take 64.
//!
//! I1: a byte of a segment is in one live block, in one cached block, free, or on its way from one of these to the next with one thread, and never in two. I2: who uses a block comes after all
//! work that may have used it: of the same stream by its order, of another one by an event. I3: `used + cached == reserved`.
//!
//! Locks, in this order, each only while one before it is held or none: `source` (growing and giving back; a driver may be waited for), `shared`, then one after the other of:
//! the map of caches; a cache's bins and extents (all of them only to see whether a pool of equal blocks is exhausted); a shard of the map of blocks, its numbers, a stream's end, the list of streams that have ended. The hook and upstream allocators are called without `shared`.

mod answers;
mod bins;
mod class;
mod config;
mod ladder;
mod live;
mod local;
mod orders;
mod search;
mod segment;
mod shared;
mod slabs;
mod source;
mod stats;
mod stream_cache;
mod streams;
#[cfg(test)]
mod tests;

pub(in crate::alloc) use bins::Back;
pub use config::CachingPoolBuilder;
pub(in crate::alloc) use live::Wrong;
pub use stats::{CachingClassStats, CachingPoolStats, RungStats};

use super::{DeviceAllocator, DriverMemory, Usage, address_of, check_request, lock};
use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::pool::GrowableBuffer;
use class::Need;
use config::Settings;
use live::{BlockId, Live};
use shared::Shared;
use source::Source;
use std::alloc::Layout;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use stream_cache::StreamCache;
use streams::Streams;
use warpheap_device::kernel::DevicePtr;

/// How it calls itself in errors.
const NAME: &str = "a caching pool";

/// A pool of blocks of any size, for programs that allocate and free all the time on streams.
///
/// A block that was freed is kept for the stream of the free, whose next allocation of that size gets it at once. Other streams get it
/// after that stream has passed the point of the free, or wait for that on the device if there is no other memory. Nothing has to be
/// called for that. A stream may go while blocks that were freed on it are pending.
///
/// Sizes up to 2 GiB are rounded to classes ([`rounded`](Self::rounded)): powers of two from 512 B, or finer ones by a setting. Up to 64 KiB (a
/// setting) a block takes all of its class. A larger one takes its size in multiples of 512 B, and the class is where it is cached.
///
/// When memory runs out, the pool looks through other streams' blocks, gives cached segments back, waits for pending work, and asks a hook, in
/// that order, before it fails ([`CachingPoolStats::rungs`] counts them).
///
/// Dropping it gives all memory back after the work that blocks were freed behind; if some are still allocated, it waits for the device, and a
/// warning is logged. On the host a block takes some 100 bytes for as long as it is cut.
///
/// ```
/// use std::alloc::Layout;
/// use warpheap::Device;
/// use warpheap::alloc::{CachingPool, DeviceAllocator};
///
/// # fn main() -> warpheap::Result<()> {
/// let device = Device::cpu();
/// let stream = device.stream()?;
/// let pool = CachingPool::builder().max_bytes(1 << 30).build(&device)?;
/// let layout = Layout::from_size_align(1 << 20, 256).expect("a layout");
/// let first = pool.allocate(layout, &stream)?;
/// // SAFETY: allocated above, and nothing uses it.
/// unsafe { pool.deallocate(first, layout, &stream)? };
/// assert_eq!(pool.allocate(layout, &stream)?.0, first.0, "from the stream's cache");
/// # unsafe { pool.deallocate(first, layout, &stream)? };
/// # Ok(())
/// # }
/// ```
#[must_use = "its memory is freed when it is dropped"]
pub struct CachingPool<A: DeviceAllocator = DriverMemory> {
    upstream: A,
    /// The stream that segments are taken and given back on; it has no other work.
    home: Stream,
    settings: Settings,
    streams: Streams,
    live: Live,
    shared: Mutex<Shared>,
    source: Mutex<Source>,
    /// Whether as much lay free as may, when somebody looked last: a hint.
    is_tight: AtomicBool,
    /// Whether the upstream had no more when it was asked last: then it is asked again only once nothing else helps. A hint.
    is_short: AtomicBool,
    upstream_allocs: AtomicUsize,
    upstream_frees: AtomicUsize,
    /// The most that was ever reserved.
    peak: AtomicUsize,
    /// By [`ladder::Rung`].
    rungs: [AtomicUsize; 8],
}

/// What is called when there is no memory.
#[derive(Clone)]
struct Hook(Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl Hook {
    fn new(hook: impl Fn(u64) -> bool + Send + Sync + 'static) -> Hook {
        Hook(Arc::new(hook))
    }

    fn call(&self, bytes: u64) -> bool {
        (self.0)(bytes)
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl CachingPool {
    /// Settings to make one from.
    pub fn builder() -> CachingPoolBuilder {
        CachingPoolBuilder::default()
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    fn new(upstream: A, reservation: Option<GrowableBuffer>, settings: Settings) -> Result<CachingPool<A>> {
        let home = upstream.device().stream()?;
        Ok(CachingPool {
            upstream,
            home,
            streams: Streams::new(settings.classes, settings.is_ordered),
            live: Live::new(),
            shared: Mutex::new(Shared::new(settings.classes, settings.extent())),
            source: Mutex::new(Source { reservation }),
            settings,
            is_tight: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            upstream_allocs: AtomicUsize::new(0),
            upstream_frees: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            rungs: Default::default(),
        })
    }

    /// What a request of so many bytes is rounded up to: its class, or above 2 GiB itself. No bytes count as one.
    pub fn rounded(&self, bytes: u64) -> u64 {
        self.settings.classes.round(bytes.max(1))
    }

    /// The most that it ever has of its upstream, in bytes; `None` if there is no limit.
    pub fn max_bytes(&self) -> Option<u64> {
        Some(self.settings.most).filter(|most| *most < self.settings.classes.whole(u64::MAX >> 1))
    }

    /// What it takes its memory from.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Gives cached memory back, after waiting on the host for the work that blocks were freed behind; how many bytes. Streams' caches are
    /// empty afterwards. Segments go as wholes: one with a live block stays. A reservation shrinks at its end.
    ///
    /// # Errors
    /// What the upstream or the driver answers. What could not be given back stays cached.
    pub fn trim(&self) -> Result<u64> {
        self.wait_for_pending();
        let mut source = lock(&self.source);
        let (bytes, outcome) = self.give_back(&mut source);
        self.is_short.store(false, Relaxed);
        outcome.map(|()| bytes)
    }

    /// A pool of equal blocks over one allocation of the upstream's, which it has until it goes; the first address.
    pub(in crate::alloc) fn of_equal(
        upstream: A,
        block: Layout,
        region: Layout,
    ) -> Result<(CachingPool<A>, u64)> {
        let settings = Settings::of_equal(block.size() as u64, region.size() as u64);
        let pool = CachingPool::new(upstream, None, settings)?;
        let (bytes, align) = (region.size() as u64, region.align() as u64);
        let start = pool.take_whole(bytes, align)?;
        Ok((pool, start))
    }

    /// What any block of a pool of equal ones takes.
    #[inline]
    pub(in crate::alloc) fn need_of_equal(&self) -> Need {
        self.settings.classes.need_of_equal()
    }

    /// A block that the stream's cache has.
    // Always: copied through memory, what is needed would be loaded while its stores are under way. That is why it is by reference, too.
    #[inline(always)]
    pub(in crate::alloc) fn cached(
        &self,
        need: &Need,
        layout: Layout,
        stream: &Stream,
    ) -> Option<DevicePtr<u8>> {
        let is_tight = self.is_tight.load(Relaxed);
        let take = |cache: &StreamCache| cache.take(need, layout, is_tight, &self.live);
        self.streams.with(stream, take).map(Self::ptr)
    }

    /// One that it does not have; `None` if all blocks of a pool of equal ones are live.
    #[cold]
    pub(in crate::alloc) fn find_equal(
        &self,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Option<DevicePtr<u8>>> {
        let found = self.alloc_slow(self.need_of_equal(), layout, stream)?;
        Ok(found.ok().map(Self::ptr))
    }

    #[cold]
    fn allocate_slow(&self, need: &Need, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let found = self.alloc_slow(*need, layout, stream)?;
        found.map(Self::ptr).map_err(|short| self.exhausted(layout, &short))
    }

    /// Takes a block from its owner that went out from the stream's cache not long ago, back to that; `None` if there is more to be done.
    ///
    /// # Safety
    /// As for [`DeviceAllocator::deallocate`]. The stream is of the pool's device.
    #[inline(always)]
    pub(in crate::alloc) unsafe fn take_back(&self, address: u64, layout: Layout, stream: &Stream) -> Back {
        let is_tight = self.is_tight.load(Relaxed);
        let take_back = |cache: &StreamCache| cache.take_back(address, layout, is_tight, &self.live);
        self.streams.with(stream, take_back)
    }

    /// What is left to be done after that, for any block of the pool's; or why the address is none's.
    #[inline(never)]
    pub(in crate::alloc) fn take_back_slow(
        &self,
        back: Back,
        address: u64,
        layout: Layout,
        stream: &Stream,
    ) -> Result<(), Wrong> {
        match back {
            Back::Kept => {}
            Back::Over { .. } | Back::Huge(_) => self.share(back, stream),
            Back::Unknown => {
                let id = self.live.claim(address, layout)?;
                self.keep(id, layout, stream);
            }
        }
        Ok(())
    }

    fn ptr(address: u64) -> DevicePtr<u8> {
        DevicePtr(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// Puts a block that nobody has into the cache of the stream; what is too many there becomes shared.
    #[inline]
    fn keep(&self, id: BlockId, layout: Layout, stream: &Stream) {
        let asked = layout.size() as u64;
        let is_tight = self.is_tight.load(Relaxed);
        let keep = |cache: &StreamCache| cache.keep(id, asked, is_tight, &self.live);
        let back = self.streams.with(stream, keep);
        if back != Back::Kept {
            self.share(back, stream);
        }
    }

    /// What a cache does not keep.
    #[cold]
    fn share(&self, back: Back, stream: &Stream) {
        let cache = self.streams.get(stream);
        // Under this lock: who empties all caches finds these blocks there, or here.
        let mut shared = lock(&self.shared);
        let blocks = match back {
            Back::Over { class, most } => cache.overflow(class, most, &self.live),
            Back::Huge(id) => vec![id],
            Back::Kept | Back::Unknown => return,
        };
        let order = shared.order_of(&cache);
        shared.accept(blocks, order, &self.live);
    }
}

// SAFETY: live blocks do not overlap (I1), and a block is handed out behind all work that may use it (I2).
unsafe impl<A: DeviceAllocator> DeviceAllocator for CachingPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(NAME, self.device(), layout, stream)?;
        let need = self.settings.classes.need(layout).ok_or_else(|| self.settings.classes.refuse(layout))?;
        match self.cached(&need, layout, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(&need, layout, stream),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        if !self.settings.is_ordered {
            stream.synchronize()?;
        }
        // SAFETY: the caller's promise; the stream is of the device.
        let back = unsafe { self.take_back(address, layout, stream) };
        if back == Back::Kept {
            return Ok(());
        }
        let taken = self.take_back_slow(back, address, layout, stream);
        taken.map_err(|wrong| self.misuse(address, layout, wrong))
    }

    /// It looks at each stream's cache, not at blocks. The largest free block would take a look at all of them: errors say it.
    fn usage(&self) -> Usage {
        let shared = lock(&self.shared);
        Usage {
            used_bytes: self.counts(&shared).used(),
            reserved_bytes: shared.arena.reserved(),
            largest_free_bytes: None,
        }
    }
}

impl<A: DeviceAllocator> Drop for CachingPool<A> {
    fn drop(&mut self) {
        self.streams.close();
        let (unmarked, pending, counts) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending(), self.counts(&shared))
        };
        // In order on the device, as far as the driver does that.
        let ordered = pending.iter().try_for_each(|(_, event)| self.home.wait(event));
        let blocks = counts.blocks();
        if blocks > 0 || !unmarked.is_empty() || ordered.is_err() {
            self.device().driver().drain();
        }
        if blocks > 0 {
            let bytes = counts.used();
            match self.settings.is_fixed {
                true => tracing::warn!(blocks, bytes, "a pool goes while some of its blocks are allocated"),
                false => tracing::warn!(
                    blocks,
                    bytes,
                    "a caching pool goes while some of its blocks are allocated"
                ),
            }
        }
        self.give_all();
    }
}

impl<A: DeviceAllocator> fmt::Debug for CachingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = lock(&self.shared);
        let (used, reserved) = (self.counts(&shared).used(), shared.arena.reserved());
        write!(f, "CachingPool({}, {used} B of {reserved} B in use)", self.device())
    }
}
