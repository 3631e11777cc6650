//! Counts blocks by tag.
//!
//! I1: `live` has each block that is allocated or being freed by another thread, with its tag and
//! size. I2: while no call is in progress, `live_blocks = allocs - frees` of each tag, and
//! `live_bytes` is the sum of the sizes of its blocks in `live`. I3: a tag is removed only while
//! `allocs = frees`: then it has no block in `live`, and no free is in progress.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{address_of, explain};
use crate::host_pools::tag::current_tag;
use crate::lock::lock;
use crate::report::{HeldBy, MemoryReport, unexplained};
use crate::usage::Usage;
use foldhash::fast::FixedState;
use serde::Serialize;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

/// Name of allocations without a tag.
const UNTAGGED: &str = "(untagged)";
/// With more tags than this, the counts of those without a live block are dropped.
const MAX_IDLE_TAGS: usize = 1024;

/// Counts live blocks by [`tag`](crate::host_pools::tag()), and adds them to reports.
///
/// A pair of calls takes one lock twice, besides the upstream's cost. A live block takes some 40
/// bytes on the host. With more than 1,024 tags, the counts of those without a live block are
/// dropped from time to time: programs may make tags of request numbers.
#[derive(Debug)]
pub struct Tagged<A> {
    upstream: A,
    tags: Mutex<Tags>,
}

/// Counts of a tag since its first use, or its first use after it was dropped ([`Tagged`]). Sizes
/// are requested sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TagStats {
    /// The tag; `None` for allocations without one.
    pub name: Option<String>,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// High-water mark of live bytes.
    pub peak_bytes: u64,
    /// Successful allocations.
    pub allocs: u64,
    /// Successful frees of these.
    pub frees: u64,
    /// Failed allocations.
    pub failed_allocs: u64,
}

#[derive(Debug, Default)]
struct Tags {
    /// The tag of each live block, as a key of `stats`, and its size.
    live: HashMap<u64, (u64, u64), FixedState>,
    keys: HashMap<Option<Arc<str>>, u64, FixedState>,
    /// Keys are numbered in the order of their first use.
    stats: HashMap<u64, TagStats, FixedState>,
    next: u64,
    /// The number of tags at which idle ones are dropped next.
    bound: usize,
}

impl Tags {
    /// The counts of a tag, and its key.
    fn of(&mut self, tag: Option<Arc<str>>) -> (u64, &mut TagStats) {
        let key = match self.keys.get(&tag) {
            Some(key) => *key,
            None => self.add(tag),
        };
        (key, self.stats.entry(key).or_default())
    }

    #[cold]
    fn add(&mut self, tag: Option<Arc<str>>) -> u64 {
        if self.stats.len() >= self.bound.max(MAX_IDLE_TAGS) {
            self.stats.retain(|_, stats| stats.allocs != stats.frees);
            self.keys.retain(|_, key| self.stats.contains_key(key));
            // The time of this is amortised over the tags that are added until the next time.
            self.bound = 2 * self.stats.len();
        }
        let (key, name) = (self.next, tag.as_deref().map(str::to_owned));
        self.next += 1;
        self.stats.insert(key, TagStats { name, ..TagStats::default() });
        self.keys.insert(tag, key);
        key
    }

    fn insert(&mut self, address: u64, (key, bytes): (u64, u64)) {
        self.live.insert(address, (key, bytes));
        if let Some(stats) = self.stats.get_mut(&key) {
            stats.live_blocks += 1;
            stats.live_bytes += bytes;
            stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
        }
    }

    fn remove(&mut self, address: u64) -> Option<(u64, u64)> {
        let (key, bytes) = self.live.remove(&address)?;
        if let Some(stats) = self.stats.get_mut(&key) {
            stats.live_blocks -= 1;
            stats.live_bytes -= bytes;
        }
        Some((key, bytes))
    }
}

