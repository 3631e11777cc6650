//! Settings of a caching pool.

use super::class::Classes;
use super::{CachingPool, Hook};
use crate::device_pools::GrowableBuffer;
use crate::driver::Device;
use crate::error::{Bytes, InvalidConfig, Result};
use crate::host_pools::{DeviceAllocator, SyncDriverAllocator};

/// Builder for a [`CachingPool`]. `CachingPool::builder()` returns the defaults.
#[derive(Clone, Debug)]
#[must_use = "a pool is made by build or build_over"]
pub struct CachingPoolBuilder {
    max_bytes: Option<u64>,
    min_block: u64,
    segment_bytes: u64,
    classes_per_doubling: u32,
    slab_limit: u64,
    spare_bytes: u64,
    stream_ordered: bool,
    hook: Option<Hook>,
}

/// The checked settings.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub classes: Classes,
    pub most: u64,
    pub segment_bytes: u64,
    spare_bytes: u64,
    most_spare: u64,
    /// Segment sizes are rounded up to a multiple of this.
    pub granularity: u64,
    pub is_ordered: bool,
    /// Set in a pool of equal blocks: it has one segment for its whole lifetime.
    pub is_fixed: bool,
    pub hook: Option<Hook>,
}

/// The fraction of the pool's limit that may be free before cached memory is coalesced: one part in
/// this many.
const MOST_SPARE: u64 = 32;

impl Settings {
    /// Bytes that may be free with this many streams before cached memory is coalesced.
    pub fn spare(&self, streams: usize) -> u64 {
        self.spare_bytes.saturating_mul(streams as u64).min(self.most_spare)
    }

    /// Settings of a pool of equal blocks of `bytes`, as many as fit into `most` bytes.
    pub fn of_equal(bytes: u64, most: u64) -> Settings {
        Settings {
            classes: Classes::of_equal(bytes),
            most,
            segment_bytes: most,
            spare_bytes: 0,
            most_spare: 0,
            granularity: bytes,
            is_ordered: true,
            is_fixed: true,
            hook: None,
        }
    }

    /// Maximum number of blocks of a size that one refill takes. In a pool of equal blocks it is a
    /// small part of them, so that other streams need not wait for the rest.
    pub fn most_refill(&self, bytes: u64) -> usize {
        if self.is_fixed { (self.most / bytes / MOST_SPARE).max(1) as usize } else { usize::MAX }
    }

    /// Size of the extent that a stream's cache takes, if the request needs no more.
    pub fn extent(&self) -> u64 {
        let part = self.classes.whole((self.most / MOST_SPARE).max(1));
        MOST_EXTENT.min(self.segment_bytes).min(part)
    }

    /// Limits the free memory to its fraction of the device memory.
    fn allow_spare_of(&mut self, device_bytes: u64) {
        self.most_spare = self.most_spare.min(device_bytes / MOST_SPARE);
    }
}

/// Upper limit of [`Settings::extent`].
const MOST_EXTENT: u64 = 16 << 20;
/// Granularity of the driver's mappings.
const PAGE: u64 = 2 << 20;
/// The largest `segment_bytes`.
const MOST_SEGMENT: u64 = 1 << 40;

fn refuse<T>(setting: &'static str, given: u64, why: String) -> Result<T> {
    Err(InvalidConfig::Pool { setting, given: Bytes(given).to_string(), why }.into())
}

impl Default for CachingPoolBuilder {
    fn default() -> CachingPoolBuilder {
        CachingPoolBuilder {
            max_bytes: None,
            min_block: 512,
            segment_bytes: 32 << 20,
            classes_per_doubling: 1,
            slab_limit: 64 << 10,
            spare_bytes: 256 << 20,
            stream_ordered: true,
            hook: None,
        }
    }
}

impl CachingPoolBuilder {
    /// Limit of the memory that the pool takes from its upstream, in bytes. Default: unlimited.
    /// Rounded down to the pool's granularity: the least block, or with [`build`](Self::build) the
    /// granularity of the device's mappings.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The least block, in bytes: a power of two from 256 B to 1 MiB. Default: 512 B.
    pub fn min_block(mut self, bytes: u64) -> Self {
        self.min_block = bytes;
        self
    }

    /// Size of a request to the upstream, in bytes, unless an allocation needs more. Default: 32
    /// MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Size classes per doubling: 1, 2, 4, 8 or 16. Default: 1.
    pub fn classes_per_doubling(mut self, classes: u32) -> Self {
        self.classes_per_doubling = classes;
        self
    }

