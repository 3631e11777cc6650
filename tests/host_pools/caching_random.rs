//! The caching pool under random sizes: fragmentation, and a measurement of its speed.

use crate::prelude::*;
use warpheap::simt::{Executor, Mode};

/// RMM's benchmark: 73 in 100 operations allocate, as long as allocations are left and fit under
/// the limit. All others free a random block.
struct Random {
    rng: Pcg64Mcg,
    live: u64,
    peak: u64,
    held: Vec<Block>,
}

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn run(pool: &dyn DeviceAllocator, largest: usize, seed: u64, stream: &Stream) -> Random {
        const ALLOCATIONS: usize = 100_000;
        const MOST: u64 = 16_000 << 20;
        let mut of = Random { rng: Pcg64Mcg::seed_from_u64(seed), live: 0, peak: 0, held: Vec::new() };
        let mut made = 0;
        for _ in 0..2 * ALLOCATIONS {
            let size = 1 + of.below(largest as u64);
            let chance = of.below(100) < 73;
            let allocates = chance && made < ALLOCATIONS && of.live + size < MOST;
            if of.held.is_empty() || allocates {
                of.held.push(alloc_bytes(pool, size as usize, stream));
                of.live += size;
                of.peak = of.peak.max(of.live);
                made += 1;
            } else {
                let at = of.below(of.held.len() as u64) as usize;
                let block = of.held.swap_remove(at);
                of.live -= block.1.size() as u64;
                free(pool, block, stream).unwrap();
            }
        }
        of
    }
}

fn ratio<A: DeviceAllocator>(name: &str, pool: &CachingPool<A>, largest: usize, seed: u64) -> f64 {
    let (start, stream) = (std::time::Instant::now(), pool.device().stream().unwrap());
    let stream = &stream;
    let run = Random::run(pool, largest, seed, stream);
    let stats = pool.stats();
    let ratio = stats.peak_reserved_bytes as f64 / run.peak as f64;
    println!(
        "{name}, to {} MiB: peak reserved {} MiB of peak live {} MiB: {ratio:.3}; {} calls upstream, {} of {} hits, {:?}",
        largest / MIB,
        stats.peak_reserved_bytes >> 20,
        run.peak >> 20,
        stats.upstream_allocs + stats.upstream_frees,
        stats.hits,
        stats.hits + stats.misses,
        start.elapsed(),
    );
    for block in run.held {
        free(pool, block, stream).unwrap();
    }
    assert_eq!(pool.usage().used_bytes, 0);
    pool.trim().unwrap();
    assert_eq!(pool.stats().usage.reserved_bytes, 0, "all of it merges and goes back");
    ratio
}

#[test]
fn random_allocations_fragment_little() {
    let executor = Executor::new(Mode::Parallel { workers: 1 });
    let device = Device::cpu_with_executor(executor, 32 << 30);
    for (largest, seed) in [(MIB, 7), (64 * MIB, 7), (64 * MIB, 8), (64 * MIB, 9)] {
        let growing = CachingPool::builder().build(&device).unwrap();
        assert!(ratio("one segment that grows", &growing, largest, seed) <= 1.15);
        // Memory is stranded at the ends of segments.
        let blocks = CachingPool::builder().segment_bytes(1 << 30).build_over(Counted::new(&device)).unwrap();
        assert!(ratio("segments of 1 GiB", &blocks, largest, seed) <= 1.25);
    }
}

/// CPU time of this thread in nanoseconds, where Linux reports it. Other programs do not affect it.
fn of_core() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Nanoseconds per pair, over `count` pairs: wall-clock time, and CPU time.
fn pairs(allocator: &dyn DeviceAllocator, count: u32, size: usize, stream: &Stream) -> (f64, f64) {
    let (start, before) = (std::time::Instant::now(), of_core());
    for _ in 0..count {
        let block = alloc_bytes(allocator, size, stream);
        free(allocator, block, stream).unwrap();
    }
    let by_clock = start.elapsed().as_nanos() as f64;
    let of_core = of_core().zip(before).map_or(by_clock, |(now, before)| (now - before) as f64);
    (by_clock / f64::from(count), of_core / f64::from(count))
}

/// Run it in a release build:
/// `cargo test --release --test host_pools -- --ignored --nocapture pairs_take`.
#[test]
#[ignore = "a measurement"]
fn pairs_take_nanoseconds() {
    const PAIRS: u32 = 2_000_000;
    let device = Device::cpu();
    let pool = CachingPool::builder().build_over(driver(&device)).unwrap();
    let stream = device.stream().unwrap();
    for size in [256, 4096, MIB, 64 * MIB] {
        let (by_clock, of_core) = pairs(&pool, PAIRS, size, &stream);
        println!("1 thread, {size} B: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core");
    }
    for threads in [2, 16] {
        let streams: Vec<_> = (0..threads).map(|_| device.stream().unwrap()).collect();
        let all: Vec<(f64, f64)> = std::thread::scope(|scope| {
            let pool = &pool;
            let work = |stream| scope.spawn(move || pairs(pool, PAIRS, MIB, stream));
            let started: Vec<_> = streams.iter().map(work).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let max = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).fold(0.0, f64::max);
        let (by_clock, of_core) = (max(|of| of.0), max(|of| of.1));
        println!(
            "{threads} threads, 1 MiB, the slowest: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core"
        );
    }
    let (by_clock, of_core) = pairs(&driver(&device), 1000, MIB, &stream);
    println!("the CPU's own memory, 1 MiB: {by_clock:.1} ns a pair by the clock, {of_core:.1} ns of a core");
}
