//! The pools whose orders are checked, each small, so that streams compete for its memory.

use super::super::subjects::Pool;
use crate::driver::Device;
use crate::error::Result;
use crate::host_pools::{
    Annotated, BlockPool, BumpPool, CachingPool, CachingPoolBuilder, DeviceAllocator, DriverPool,
    FailureInjected, Failures, Limit, Logged, Overflow, ReusePolicies, Statistics, SyncDriverAllocator,
    Tagged, Traced,
};
use std::alloc::Layout;
use std::sync::Arc;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

pub(super) type Shared = Arc<dyn Pool>;
/// Builds a pool over the memory, if there is some.
pub(super) type Make = fn(&Device, Option<Shared>) -> Result<Shared>;

/// A pool and the memory below it.
pub(super) struct Subject {
    pub name: &'static str,
    /// The upstream. `None` for a pool that takes its memory from the device.
    pub memory: Option<fn(&Device) -> Result<Shared>>,
    pub make: Make,
    pub sizes: &'static [usize],
    /// Live blocks at a time, at most. Some more may not fit.
    pub blocks: usize,
}

impl<A: DeviceAllocator> Pool for Annotated<A> {}
impl<A: DeviceAllocator> Pool for Tagged<A> {}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

fn driver(device: &Device) -> SyncDriverAllocator {
    SyncDriverAllocator::new(device)
}

fn shared(pool: Result<impl Pool + 'static>) -> Result<Shared> {
    Ok(Arc::new(pool?))
}

/// A caching pool of segments of 64 KiB, with slabs up to 2 KiB.
fn small(segments: u64) -> CachingPoolBuilder {
    let builder = CachingPool::builder().segment_bytes(64 << 10).slab_limit(2048);
    builder.spare_bytes(0).max_bytes(segments * (64 << 10))
}

/// A caching pool whose large blocks merge into the extents of their stream.
fn large(segments: u64) -> CachingPoolBuilder {
    CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).max_bytes(segments * (2 << 20))
}

fn driver_pool(max: usize, device: &Device) -> Result<Shared> {
    shared(DriverPool::builder().max_size(max as u64).build(device))
}

const SMALL: &[usize] = &[300, 1000, 1024, 2000, 2048, 3000, 10_000, 30_000, 60_000];
/// Blocks of slabs only.
const SLABS: &[usize] = &[300, 512, 1000, 2048];
const LARGE: &[usize] = &[1000, 5000, 60 * KIB, 100 * KIB, 700 * KIB, MIB, MIB + 512, 2 * MIB, 3 * MIB];
/// Slabs are cut from extents of this size and more.
const MEDIUM: &[usize] = &[300, 2000, 3000, 60 * KIB, 100 * KIB, 250 * KIB];
const EQUAL: &[usize] = &[256, 512];

/// A pool over memory of the device.
const fn single(name: &'static str, (sizes, blocks): (&'static [usize], usize), make: Make) -> Subject {
    Subject { name, memory: None, make, sizes, blocks }
}

/// A pool over another one.
const fn over(
    name: &'static str,
    (sizes, blocks): (&'static [usize], usize),
    memory: fn(&Device) -> Result<Shared>,
    make: Make,
) -> Subject {
    Subject { name, memory: Some(memory), make, sizes, blocks }
}

pub(super) const SUBJECTS: &[Subject] = &[
    single("caching pool", (SMALL, 14), |device, _| shared(small(3).build_over(driver(device)))),
    single("caching pool of slabs", (SLABS, 60), |device, _| shared(small(1).build_over(driver(device)))),
    single("caching pool with room", (SMALL, 20), |device, _| {
        shared(small(40).spare_bytes(200 << 10).build_over(driver(device)))
    }),
    single("caching pool of medium blocks", (MEDIUM, 12), |device, _| {
        let builder = CachingPool::builder().segment_bytes(256 << 10).slab_limit(2048);
        shared(builder.spare_bytes(0).max_bytes(512 << 10).build_over(driver(device)))
    }),
    single("caching pool of large blocks", (LARGE, 8), |device, _| {
        shared(large(3).build_over(driver(device)))
    }),
    single("caching pool in one reservation", (LARGE, 8), |device, _| shared(large(3).build(device))),
    single("caching pool without stream order", (SMALL, 14), |device, _| {
        shared(small(3).stream_ordered(false).build_over(driver(device)))
    }),
    over(
        "caching pool over a driver pool",
        (SMALL, 14),
        |device| driver_pool(256 * KIB, device),
        |_, memory| shared(small(3).build_over(memory.unwrap())),
    ),
    over(
        "caching pool over a block pool",
        (SMALL, 14),
        |device| {
            let segment = Layout::from_size_align(64 * KIB, 64 * KIB).unwrap();
            shared(BlockPool::builder(segment, 4).build(device))
        },
        |_, memory| shared(small(4).build_over(memory.unwrap())),
    ),
    over(
        "caching pool over a caching pool",
        (SMALL, 14),
        |device| shared(small(4).build_over(driver(device))),
        |_, memory| shared(small(3).build_over(memory.unwrap())),
    ),
    single("block pool", (EQUAL, 7), |device, _| shared(BlockPool::builder(layout(512), 6).build(device))),
    single("block pool of many blocks", (EQUAL, 120), |device, _| {
        shared(BlockPool::builder(layout(512), 100).build(device))
    }),
    over(
        "block pool over a driver pool",
        (EQUAL, 9),
        |device| driver_pool(16 * KIB, device),
        |_, memory| shared(BlockPool::builder(layout(512), 6).build_over(memory.unwrap())),
    ),
    single("bump pool", (EQUAL, 9), |device, _| shared(BumpPool::builder(layout(4096)).build(device))),
    over(
        "bump pool that overflows into a driver pool",
        (EQUAL, 12),
        |device| driver_pool(16 * KIB, device),
        |_, memory| {
            let builder = BumpPool::builder(layout(2048)).overflow(Overflow::Upstream);
            shared(builder.build_over(memory.unwrap()))
        },
    ),
    single("driver pool", (SMALL, 14), |device, _| driver_pool(200 * KIB, device)),
    single("driver pool without reuse between streams", (SMALL, 10), |device, _| {
        shared(DriverPool::builder().max_size(2 << 20).reuse(ReusePolicies::none()).build(device))
    }),
    over(
        "adaptors over a driver pool",
        (SMALL, 14),
        |device| driver_pool(200 * KIB, device),
        |_, memory| {
            let failing = FailureInjected::new(memory.unwrap(), Failures::Never);
            let counted = Statistics::new(Limit::new(failing, 1 << 20));
            let logged = Logged::new(Traced::new(counted), std::io::sink());
            shared(Ok(Annotated::new("pool", Tagged::new(logged))))
        },
    ),
];
