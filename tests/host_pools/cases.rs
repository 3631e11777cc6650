//! The allocators and compositions that the suite runs over. A new one adds a line to `cases`. And
//! an upstream without memory, for caching pools that are larger than the memory of the machine.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use warpheap::host_pools::{
    Annotated, BlockPool, BumpPool, CachingPool, CachingPoolBuilder, DeviceAllocator, DriverPool,
    FailureInjected, Failures, Limit, Logged, Overflow, Statistics, SyncDriverAllocator, Tagged, Traced,
};
use warpheap::{Device, Error, MemoryReport, Result, Stream, Usage};
use warpheap_device::kernel::DevicePtr;

pub type Any = Box<dyn DeviceAllocator>;

/// An allocator and its limits.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    make: fn(Any) -> Result<Any>,
    /// The largest layout that it serves, or that the tests request.
    pub max: Layout,
    /// Number of blocks of that layout that fit. `None` if that depends on the device.
    pub room: Option<usize>,
}

impl Case {
    /// Builds the allocator over the memory of `device`.
    pub fn build(&self, device: &Device) -> Any {
        (self.make)(Box::new(SyncDriverAllocator::new(device))).unwrap()
    }

    /// Whether the driver frees its memory in stream order.
    pub fn is_stream_ordered(&self) -> bool {
        self.name.starts_with("stream-ordered")
    }

