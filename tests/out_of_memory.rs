//! Failed allocations of host pools explain themselves. A program of its own: the setting applies
//! to the whole process.
#![cfg(not(loom))]

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use warpheap::host_pools::{
    BlockPool, BumpPool, CachingPool, DeviceAllocator, DriverPool, Limit, SyncDriverAllocator, Tagged, tag,
};
use warpheap::simt::{Executor, Mode};
use warpheap::{Device, Error, HeldBy, MemoryReport, Result, Stream, Usage, report_out_of_memory};
use warpheap_device::kernel::DevicePtr;

const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

fn start() -> (Device, Stream) {
    report_out_of_memory(true);
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 256 << 20);
    let stream = device.stream().unwrap();
    (device, stream)
}

fn free(pool: &impl DeviceAllocator, block: DevicePtr<u8>, size: usize, stream: &Stream) {
    // SAFETY: a block of the pool, which no work uses.
    unsafe { pool.deallocate(block, layout(size), stream) }.unwrap();
}

fn tagged(device: &Device) -> Tagged<CachingPool> {
    let pool = CachingPool::builder().name("activations").max_bytes(64 << 20).build(device).unwrap();
    Tagged::new(pool)
}

/// The error of the next allocation, and its report.
fn failure(pool: &impl DeviceAllocator, size: usize, stream: &Stream) -> (Error, MemoryReport) {
    let error = pool.allocate(layout(size), stream).expect_err("it fails");
    let report = error.report().expect("it has a report").clone();
    (error, report)
}

#[test]
fn the_cause_of_a_fragmentation_is_the_tag_that_separates_free_ranges() {
    let (device, stream) = start();
    let pool = tagged(&device);
    let mut temporary = Vec::new();
    for index in 0..64 {
        let _scope = tag(if index % 4 == 0 { "index" } else { "batch" });
        let block = pool.allocate(layout(MIB), &stream).unwrap();
        if index % 4 > 0 {
            temporary.push(block);
        }
    }
    temporary.into_iter().for_each(|block| free(&pool, block, MIB, &stream));
    let _scope = tag("result");
    let (error, report) = failure(&pool, 16 * MIB, &stream);
    let request = report.request.as_ref().expect("a request");
    assert_eq!((request.bytes, request.tag.as_deref()), (16 << 20, Some("result")));
    assert_eq!((report.used_bytes, report.limit_bytes), (16 << 20, Some(64 << 20)));
    assert_eq!(
        (report.free_bytes, report.largest_free_bytes, report.free_ranges),
        (48 << 20, Some(3 << 20), Some(16))
    );
    let holder = &report.holders[0];
    assert_eq!((holder.name.as_str(), holder.blocks, holder.freed), ("index", 16, Some(0)));
    let text = error.to_string();
    let (line, rest) = text.split_once('\n').expect("a line and a report");
    assert!(line.starts_with("the caching pool `activations` (at most 67108864 B"), "{text}");
    assert!(!line.contains("WARPHEAP_OOM_REPORT"), "{text}");
    for part in [
        "[#...#...",
        "Fragmented: 48.0 MiB are free",
        "Blocks with the tag `index` separate them: they end 15 ranges, and are 16 blocks",
    ] {
        assert!(rest.contains(part), "{part}: {text}");
    }
    assert!(!report.advice.iter().any(|sentence| sentence.contains("batch")), "{text}");
}