    /// Largest class that slabs serve; its blocks take their whole class, in bytes: a power of two
    /// from the least block to 1 MiB. Default: 64 KiB. Larger blocks take the requested size,
    /// rounded up to a multiple of the least block.
    pub fn slab_limit(mut self, bytes: u64) -> Self {
        self.slab_limit = bytes;
        self
    }

    /// Limit of free memory for each stream that uses the pool, in bytes, including the next
    /// request to the upstream. At the limit, the pool coalesces what streams cache before it
    /// grows. Default: 256 MiB. All streams together never exceed 1/32 of `max_bytes` or of the
    /// device memory.
    pub fn spare_bytes(mut self, bytes: u64) -> Self {
        self.spare_bytes = bytes;
        self
    }

    /// Whether a free is ordered on its stream and returns at once. Default: `true`. Otherwise a
    /// free waits for its stream on the host, and the memory is usable on any stream afterwards.
    pub fn stream_ordered(mut self, yes: bool) -> Self {
        self.stream_ordered = yes;
        self
    }

    /// Sets a hook that is called when all else has failed, with the number of bytes requested.
    ///
    /// The hook may free blocks, of this pool too. It returns whether the pool should try again.
    /// The allocating thread calls it without holding any lock of this pool. The hook must not
    /// allocate from, or free to, a pool that is built over this one: such a caching pool holds its
    /// own lock while it asks this pool for a segment, and the call would deadlock.
    pub fn on_exhausted(mut self, hook: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.hook = Some(Hook::new(hook));
        self
    }

    fn check(&self) -> Result<Settings> {
        let classes = Classes::new(self.min_block, self.classes_per_doubling, self.slab_limit)?;
        let (most, least) = (self.max_bytes.unwrap_or(u64::MAX), Bytes(self.min_block));
        if most < self.min_block {
            return refuse("max_bytes", most, format!("it is at least the least block (min_block), {least}"));
        }
        if !self.segment_bytes.is_multiple_of(self.min_block) || self.segment_bytes < self.min_block {
            let why = format!("it is a multiple of the least block (min_block), {least}");
            return refuse("segment_bytes", self.segment_bytes, why);
        }
        if self.segment_bytes > MOST_SEGMENT {
            return refuse(
                "segment_bytes",
                self.segment_bytes,
                format!("it is at most {}", Bytes(MOST_SEGMENT)),
            );
        }
        let granularity = if self.segment_bytes.is_multiple_of(PAGE) { PAGE } else { self.min_block };
        let &CachingPoolBuilder { segment_bytes, spare_bytes, stream_ordered: is_ordered, .. } = self;
        // A multiple of the least block, like all sizes in the pool.
        let most = most & !(self.min_block - 1);
        let most_spare = most / MOST_SPARE;
        Ok(Settings {
            classes,
            most,
            segment_bytes,
            spare_bytes,
            most_spare,
            granularity,
            is_ordered,
            is_fixed: false,
            hook: self.hook.clone(),
        })
    }

    /// Builds a pool that allocates segments from `upstream`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for invalid settings, or an error of
    /// the driver.
    pub fn build_over<A: DeviceAllocator>(&self, upstream: A) -> Result<CachingPool<A>> {
        let mut settings = self.check()?;
        settings.allow_spare_of(upstream.device().info()?.memory_total);
        CachingPool::new(upstream, None, settings)
    }

    /// Builds a pool with one segment of `device`, which grows in place at its end. Free memory at
    /// its end is released.
    ///
    /// The pool reserves addresses for `max_bytes`, or for all memory of the device; a reservation
    /// alone takes no memory. Memory is mapped in the granularity of the device, 2 MiB on most
    /// GPUs, and `max_bytes` is rounded down to it. If the device has no virtual memory management,
    /// segments are driver allocations.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for invalid settings, including a
    /// `max_bytes` below the mapping granularity;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the driver.
    pub fn build(&self, device: &Device) -> Result<CachingPool<SyncDriverAllocator>> {
        let asked = self.max_bytes.unwrap_or(u64::MAX);
        let (mut settings, info) = (self.check()?, device.info()?);
        settings.allow_spare_of(info.memory_total);
        let upstream = SyncDriverAllocator::new(device);
        if !info.virtual_memory {
            return CachingPool::new(upstream, None, settings);
        }
        let most = asked.min(info.memory_total);
        let buffer = GrowableBuffer::reserve(device, most)?;
        let granularity = buffer.granularity();
        if most < granularity {
            let why = format!(
                "{device} maps {} at a time: allow as much, or take segments from an allocator (build_over)",
                Bytes(granularity)
            );
            return refuse("max_bytes", most, why);
        }
        // Only whole mappings: the pool never exceeds its limit.
        settings.most = most / granularity * granularity;
        CachingPool::new(upstream, Some(buffer), settings)
    }
}
