//! Settings of a caching pool.

use super::class::Classes;
use super::{CachingPool, Hook};
use crate::alloc::{DeviceAllocator, DriverMemory};
use crate::driver::Device;
use crate::error::{Bytes, InvalidConfig, Result};
use crate::pool::GrowableBuffer;

/// What a [`CachingPool`] is made from. `CachingPool::builder()` has the defaults.
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
    /// What sizes of segments are rounded up to.
    pub granularity: u64,
    pub is_ordered: bool,
    /// Of a pool of equal blocks: it has one segment from the beginning to the end.
    pub is_fixed: bool,
    pub hook: Option<Hook>,
}

/// Of what a pool may have, one in so many parts may lie free before it merges what it keeps.
const MOST_SPARE: u64 = 32;

impl Settings {
    /// How much may lie free with so many streams before what they keep is merged.
    pub fn spare(&self, streams: usize) -> u64 {
        self.spare_bytes.saturating_mul(streams as u64).min(self.most_spare)
    }

    /// Of a pool of equal blocks of `bytes`, as many as are in `most` bytes.
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

    /// How many blocks of a size a stream's cache takes at a time, at most: a small part of equal ones, or other streams would have to wait for it.
    pub fn most_refill(&self, bytes: u64) -> usize {
        if self.is_fixed { (self.most / bytes / MOST_SPARE).max(1) as usize } else { usize::MAX }
    }

    /// What a stream's cache takes for itself at a time, if a request needs no more.
    pub fn extent(&self) -> u64 {
        let part = self.classes.whole((self.most / MOST_SPARE).max(1));
        MOST_EXTENT.min(self.segment_bytes).min(part)
    }

    /// Never more than its part of what the device has.
    fn allow_spare_of(&mut self, device_bytes: u64) {
        self.most_spare = self.most_spare.min(device_bytes / MOST_SPARE);
    }
}

/// The most that a stream's cache takes for itself at a time, if a request needs no more.
const MOST_EXTENT: u64 = 16 << 20;
/// What the driver maps at a time.
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
    /// The most that it ever has of its upstream, in bytes; no limit if this is not called. It is rounded down to what the pool takes at
    /// a time: the least block, or with [`build`](Self::build) what the device maps at a time.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The least block, in bytes: a power of two from 256 B to 1 MiB. 512 if this is not called.
    pub fn min_block(mut self, bytes: u64) -> Self {
        self.min_block = bytes;
        self
    }

    /// How much is asked of the upstream at a time, in bytes, if a request needs no more. 32 MiB if this is not called.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Size classes from each power of two to the next: 1, 2, 4, 8 or 16. 1 if this is not called.
    pub fn classes_per_doubling(mut self, classes: u32) -> Self {
        self.classes_per_doubling = classes;
        self
    }

    /// Up to which class blocks are those of slabs and take all of their class, in bytes: a power of two from the least block to
    /// 1 MiB. 64 KiB if this is not called. Larger blocks take what was asked for, in whole least blocks.
    pub fn slab_limit(mut self, bytes: u64) -> Self {
        self.slab_limit = bytes;
        self
    }

    /// How much may lie free for each stream that uses the pool, in bytes, with what is asked of the upstream, before what streams keep is
    /// merged instead. 256 MiB if this is not called; all streams together never more than a 32nd of `max_bytes` and of the device.
    pub fn spare_bytes(mut self, bytes: u64) -> Self {
        self.spare_bytes = bytes;
        self
    }

    /// Whether a free is one in its stream's order, and returns at once; as it is if this is not called. Otherwise it waits for its
    /// stream on the host, and what was freed is anyone's.
    pub fn stream_ordered(mut self, yes: bool) -> Self {
        self.stream_ordered = yes;
        self
    }

    /// What is called when nothing else has helped, with the bytes that are asked for. It may give blocks back, to this pool as
    /// well, and says whether to look again. It is called without any lock of this pool's, by the thread that allocates. It must not
    /// allocate from a pool that stands on this one, nor give back to it: a caching pool on top has its own lock while it asks this one
    /// for a segment, and would wait for itself.
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
        // Whole least blocks, as everything in it is.
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

    /// A pool that takes segments from `upstream`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for settings that cannot be, or what the driver answers.
    pub fn build_over<A: DeviceAllocator>(&self, upstream: A) -> Result<CachingPool<A>> {
        let mut settings = self.check()?;
        settings.allow_spare_of(upstream.device().info()?.memory_total);
        CachingPool::new(upstream, None, settings)
    }

    /// A pool that is one segment of `device`, which grows at its end where it lies; memory at its end that is free is given back.
    /// It reserves addresses for `max_bytes`, or for all the memory of the device; these alone take no memory. Memory comes in what the
    /// device maps at a time, 2 MiB on most GPUs, and `max_bytes` is rounded down to that.
    /// Where the device has no virtual memory management, segments are the driver's allocations.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for settings that cannot be, a `max_bytes` below what the device maps at a time among them;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or what the driver answers.
    pub fn build(&self, device: &Device) -> Result<CachingPool<DriverMemory>> {
        let asked = self.max_bytes.unwrap_or(u64::MAX);
        let (mut settings, info) = (self.check()?, device.info()?);
        settings.allow_spare_of(info.memory_total);
        let upstream = DriverMemory::new(device);
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
        // Only whole ones are mapped, so that it never has more than it may.
        settings.most = most / granularity * granularity;
        CachingPool::new(upstream, Some(buffer), settings)
    }
}