#[test]
fn the_cause_of_a_leak_is_the_tag_that_never_frees() {
    let (device, stream) = start();
    let pool = tagged(&device);
    let weights = tag("weights");
    for _ in 0..2 {
        pool.allocate(layout(4 * MIB), &stream).unwrap();
    }
    drop(weights);
    let (_, report) = loop {
        {
            let _scope = tag("step");
            let Ok(block) = pool.allocate(layout(2 * MIB), &stream) else {
                break failure(&pool, 2 * MIB, &stream);
            };
            free(&pool, block, 2 * MIB, &stream);
        }
        let _scope = tag("request log");
        if pool.allocate(layout(MIB), &stream).is_err() {
            break failure(&pool, MIB, &stream);
        }
    };
    assert_eq!(report.held_by, HeldBy::Tag);
    let holder = &report.holders[0];
    assert_eq!((holder.name.as_str(), holder.freed), ("request log", Some(0)));
    assert!(holder.blocks > 50, "{report}");
    let words = "Blocks with the tag `request log` hold 87 % of the bytes in use";
    assert!(report.advice[1].starts_with(words) && report.advice[1].contains("none was freed"), "{report}");
    let stats = pool.tags();
    let step = stats.iter().find(|of| of.name.as_deref() == Some("step")).expect("its counts");
    assert!(step.live_blocks == 0 && step.frees == step.allocs && step.peak_bytes == 2 << 20, "{step:?}");
    assert_eq!(stats.iter().map(|of| of.live_bytes).sum::<u64>(), report.used_bytes);
}

/// Each allocator reports its own state, with the names that it was given, and the cause as far as
/// it knows it.
#[test]
fn every_pool_explains_its_failures() {
    let (device, stream) = start();
    let driver = || SyncDriverAllocator::new(&device);
    let in_use = "Not fragmented: too little memory is free.";
    let limit =
        "The limit of 4.0 MiB is reached: 4.0 MiB count towards it. The allocator below has 0 B free.";
    let pools: Vec<(&str, &str, Box<dyn DeviceAllocator>)> = vec![
        ("the block pool `tiles` of 4 blocks of 1048576 B", "Too little memory is free.", {
            let pool = BlockPool::builder(layout(MIB), 4).name("tiles").build_over(driver());
            Box::new(pool.unwrap())
        }),
        ("the bump pool `frame` of 4194304 B", in_use, {
            let pool = BumpPool::builder(layout(4 * MIB)).name("frame").build_over(driver());
            Box::new(pool.unwrap())
        }),
        ("the stream-ordered pool `io`", limit, {
            Box::new(DriverPool::builder().name("io").max_size(4 << 20).build(&device).unwrap())
        }),
        ("a limit of 4.0 MiB on the driver's memory", limit, Box::new(Limit::new(driver(), 4 << 20))),
        ("a caching pool", in_use, {
            let pool = CachingPool::builder().segment_bytes(MIB as u64);
            Box::new(pool.build_over(Limit::new(driver(), 4 << 20)).unwrap())
        }),
    ];
    for (name, cause, pool) in pools {
        let blocks: Vec<_> = (0..4).map(|_| pool.allocate(layout(MIB), &stream).unwrap()).collect();
        let (error, report) = failure(&pool, MIB, &stream);
        assert!(report.allocator.starts_with(name), "{name}: {error}");
        assert_eq!((report.used_bytes, report.free_bytes), (4 << 20, 0), "{error}");
        assert_eq!((report.holders.len(), report.holders[0].blocks), (1, 4), "{error}");
        let request = report.request.as_ref().expect("a request");
        assert_eq!((request.bytes, request.align, request.tag.as_ref()), (1 << 20, 256, None), "{error}");
        assert_eq!(report.advice[0], cause, "{error}");
        assert!(report.advice[1].starts_with("Blocks of 1.0 MiB to 2.0 MiB hold 100 %"), "{error}");
        assert_eq!(error.to_string().matches("report of").count(), 1, "{error}");
        blocks.into_iter().for_each(|block| free(&pool, block, MIB, &stream));
        assert!(pool.report().request.is_none() && pool.report().holders.is_empty(), "{name}");
    }
}

/// Only the driver knows the free ranges. The reports have the figures of the device instead.
#[test]
fn failures_of_the_driver_are_not_taken_for_fragmentation() {
    let (device, stream) = start();
    let driver = SyncDriverAllocator::new(&device);
    let block = driver.allocate(layout(56 * MIB), &stream).unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    let pools: [(&str, &dyn DeviceAllocator); 2] =
        [("the driver's memory", &driver), ("a stream-ordered pool", &pool)];
    for (name, pool) in pools {
        let (error, report) = failure(&pool, 201 * MIB, &stream);
        assert!(report.allocator.starts_with(name), "{error}");
        let of_device = (report.device_free_bytes, report.device_total_bytes);
        assert_eq!((of_device, report.free_ranges), ((Some(200 << 20), Some(256 << 20)), None), "{error}");
        assert_eq!(report.advice[0], "Too little memory is free: 200.0 MiB of 256.0 MiB on the device.");
        assert!(!error.to_string().contains("ragmented: "), "{error}");
    }
    free(&driver, block, 56 * MIB, &stream);
}