impl<A: DeviceAllocator> Tagged<A> {
    /// Counts the blocks that are allocated from `upstream` through this from now on.
    pub fn new(upstream: A) -> Tagged<A> {
        Tagged { upstream, tags: Mutex::default() }
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// The counts of each tag, in the order of their first use.
    pub fn tags(&self) -> Vec<TagStats> {
        let mut all: Vec<_> = lock(&self.tags).stats.iter().map(|(key, of)| (*key, of.clone())).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, stats)| stats).collect()
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Tagged<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let done = unexplained(|| self.upstream.allocate(layout, stream));
        let mut tags = lock(&self.tags);
        let (key, stats) = tags.of(current_tag());
        match done {
            Ok(ptr) => {
                stats.allocs += 1;
                tags.insert(address_of(ptr), (key, layout.size() as u64));
                Ok(ptr)
            }
            Err(error) => {
                stats.failed_allocs += 1;
                drop(tags);
                Err(explain(error, layout, self))
            }
        }
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        let address = address_of(ptr);
        // Before the call: another thread may get the address as soon as the upstream has it.
        let removed = lock(&self.tags).remove(address);
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        if let Some((key, bytes)) = removed {
            let mut tags = lock(&self.tags);
            match (&done, tags.stats.get_mut(&key)) {
                (Ok(()), Some(stats)) => stats.frees += 1,
                (Ok(()), None) => {}
                (Err(_), _) => tags.insert(address, (key, bytes)),
            }
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    /// The report of the upstream, with holders by tag.
    fn report(&self) -> MemoryReport {
        let report = self.upstream.report();
        let tags = lock(&self.tags);
        let blocks = tags.live.iter().map(|(start, (key, bytes))| (*key, *start, 1, *bytes));
        report.held_by(HeldBy::Tag, blocks, |key| {
            let stats = tags.stats.get(&key);
            let name = stats.and_then(|stats| stats.name.as_deref()).unwrap_or(UNTAGGED);
            (name.to_owned(), stats.map(|stats| stats.frees))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_pools::{SyncDriverAllocator, tag};

    fn layout() -> Layout {
        Layout::new::<[u8; 256]>()
    }

    #[test]
    fn idle_tags_are_dropped_beyond_a_bound() {
        let device = Device::cpu();
        let stream = device.stream().unwrap();
        let pool = Tagged::new(SyncDriverAllocator::new(&device));
        let allocate = |name: &str| {
            let _scope = tag(name);
            pool.allocate(layout(), &stream).unwrap()
        };
        // SAFETY: a block of the pool, which no work uses.
        let free = |block| unsafe { pool.deallocate(block, layout(), &stream) }.unwrap();
        let kept = allocate("kept");
        for request in 0..5000 {
            free(allocate(&format!("request {request}")));
            assert!(pool.tags().len() <= MAX_IDLE_TAGS);
        }
        let all = pool.tags();
        let counts = (all[0].name.as_deref(), all[0].live_blocks, all[0].allocs, all[0].frees);
        assert_eq!(counts, (Some("kept"), 1, 1, 0));
        assert_eq!(all.last().unwrap().name.as_deref(), Some("request 4999"));
        free(kept);
        let kept = &pool.tags()[0];
        assert_eq!((kept.name.as_deref(), kept.live_blocks, kept.frees), (Some("kept"), 0, 1));
        // All tags in use: none is dropped.
        let blocks: Vec<_> = (0..2000).map(|request| allocate(&format!("used {request}"))).collect();
        let used = |of: &&TagStats| of.live_blocks == 1;
        assert_eq!(pool.tags().iter().filter(used).count(), 2000);
        blocks.into_iter().for_each(free);
        let tags = lock(&pool.tags);
        assert!(tags.live.is_empty() && tags.keys.len() == tags.stats.len());
    }

    #[test]
    fn a_tag_named_like_no_tag_is_another_holder() {
        let device = Device::cpu();
        let stream = device.stream().unwrap();
        let pool = Tagged::new(SyncDriverAllocator::new(&device));
        pool.allocate(layout(), &stream).unwrap();
        let scope = tag(UNTAGGED);
        let block = pool.allocate(layout(), &stream).unwrap();
        // SAFETY: a block of the pool, which no work uses.
        unsafe { pool.deallocate(block, layout(), &stream) }.unwrap();
        pool.allocate(layout(), &stream).unwrap();
        drop(scope);
        let holders = pool.report().holders;
        let mut counts: Vec<_> = holders.iter().map(|of| (&*of.name, of.blocks, of.freed)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(UNTAGGED, 1, Some(0)), (UNTAGGED, 1, Some(1))]);
    }
}
