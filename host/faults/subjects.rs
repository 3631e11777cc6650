//! The pools, and the driver calls that each of them uses.

use crate::driver::fault_injection::Call::{self, *};
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::{
    BlockPool, BumpPool, CachingPool, DeviceAllocator, DriverPool, Limit, Logged, Overflow, RungStats,
    Statistics, SyncDriverAllocator, Traced,
};
use std::alloc::Layout;

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
impl<A: DeviceAllocator> Pool for BlockPool<A> {}
impl<A: DeviceAllocator> Pool for Statistics<A> {}

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
        self.stats()?;
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

pub(super) struct Subject {
    pub name: &'static str,
    pub make: fn(&Device) -> Result<Box<dyn Pool>>,
    /// Sizes that fit into the pool together.
    pub sizes: &'static [usize],
    /// Number of blocks of the largest size to request. Some of these allocations fail.
    pub most: usize,
    /// Driver calls that the scenario must reach, at least.
    pub calls: &'static [Call],
}

const SMALL: &[usize] = &[1, 600, 4096, 100];
const MIB: usize = 1 << 20;
const LARGE: &[usize] = &[600, 5000, 100_000, MIB, 3 * MIB];

const MEMORY: &[Call] = &[Alloc, Free];
const ONE_PIECE: &[Call] = &[Alloc, Free, StreamSynchronize, Record, Wait];
const SEGMENTS: &[Call] =
    &[Alloc, Free, NewStream, StreamSynchronize, StreamQuery, Record, Wait, EventQuery, EventSynchronize];
const GROWING: &[Call] = &[
    Info,
    VirtualMemory,
    Reserve,
    Unreserve,
    Create,
    Release,
    Map,
    Allow,
    Unmap,
    NewStream,
    Record,
    Wait,
    EventQuery,
    EventSynchronize,
];

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 4096).unwrap()
}

pub(super) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "the driver's memory",
        make: |device| Ok(Box::new(SyncDriverAllocator::new(device))),
        sizes: SMALL,
        most: 4,
        calls: MEMORY,
    },
    Subject {
        name: "the driver's memory in adaptors",
        make: |device| {
            let limited = Limit::new(SyncDriverAllocator::new(device), 20_000);
            Ok(Box::new(Statistics::new(Traced::new(Logged::new(limited, std::io::sink())))))
        },
        sizes: SMALL,
        most: 6,
        calls: MEMORY,
    },
    Subject {
        name: "blocks",
        make: |device| {
            Ok(Box::new(BlockPool::builder(layout(4096), 6).build_over(SyncDriverAllocator::new(device))?))
        },
        sizes: SMALL,
        most: 8,
        calls: ONE_PIECE,
    },
    Subject {
        name: "blocks in a stream-ordered pool",
        make: |device| {
            Ok(Box::new(
                BlockPool::builder(layout(4096), 6).build_over(DriverPool::builder().build(device)?)?,
            ))
        },
        sizes: SMALL,
        most: 8,
        calls: &[NewPool, PoolAlloc, PoolFree, PoolSet, StreamSynchronize, Record, Wait],
    },
    Subject {
        name: "a region",
        make: |device| {
            Ok(Box::new(BumpPool::builder(layout(30_000)).build_over(SyncDriverAllocator::new(device))?))
        },
        sizes: SMALL,
        most: 4,
        calls: ONE_PIECE,
    },
    Subject {
        name: "a region, and its upstream",
        make: |device| {
            let memory = SyncDriverAllocator::new(device);
            Ok(Box::new(BumpPool::builder(layout(6000)).overflow(Overflow::Upstream).build_over(memory)?))
        },
        sizes: SMALL,
        most: 4,
        calls: ONE_PIECE,
    },
    Subject {
        name: "a stream-ordered pool",
        make: |device| Ok(Box::new(DriverPool::builder().max_size(8 << 20).build(device)?)),
        sizes: LARGE,
        most: 4,
        calls: &[Info, NewPool, PoolAlloc, PoolFree, PoolTrim, PoolGet, PoolSet, StreamSynchronize],
    },
    Subject {
        name: "the device's own pool",
        make: |device| Ok(Box::new(DriverPool::default_of(device)?)),
        sizes: LARGE,
        most: 4,
        calls: &[NewPool, PoolAlloc, PoolFree, PoolTrim, PoolGet, StreamSynchronize],
    },
    Subject {
        name: "caching, over the driver's memory",
        make: |device| {
            let builder = CachingPool::builder().max_bytes(10 << 20).segment_bytes(4 << 20);
            Ok(Box::new(builder.build_over(SyncDriverAllocator::new(device))?))
        },
        sizes: LARGE,
        most: 4,
        calls: SEGMENTS,
    },
    Subject {
        name: "caching, over blocks",
        make: |device| {
            let block = Layout::from_size_align(4 << 20, 64 << 10).unwrap();
            let blocks = BlockPool::builder(block, 3).build_over(SyncDriverAllocator::new(device))?;
            Ok(Box::new(CachingPool::builder().segment_bytes(4 << 20).build_over(blocks)?))
        },
        sizes: LARGE,
        most: 4,
        calls: SEGMENTS,
    },
    Subject {
        name: "caching, without the order of streams",
        make: |device| {
            let builder = CachingPool::builder().max_bytes(10 << 20).segment_bytes(4 << 20);
            Ok(Box::new(builder.stream_ordered(false).build_over(SyncDriverAllocator::new(device))?))
        },
        sizes: LARGE,
        most: 4,
        calls: ONE_PIECE,
    },
    Subject {
        name: "caching, in one segment that grows",
        make: |device| {
            let builder = CachingPool::builder().max_bytes(10 << 20).segment_bytes(2 << 20);
            Ok(Box::new(builder.build(device)?))
        },
        sizes: LARGE,
        most: 4,
        calls: GROWING,
    },
];