/// The limit counts its own blocks, and its upstream has free memory.
#[test]
fn a_limit_is_the_cause_while_its_upstream_has_free_memory() {
    let (device, stream) = start();
    let pool = CachingPool::builder().max_bytes(64 << 20).segment_bytes(64 << 20).build(&device).unwrap();
    let limit = Limit::new(&pool, 8 << 20);
    let of_another = pool.allocate(layout(16 * MIB), &stream).unwrap();
    let blocks = [(); 2].map(|()| limit.allocate(layout(3 * MIB), &stream).unwrap());
    let (error, report) = failure(&limit, 4 * MIB, &stream);
    assert_eq!((report.limit_bytes, report.limited_bytes), (Some(8 << 20), Some(6 << 20)), "{error}");
    let all = report.used_bytes + report.free_bytes + report.withheld_bytes;
    assert_eq!((all, report.reserved_bytes), (64 << 20, 64 << 20), "{error}");
    assert_eq!(
        report.advice[0],
        "The limit of 8.0 MiB is reached: 6.0 MiB count towards it. The allocator below has 42.0 MiB free.",
        "{error}"
    );
    assert!(!error.to_string().contains("ragmented: "), "{error}");
    blocks.into_iter().for_each(|block| free(&limit, block, 3 * MIB, &stream));
    free(&pool, of_another, 16 * MIB, &stream);
}

/// Counts failed allocations, and their reports.
struct Watched<A> {
    upstream: A,
    failures: AtomicUsize,
    reports: AtomicUsize,
}

impl<A> Watched<A> {
    fn new(upstream: A) -> Watched<A> {
        Watched { upstream, failures: AtomicUsize::new(0), reports: AtomicUsize::new(0) }
    }

    fn counts(&self) -> (usize, usize) {
        (self.failures.load(Relaxed), self.reports.load(Relaxed))
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Watched<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        self.upstream.allocate(layout, stream).inspect_err(|error| {
            self.failures.fetch_add(1, Relaxed);
            self.reports.fetch_add(usize::from(error.report().is_some()), Relaxed);
        })
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.upstream.deallocate(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}

#[test]
fn only_the_outermost_allocator_makes_a_report() {
    let (device, stream) = start();
    let watched = Watched::new(Limit::new(SyncDriverAllocator::new(&device), 3 << 20));
    let pool = CachingPool::builder().segment_bytes(4 << 20).build_over(&watched).unwrap();
    // The upstream has no full segment, but less is enough.
    pool.allocate(layout(MIB), &stream).unwrap();
    assert_eq!(watched.counts(), (1, 0), "no report for a successful allocation");
    let inner = Watched::new(pool);
    let (_, report) = failure(&Tagged::new(&inner), 4 * MIB, &stream);
    assert_eq!((report.held_by, inner.counts()), (HeldBy::Tag, (1, 0)));
    assert!(watched.counts().0 > 1 && watched.counts().1 == 0, "{:?}", watched.counts());
    let (_, report) = failure(&inner, 4 * MIB, &stream);
    assert_eq!((report.held_by, inner.counts()), (HeldBy::Size, (2, 1)));
}

#[test]
fn other_errors_have_no_report() -> Result<()> {
    let (device, stream) = start();
    let pool = tagged(&device);
    assert!(pool.allocate(Layout::new::<()>(), &stream).unwrap_err().report().is_none());
    let block = pool.allocate(layout(512), &stream)?;
    free(&pool, block, 512, &stream);
    // SAFETY: the block is not live, so nothing is freed.
    let twice = unsafe { pool.deallocate(block, layout(512), &stream) }.unwrap_err();
    assert!(
        twice.report().is_none() && twice.to_string().contains("the caching pool `activations`"),
        "{twice}"
    );
    Ok(())
}
