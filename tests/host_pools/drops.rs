//! Pools that are dropped, with and without live blocks: what they log, and which work they wait
//! for.

use crate::adaptors::events_of;
use crate::prelude::*;

const SMALL: Layout = Layout::new::<[u64; 8]>();

/// What is logged while a pool is dropped after `use_it`.
fn logged<P: DeviceAllocator>(pool: P, use_it: impl FnOnce(&P, &Stream)) -> String {
    let stream = pool.device().stream().unwrap();
    use_it(&pool, &stream);
    events_of(|| drop(pool))
}

fn keep<P: DeviceAllocator>(pool: &P, stream: &Stream) {
    alloc(pool, SMALL, stream);
}

fn keep_none<P: DeviceAllocator>(pool: &P, stream: &Stream) {
    free(pool, alloc(pool, SMALL, stream), stream).unwrap();
}

#[test]
fn only_live_blocks_are_reported_when_a_pool_is_dropped() {
    let device = Device::cpu();
    let caching = || CachingPool::builder().name("kept").build_over(driver(&device)).unwrap();
    let drivers = || DriverPool::builder().name("kept").build(&device).unwrap();
    let one = |text: &str, parts: &[&str]| {
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
    };
    let dropped = "was dropped while some of its blocks were allocated";
    one(&logged(caching(), keep), &["`kept`", dropped, "blocks=1", "bytes=512"]);
    one(&logged(drivers(), keep), &["`kept`", dropped, "blocks=1", "bytes=64"]);
    one(&logged(block_pool(&device, SMALL, 4), keep), &[dropped, "blocks=1", "bytes=64"]);
    assert_eq!(logged(caching(), keep_none), "");
    assert_eq!(logged(drivers(), keep_none), "");
    assert_eq!(logged(block_pool(&device, SMALL, 4), keep_none), "");
    assert_eq!(device.memory_in_use(), (0, 0));
}

/// Blocks of its region and those that overflowed to the upstream.
#[test]
fn a_bump_pool_reports_the_blocks_of_its_region_and_of_its_upstream() {
    let device = Device::cpu();
    let bump = || {
        let builder = BumpPool::builder(layout(64, 256)).overflow(Overflow::Upstream);
        builder.build_over(driver(&device)).unwrap()
    };
    assert_eq!(logged(bump(), keep_none), "");
    let in_region = logged(bump(), keep);
    assert!(in_region.contains("live=1 overflow=0"), "{in_region}");
    let both = logged(bump(), |pool, stream| {
        keep(pool, stream);
        keep(pool, stream);
    });
    assert!(both.contains("live=1 overflow=1"), "{both}");
    let above = logged(bump(), |pool, stream| {
        let first = alloc(pool, SMALL, stream);
        keep(pool, stream);
        free(pool, first, stream).unwrap();
    });
    assert!(above.contains("live=0 overflow=1"), "{above}");
    assert_eq!(device.memory_in_use(), (0, 0));
}

/// A kernel writes to a live block on a stream that the pool does not know of.
#[test]
fn a_pool_with_live_blocks_is_dropped_after_all_work() {
    let device = Device::cpu();
    let (module, first, other) = (module(&device), device.stream().unwrap(), device.stream().unwrap());
    let check = |pool: Box<dyn DeviceAllocator>, overflows: bool| {
        let mut block = alloc(&pool, SMALL, &first);
        if overflows {
            let next = alloc(&pool, SMALL, &first);
            free(&pool, block, &first).unwrap();
            block = next;
        }
        first.synchronize().unwrap();
        launch_linger(&other, &module, first_word(&device, block), 30_000);
        drop(pool);
        assert!(other.is_done().unwrap(), "the drop did not wait");
    };
    // Upstreams that do not wait on the host.
    let upstream = || DriverPool::builder().build(&device).unwrap();
    check(Box::new(CachingPool::builder().build_over(upstream()).unwrap()), false);
    check(Box::new(upstream()), false);
    let bump = || BumpPool::builder(layout(64, 256)).overflow(Overflow::Upstream).build_over(upstream());
    check(Box::new(bump().unwrap()), false);
    check(Box::new(bump().unwrap()), true);
}
