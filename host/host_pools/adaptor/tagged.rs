//! Counts blocks by tag.
//!
//! I1: `live` has each block that is allocated or being freed by another thread, with its tag and
//! size. I2: while no call is in progress, `live_blocks = allocs - frees` of each tag, and
//! `live_bytes` is the sum of the sizes of its blocks in `live`.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{address_of, explain};
use crate::host_pools::tag::current_tag;
use crate::lock::lock;
use crate::report::{HeldBy, MemoryReport};
use crate::usage::Usage;
use foldhash::fast::FixedState;
use serde::Serialize;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

/// Name of allocations without a tag.
const UNTAGGED: &str = "(untagged)";

/// Counts live blocks by [`tag`](crate::host_pools::tag()), and adds them to reports.
///
/// A pair of calls takes one lock twice, besides the upstream's cost. A live block takes some 40
/// bytes on the host.
#[derive(Debug)]
pub struct Tagged<A> {
    upstream: A,
    tags: Mutex<Tags>,
}

/// Counts of a tag since the [`Tagged`] was created. Sizes are requested sizes.
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
    /// The tag of each live block, as an index of `stats`, and its size.
    live: HashMap<u64, (usize, u64), FixedState>,
    indices: HashMap<Option<Arc<str>>, usize, FixedState>,
    stats: Vec<TagStats>,
}

impl Tags {
    fn index(&mut self, tag: Option<Arc<str>>) -> usize {
        let stats = &mut self.stats;
        *self.indices.entry(tag).or_insert_with_key(|tag| {
            stats.push(TagStats { name: tag.as_deref().map(str::to_owned), ..TagStats::default() });
            stats.len() - 1
        })
    }

    fn insert(&mut self, address: u64, (index, bytes): (usize, u64)) {
        self.live.insert(address, (index, bytes));
        let stats = &mut self.stats[index];
        stats.live_blocks += 1;
        stats.live_bytes += bytes;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
    }

    fn remove(&mut self, address: u64) -> Option<(usize, u64)> {
        let (index, bytes) = self.live.remove(&address)?;
        let stats = &mut self.stats[index];
        stats.live_blocks -= 1;
        stats.live_bytes -= bytes;
        Some((index, bytes))
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
        lock(&self.tags).stats.clone()
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Tagged<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let done = self.upstream.allocate(layout, stream);
        let mut tags = lock(&self.tags);
        let index = tags.index(current_tag());
        match done {
            Ok(ptr) => {
                tags.stats[index].allocs += 1;
                tags.insert(address_of(ptr), (index, layout.size() as u64));
                Ok(ptr)
            }
            Err(error) => {
                tags.stats[index].failed_allocs += 1;
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
        if let Some((index, bytes)) = removed {
            let mut tags = lock(&self.tags);
            match done {
                Ok(()) => tags.stats[index].frees += 1,
                Err(_) => tags.insert(address, (index, bytes)),
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
        let name = |index: usize| tags.stats[index].name.as_deref().unwrap_or(UNTAGGED);
        let blocks = tags.live.iter().map(|(start, (index, bytes))| (name(*index), *start, 1, *bytes));
        let mut report = report.held_by(HeldBy::Tag, blocks);
        for holder in &mut report.holders {
            let stats = tags.stats.iter().find(|of| of.name.as_deref().unwrap_or(UNTAGGED) == holder.name);
            holder.freed = stats.map(|stats| stats.frees);
        }
        report
    }
}
