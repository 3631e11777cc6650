//! The pools, and the driver calls that each of them uses.

use crate::driver::fault_injection::Call::{self, *};
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::{
    BlockPool, BumpPool, CachingPool, CachingPoolBuilder, DeviceAllocator, DriverPool, Limit, Logged,
    Overflow, RungStats, Statistics, SyncDriverAllocator, Tagged, Traced,
};
use std::alloc::Layout;
use std::sync::Arc;

pub(super) trait Pool: DeviceAllocator {
    /// Frees cached memory or resets the pool, as far as the pool can.
    fn tidy(&self, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    /// Counters of the ladder's rungs, if the pool has a ladder.
    fn rungs(&self) -> Option<RungStats> {
        None
    }

    /// Checks the invariants.
    fn check(&self) {}
}

impl Pool for SyncDriverAllocator {}
impl<A: DeviceAllocator> Pool for Statistics<A> {}

impl<A: DeviceAllocator> Pool for BlockPool<A> {
    fn check(&self) {
        BlockPool::check(self);
    }
}

impl<A: DeviceAllocator> Pool for BumpPool<A> {
    fn tidy(&self, stream: &Stream) -> Result<()> {
        match self.reset(stream) {
            Err(Error::InUse { .. }) => Ok(()),
            other => other,
        }
    }
}

impl Pool for DriverPool {
    fn tidy(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        self.reset_high_water()?;
        self.set_release_threshold(1 << 20)?;
        self.stats()?;
        self.reuse()?;
        self.trim_to(0)
    }
}

impl<A: DeviceAllocator> Pool for CachingPool<A> {
    fn tidy(&self, _: &Stream) -> Result<()> {
        self.trim().map(drop)
    }

    fn rungs(&self) -> Option<RungStats> {
        Some(self.stats().rungs)
    }

    fn check(&self) {
        CachingPool::check(self);
    }
}

/// Driver memory that outlives the pool over it: what the pool does not free stays allocated.
pub(super) type Memory = Arc<SyncDriverAllocator>;
type Make = fn(&Device, Memory) -> Result<Box<dyn Pool>>;

pub(super) struct Subject {
    pub name: &'static str,
    pub make: Make,
    /// Sizes that fit into the pool together.
    pub sizes: &'static [usize],
    /// Number of blocks of the largest size to request. Some of these allocations fail.
    pub requests: usize,
    /// Driver calls that the scenario must reach, at least.
    pub calls: &'static [Call],
}

const MIB: usize = 1 << 20;

const fn small(name: &'static str, requests: usize, calls: &'static [Call], make: Make) -> Subject {
    Subject { name, make, sizes: &[1, 600, 4096, 100], requests, calls }
}

const fn large(name: &'static str, calls: &'static [Call], make: Make) -> Subject {
    Subject { name, make, sizes: &[600, 5000, 100_000, MIB, 3 * MIB], requests: 4, calls }
}

const MEMORY: &[Call] = &[Alloc, Free];
const ONE_REGION: &[Call] = &[Alloc, Free, StreamSynchronize, Record, Wait];
const HOST_WAITS: &[Call] = &[Alloc, Free, StreamSynchronize];
const SEGMENTS: &[Call] =
    &[Alloc, Free, NewStream, StreamSynchronize, StreamQuery, Record, Wait, EventQuery, EventSynchronize];
#[rustfmt::skip]
const RESERVATION: &[Call] = &[
    Info, VirtualMemory, Reserve, Unreserve, Create, Release, Map, Allow, Unmap,
    NewStream, Record, Wait, EventQuery, EventSynchronize,
];
const POOL_IN_POOL: &[Call] = &[NewPool, PoolAlloc, PoolFree, PoolSet, StreamSynchronize, Record, Wait];
const DEFAULT_POOL: &[Call] = &[DefaultPool, PoolAlloc, PoolFree, PoolTrim, PoolGet, PoolSet];
const POOL: &[Call] = &[Info, NewPool, PoolAlloc, PoolFree, PoolTrim, PoolGet, PoolSet];

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 4096).unwrap()
}

fn driver(device: &Device) -> SyncDriverAllocator {
    SyncDriverAllocator::new(device)
}

fn boxed<P: Pool + 'static>(pool: Result<P>) -> Result<Box<dyn Pool>> {
    Ok(Box::new(pool?))
}

/// A caching pool of 10 MiB.
fn caching(segment: usize) -> CachingPoolBuilder {
    CachingPool::builder().max_bytes(10 << 20).segment_bytes(segment as u64)
}

pub(super) const SUBJECTS: &[Subject] = &[
    small("driver memory", 4, MEMORY, |device, _| boxed(Ok(driver(device)))),
    small("driver memory in adaptors", 6, MEMORY, |device, _| {
        let limited = Limit::new(driver(device), 20_000);
        boxed(Ok(Statistics::new(Tagged::new(Logged::new(limited, std::io::sink())))))
    }),
    small("block pool", 8, ONE_REGION, |_, memory| {
        boxed(BlockPool::builder(layout(4096), 6).build_over(memory))
    }),
    small("block pool over a driver pool", 8, POOL_IN_POOL, |device, _| {
        boxed(BlockPool::builder(layout(4096), 6).build_over(DriverPool::builder().build(device)?))
    }),
    small("block pool over a block pool", 8, ONE_REGION, |_, memory| {
        let outer = BlockPool::builder(layout(6 * 4096), 2).build_over(memory)?;
        boxed(BlockPool::builder(layout(4096), 6).build_over(outer))
    }),
    small("bump pool", 4, ONE_REGION, |_, memory| {
        boxed(BumpPool::builder(layout(30_000)).build_over(memory))
    }),
    // Of the two blocks that are live at the drop, one is in the region.
    small("bump pool with overflow", 4, ONE_REGION, |_, memory| {
        boxed(BumpPool::builder(layout(600)).overflow(Overflow::Upstream).build_over(memory))
    }),
    large("driver pool", POOL, |device, _| boxed(DriverPool::builder().max_size(8 << 20).build(device))),
    large("default driver pool", DEFAULT_POOL, |device, _| boxed(DriverPool::default_of(device))),
    large("caching pool over driver memory", SEGMENTS, |_, memory| {
        boxed(caching(4 * MIB).build_over(memory))
    }),
    large("caching pool over a block pool", SEGMENTS, |_, memory| {
        let block = Layout::from_size_align(4 * MIB, 64 << 10).unwrap();
        let blocks = BlockPool::builder(block, 3).build_over(memory)?;
        boxed(CachingPool::builder().segment_bytes(4 << 20).build_over(blocks))
    }),
    large("caching pool over a caching pool in adaptors", SEGMENTS, |_, memory| {
        let outer = Traced::new(Statistics::new(caching(4 * MIB).build_over(memory)?));
        boxed(caching(4 * MIB).build_over(Logged::new(Limit::new(outer, 10 << 20), std::io::sink())))
    }),
    large("caching pool without stream order", HOST_WAITS, |_, memory| {
        boxed(caching(4 * MIB).stream_ordered(false).build_over(memory))
    }),
    large("caching pool in one reservation", RESERVATION, |device, _| boxed(caching(2 * MIB).build(device))),
];
