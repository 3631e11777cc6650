//! Every upstream call fails once, and some fail at random by a seed. The error names the call,
//! nothing leaks, and the allocator stays usable.

use crate::prelude::*;

/// Repeats a call until it succeeds. Counts its failures.
fn insist<T>(failures: &mut u64, mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(Error::FailureInjected { .. }) => *failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Builds an allocator, uses it and drops it. Returns the number of upstream calls, of those that
/// failed, and of the failures that were reported or occurred in the drop.
fn use_it(case: &Case, device: &Device, which: Failures) -> (u64, u64, u64) {
    let flawed = Arc::new(FailureInjected::new(driver(device), which));
    let mut reported = 0;
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let allocator = insist(&mut reported, || case.build_over(Box::new(flawed.clone())));
    for _ in 0..2 {
        let mut blocks: Vec<Block> = Vec::new();
        for _ in 0..case.room.unwrap_or(5).min(5) {
            blocks.push((insist(&mut reported, || allocator.allocate(case.max, &stream)), case.max));
        }
        let mut starts: Vec<_> = blocks.iter().map(|(ptr, _)| ptr.0).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), blocks.len(), "{case}");
        for block in blocks {
            insist(&mut reported, || free(&allocator, block, &other));
        }
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    }
    let before_drop = flawed.failed();
    drop(allocator);
    let in_drop = flawed.failed() - before_drop;
    // The drop tries twice. Memory that it could not free remains allocated upstream.
    let kept = flawed.upstream().usage().used_bytes;
    assert!(kept == 0 || in_drop >= 2, "{case}: {kept} B are still allocated, after {in_drop} failures");
    (flawed.calls(), flawed.failed(), reported + in_drop)
}

#[test]
fn each_call_upstream_fails_once() {
    for case in over_upstreams().into_iter().filter(Case::has_upstream) {
        let device = Device::cpu();
        let (calls, failed, _) = use_it(&case, &device, Failures::Never);
        assert!(calls >= 2 && failed == 0, "{case}");
        for nth in 1..=calls {
            let (_, failed, reported) = use_it(&case, &device, Failures::Nth(nth));
            assert_eq!((failed, reported), (1, 1), "{case}: call {nth}");
            assert_eq!(device.memory_in_use(), (0, 0), "{case}: call {nth} leaks");
        }
    }
}

#[test]
fn random_failures_are_reproducible_by_seed() {
    for case in over_upstreams().into_iter().filter(Case::has_upstream) {
        let device = Device::cpu();
        let run = |seed| {
            let one_in = NonZeroU64::new(2).unwrap();
            let (calls, failed, reported) = use_it(&case, &device, Failures::OneIn(one_in, seed));
            assert_eq!(failed, reported, "{case}, seed {seed}");
            assert_eq!(device.memory_in_use(), (0, 0), "{case}, seed {seed}, leaks");
            (calls, failed)
        };
        let all: Vec<_> = (0..20).map(run).collect();
        assert_eq!(all, (0..20).map(run).collect::<Vec<_>>());
        assert!(all.iter().any(|(_, failed)| *failed > 0), "{case}");
    }
}

/// The upstream outlives the pool, so nothing else frees the memory.
#[test]
fn a_dropped_pool_retries_a_failed_free() {
    let device = Device::cpu();
    let (stream, region) = (device.stream().unwrap(), Layout::from_size_align(1 << 20, 256).unwrap());
    type Upstream = Arc<FailureInjected<SyncDriverAllocator>>;
    type Make = fn(Upstream, Layout, Layout) -> Box<dyn DeviceAllocator>;
    let block = Layout::from_size_align(4096, 256).unwrap();
    let pools: [Make; 3] = [
        |upstream, _, block| Box::new(BlockPool::builder(block, 256).build_over(upstream).unwrap()),
        |upstream, region, _| Box::new(BumpPool::builder(region).build_over(upstream).unwrap()),
        |upstream, _, _| {
            Box::new(CachingPool::builder().segment_bytes(1 << 20).build_over(upstream).unwrap())
        },
    ];
    for make in pools {
        let upstream = Arc::new(FailureInjected::new(driver(&device), Failures::Nth(2)));
        let pool = make(upstream.clone(), region, block);
        let ptr = pool.allocate(block, &stream).unwrap();
        free(&*pool, (ptr, block), &stream).unwrap();
        assert_eq!(upstream.calls(), 1);
        drop(pool);
        assert_eq!((upstream.calls(), upstream.failed(), device.memory_in_use()), (3, 1, (0, 0)));
    }
}
