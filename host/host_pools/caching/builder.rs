//! Builder of a caching pool.

use super::super::allocator::DeviceAllocator;
use super::super::request::{invalid_setting, named};
use super::super::sync_driver::SyncDriverAllocator;
use super::class::{Classes, KIND};
use super::context::{Hook, SPARE_DIVISOR, Settings};
use super::pool::CachingPool;
use crate::driver::Device;
use crate::driver::GrowableBuffer;
use crate::error::{Bytes, Result};
use std::sync::Arc;

/// Granularity of the driver's mappings.
const PAGE: u64 = 2 << 20;
/// The largest `segment_bytes`.
const MAX_SEGMENT: u64 = 1 << 40;

/// Builder for a [`CachingPool`]. `CachingPool::builder()` returns the defaults.
#[derive(Clone, Debug)]
#[must_use = "call build or build_over"]
pub struct CachingPoolBuilder {
    name: Option<String>,
    max_bytes: Option<u64>,
    min_block: u64,
    segment_bytes: u64,
    classes_per_doubling: u32,
    slab_limit: u64,
    spare_bytes: u64,
    stream_ordered: bool,
    hook: Option<Hook>,
}

impl Default for CachingPoolBuilder {
    fn default() -> CachingPoolBuilder {
        CachingPoolBuilder {
            name: None,
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

impl CachingPool {
    /// Returns a builder with the default settings.
    pub fn builder() -> CachingPoolBuilder {
        CachingPoolBuilder::default()
    }
}

impl CachingPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Limit of the memory that the pool takes from its upstream, in bytes. Default: unlimited.
    /// Rounded down to the pool's granularity: the smallest block, or with [`build`](Self::build)
    /// the granularity of the device's mappings.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The smallest block, in bytes: a power of two from 256 B to 1 MiB. Default: 512 B.
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

    /// The largest size class that slabs serve, in bytes: a power of two from the smallest block to
    /// 1 MiB. Default: 64 KiB. Blocks in slabs take the full size of their class. Larger blocks
    /// take the requested size, rounded up to a multiple of the smallest block.
    pub fn slab_limit(mut self, bytes: u64) -> Self {
        self.slab_limit = bytes;
        self
    }

    /// Limit of free memory for each stream that uses the pool, in bytes, including the next
    /// request to the upstream. At the limit, the pool coalesces memory cached by streams before it
    /// grows. Default: 256 MiB. The limit for all streams together is at most 1/32 of `max_bytes`
    /// and of the device memory.
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
        self.hook = Some(Hook(Arc::new(hook)));
        self
    }

    /// The settings, if they are valid.
    pub(super) fn check(&self) -> Result<Settings> {
        let &CachingPoolBuilder { min_block, segment_bytes, spare_bytes, .. } = self;
        let classes = Classes::new(min_block, self.classes_per_doubling, self.slab_limit)?;
        let max = self.max_bytes.unwrap_or(u64::MAX);
        if max < min_block {
            let why = format!("it must be at least min_block, {}", Bytes(min_block));
            return Err(invalid_setting("max_bytes", Bytes(max), why));
        }
        let is_valid =
            segment_bytes.is_multiple_of(min_block) && (min_block..=MAX_SEGMENT).contains(&segment_bytes);
        if !is_valid {
            let (min, max) = (Bytes(min_block), Bytes(MAX_SEGMENT));
            let why = format!("it must be a multiple of min_block, {min}, and at most {max}");
            return Err(invalid_setting("segment_bytes", Bytes(segment_bytes), why));
        }
        // A multiple of the smallest block, like all sizes in the pool.
        let max_bytes = max & !(min_block - 1);
        Ok(Settings {
            name: named(KIND, self.name.as_deref()),
            classes,
            max_bytes,
            segment_bytes,
            spare_bytes,
            max_spare: max_bytes / SPARE_DIVISOR,
            granularity: if segment_bytes.is_multiple_of(PAGE) { PAGE } else { min_block },
            is_ordered: self.stream_ordered,
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
        settings.limit_spare(upstream.device().info()?.memory_total);
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
        let (mut settings, info) = (self.check()?, device.info()?);
        settings.limit_spare(info.memory_total);
        let upstream = SyncDriverAllocator::new(device);
        if !info.virtual_memory {
            return CachingPool::new(upstream, None, settings);
        }
        let max = self.max_bytes.unwrap_or(u64::MAX).min(info.memory_total);
        let buffer = GrowableBuffer::reserve(device, max)?;
        let granularity = buffer.granularity();
        if max < granularity {
            let min = Bytes(granularity);
            let why = format!(
                "{device} maps {min} at a time: set at least that, or allocate segments from another allocator (build_over)"
            );
            return Err(invalid_setting("max_bytes", Bytes(max), why));
        }
        // A multiple of the mapping granularity: the pool never exceeds its limit.
        settings.max_bytes = max / granularity * granularity;
        CachingPool::new(upstream, Some(buffer), settings)
    }
}