    /// Whether each call is a driver call, which is slow on a GPU.
    pub fn is_the_driver(&self) -> bool {
        self.name.starts_with("driver")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

pub const fn layout(size: usize, align: usize) -> Layout {
    match Layout::from_size_align(size, align) {
        Ok(layout) => layout,
        Err(_) => panic!("a layout"),
    }
}

const BLOCK: Layout = layout(16 << 10, 1024);
pub const BLOCKS: usize = 200;

fn blocks(upstream: Any) -> Result<BlockPool<Any>> {
    BlockPool::builder(BLOCK, BLOCKS).build_over(upstream)
}

/// A pool that is reset as soon as no block of it is live.
struct Resetting(BumpPool<Any>);

// SAFETY: forwards to `BumpPool`, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Resetting {
    fn device(&self) -> &Device {
        self.0.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        self.0.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        unsafe { self.0.deallocate(ptr, layout, stream) }?;
        if self.0.stats().granted == 0 {
            return Ok(());
        }
        match self.0.reset(stream) {
            Ok(()) | Err(Error::InUse { .. }) => Ok(()),
            Err(error) => panic!("{error}"),
        }
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }

    fn report(&self) -> MemoryReport {
        self.0.report()
    }
}

fn bump(upstream: Any, bytes: usize, policy: Overflow) -> Result<Any> {
    Ok(Box::new(Resetting(
        BumpPool::builder(layout(bytes, BLOCK.align())).overflow(policy).build_over(upstream)?,
    )))
}

/// A caching pool with room for exactly `blocks` blocks, and small segments.
fn caching(blocks: usize) -> CachingPoolBuilder {
    CachingPool::builder().max_bytes((blocks * BLOCK.size()) as u64).segment_bytes(1 << 20)
}

/// The allocators, each over driver memory or the device itself.
pub fn cases() -> Vec<Case> {
    let case = |name, room, make| Case { name, make, max: BLOCK, room };
    let driver = |name, make| case(name, None, make);
    let pool = |name, make| case(name, Some(BLOCKS), make);
    vec![
        driver("driver", Ok),
        driver("driver, with all adaptors", |memory| {
            let inner = Traced::new(FailureInjected::new(memory, Failures::Never));
            Ok(Box::new(Statistics::new(Logged::new(
                Annotated::new("driver", Limit::new(Tagged::new(inner), 1 << 40)),
                std::io::sink(),
            ))))
        }),
        case("driver, limited", Some(40), |memory| {
            Ok(Box::new(Limit::new(memory, 40 * BLOCK.size() as u64)))
        }),
        pool("blocks", |memory| Ok(Box::new(blocks(memory)?))),
        pool("blocks, annotated", |memory| {
            Ok(Box::new(Annotated::over("blocks", memory, |memory| blocks(Box::new(memory)))?))
        }),
        pool("blocks from a block", |memory| {
            let outer =
                BlockPool::builder(layout(BLOCKS * BLOCK.size(), BLOCK.align()), 2).build_over(memory)?;
            Ok(Box::new(blocks(Box::new(outer))?))
        }),
        pool("blocks, counted, logged, traced and shared", |memory| {
            let shared: Arc<dyn DeviceAllocator> = Arc::new(Tagged::new(Traced::new(blocks(memory)?)));
            Ok(Box::new(Statistics::new(Logged::new(shared, std::io::sink()))))
        }),
        case("blocks, limited", Some(77), |memory| {
            Ok(Box::new(Limit::new(blocks(memory)?, 77 * BLOCK.size() as u64)))
        }),
        driver("bump", |memory| bump(memory, 64 << 20, Overflow::Error)),
        pool("bump, its overflow from blocks", |memory| {
            bump(Box::new(blocks(memory)?), BLOCK.size(), Overflow::Upstream)
        }),
        driver("driver, behind a bump pool of 4 KiB", |memory| bump(memory, 4096, Overflow::Upstream)),
        driver("stream-ordered", |memory| Ok(Box::new(DriverPool::builder().build(memory.device())?))),
        pool("stream-ordered, blocks from it", |memory| {
            Ok(Box::new(blocks(Box::new(DriverPool::builder().build(memory.device())?))?))
        }),
        pool("caching", |memory| Ok(Box::new(caching(BLOCKS).build_over(memory)?))),
        case("caching, without a limit", None, |memory| {
            Ok(Box::new(CachingPool::builder().build_over(memory)?))
        }),
        // Large blocks only, which coalesce and fragment, so the pool has more room than the limit.
        case("caching, in four classes and without slabs, limited", Some(77), |memory| {
            let builder = caching(BLOCKS).min_block(1 << 10).slab_limit(1 << 10).classes_per_doubling(4);
            Ok(Box::new(Limit::new(builder.build_over(memory)?, 77 * BLOCK.size() as u64)))
        }),
        pool("caching, without the order of streams", |memory| {
            Ok(Box::new(caching(BLOCKS).stream_ordered(false).build_over(memory)?))
        }),
        pool("caching, from blocks", |memory| {
            let outer =
                BlockPool::builder(layout(BLOCKS / 2 * BLOCK.size(), BLOCK.size()), 2).build_over(memory)?;
            let bytes = (BLOCKS / 2 * BLOCK.size()) as u64;
            Ok(Box::new(caching(BLOCKS).segment_bytes(bytes).build_over(outer)?))
        }),
        pool("caching, with all adaptors, from a caching pool", |memory| {
            // One segment each: blocks of many sizes would fragment several small ones.
            let builder = caching(BLOCKS).segment_bytes((BLOCKS * BLOCK.size()) as u64);
            let outer = Traced::new(builder.clone().build_over(memory)?);
            let inner = FailureInjected::new(builder.build_over(outer)?, Failures::Never);
            Ok(Box::new(Statistics::new(Logged::new(Limit::new(inner, 1 << 40), std::io::sink()))))
        }),
        case("caching, in one segment that grows", None, |memory| {
            Ok(Box::new(CachingPool::builder().build(memory.device())?))
        }),
        // Memory is mapped 2 MiB at a time.
        case("caching, in one segment of 4 MiB", Some(256), |memory| {
            Ok(Box::new(CachingPool::builder().max_bytes(4 << 20).build(memory.device())?))
        }),
    ]
}

/// An upstream of addresses without memory. Nothing may access its blocks.
pub struct Counted {
    device: Device,
    state: Mutex<(u64, BTreeMap<u64, Layout>)>,
}

impl Counted {
    pub fn new(device: &Device) -> Counted {
        Counted { device: device.clone(), state: Mutex::new((1 << 40, BTreeMap::new())) }
    }
}

// SAFETY: each address is allocated once, and these tests neither read nor write any of them.
unsafe impl DeviceAllocator for Counted {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, _: &Stream) -> Result<DevicePtr<u8>> {
        let mut state = self.state.lock().unwrap();
        let start = state.0.next_multiple_of(layout.align() as u64);
        // A gap, so that segments do not touch.
        state.0 = start + layout.size() as u64 + 4096;
        state.1.insert(start, layout);
        Ok(DevicePtr(std::ptr::without_provenance_mut(start as usize)))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, _: &Stream) -> Result<()> {
        assert_eq!(self.state.lock().unwrap().1.remove(&(ptr.0.addr() as u64)), Some(layout));
        Ok(())
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.used_bytes = self.state.lock().unwrap().1.values().map(|of| of.size() as u64).sum();
        usage.reserved_bytes = usage.used_bytes;
        usage
    }
}
