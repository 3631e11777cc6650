//! No pool exceeds its limit, whatever is requested, and a new pool serves a request of its limit.
//!
//! Limits and sizes lie just above and below the units that pools round to: a pool that checks a
//! size before it rounds it exceeds its limit by less than a unit.

use crate::prelude::*;

/// A pool with a limit.
struct Subject {
    name: String,
    limit: u64,
    /// The largest request that the pool serves if nothing is allocated.
    largest: u64,
    pool: Box<dyn DeviceAllocator>,
    /// The most bytes that it has taken from its upstream at a time.
    peak: Box<dyn Fn() -> u64>,
}

const LIMITS: [u64; 6] = [4096, 5000, 64 << 10, 99_999, 1 << 20, (5 << 20) + 777];
/// Settings of a caching pool: the smallest block, the bytes of a segment, classes per doubling.
const SETTINGS: [(u64, u64, u32); 4] =
    [(512, 512, 1), (512, 3 * 512, 4), (4096, 64 << 10, 1), (4096, 2 << 20, 2)];

fn caching(device: &Device, limit: u64, (min_block, segment, classes): (u64, u64, u32)) -> Subject {
    let memory = Arc::new(Statistics::new(driver(device)));
    let builder = CachingPool::builder().min_block(min_block).segment_bytes(segment).spare_bytes(0);
    let builder = builder.classes_per_doubling(classes).max_bytes(limit);
    let pool = builder.build_over(memory.clone()).unwrap();
    // Up to the slab limit, a block has the size of its class.
    let largest = if limit <= 64 << 10 { 1 << limit.ilog2() } else { limit / min_block * min_block };
    let name = format!("caching pool, {min_block} {segment} {classes}");
    let peak = Box::new(move || memory.stats().peak_bytes);
    Subject { name, limit, largest, pool: Box::new(pool), peak }
}

fn reservation(limit: u64) -> Subject {
    let device = Device::cpu();
    let builder = CachingPool::builder().segment_bytes(1 << 20).spare_bytes(0).max_bytes(limit);
    let pool = builder.build(&device).unwrap();
    let peak = move || {
        let info = device.info().unwrap();
        info.memory_total - info.memory_free
    };
    let (name, largest) = ("caching pool in one reservation".into(), limit >> 21 << 21);
    Subject { name, limit, largest, pool: Box::new(pool), peak: Box::new(peak) }
}

fn driver_pool(device: &Device, limit: u64) -> Subject {
    let pool = Arc::new(DriverPool::builder().max_size(limit).build(device).unwrap());
    let (peak, largest) = (pool.clone(), limit / 512 * 512);
    let peak = Box::new(move || peak.stats().unwrap().peak_reserved_bytes);
    Subject { name: "driver pool".into(), limit, largest, pool: Box::new(pool), peak }
}

fn adaptor(device: &Device, limit: u64) -> Subject {
    let memory = Arc::new(Statistics::new(driver(device)));
    let pool = Box::new(Limit::new(memory.clone(), limit));
    let peak = Box::new(move || memory.stats().peak_bytes);
    Subject { name: "limit".into(), limit, largest: limit, pool, peak }
}

fn subjects(device: &Device) -> Vec<Subject> {
    let of_limit = |limit: u64| {
        let caching = SETTINGS.map(|settings| caching(device, limit, settings));
        caching.into_iter().chain([driver_pool(device, limit), adaptor(device, limit)])
    };
    let reserved = [2 << 20, (4 << 20) - 1, (6 << 20) + 513].map(reservation);
    LIMITS.into_iter().flat_map(of_limit).chain(reserved).collect()
}

fn check(subject: &Subject, size: u64) {
    let Subject { name, limit, pool, peak, .. } = subject;
    let (peak, reserved) = (peak(), pool.usage().reserved_bytes);
    assert!(peak <= *limit && reserved <= *limit, "{name} of {limit} after {size} B: {peak}, {reserved}");
}

#[test]
fn no_pool_exceeds_its_limit() {
    let (device, _) = cpu();
    for subject in subjects(&device) {
        let Subject { name, limit, pool, .. } = &subject;
        let stream = pool.device().stream().unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(*limit);
        let mut live: Vec<Block> = Vec::new();
        let mut served = 0;
        for _ in 0..400 {
            let word = rng.next_u64();
            // A part of the limit, and a few bytes or units more or less.
            let part = limit / (1 << (word % 5));
            let nearby = [1, 7, 256, 511, 512, 513, 4095, 4096, 4097][(word >> 8) as usize % 9];
            let size =
                if word & 32 == 0 { part.saturating_sub(nearby) } else { part + (word >> 16) % 2 * nearby };
            let wanted = layout(size.max(1) as usize, 1 << ((word >> 32) % 13));
            match pool.allocate(wanted, &stream) {
                Ok(ptr) => live.push((ptr, wanted)),
                Err(error) => assert!(matches!(error, Error::OutOfMemory(_)), "{name}: {error}"),
            }
            served += live.len();
            check(&subject, size);
            assert!(pool.usage().used_bytes <= *limit, "{name} of {limit}");
            while live.len() > (word >> 40) as usize % 6 {
                let block = live.swap_remove((word >> 48) as usize % live.len());
                free(pool, block, &stream).unwrap();
            }
            check(&subject, size);
        }
        assert!(served > 100, "{name} of {limit} serves requests");
    }
}

#[test]
fn a_new_pool_serves_a_request_of_its_limit_and_no_more() {
    let (device, _) = cpu();
    for subject in subjects(&device) {
        let Subject { name, limit, largest, pool, .. } = &subject;
        let stream = pool.device().stream().unwrap();
        for more in [1, 255, 256, 511, 512, 4095] {
            let wanted = layout((largest + more) as usize, 1);
            assert!(
                pool.allocate(wanted, &stream).is_err(),
                "{name} of {limit}: {more} B more than {largest}"
            );
            check(&subject, largest + more);
        }
        for _ in 0..2 {
            let block = pool.allocate(layout(*largest as usize, 1), &stream);
            let block = block.unwrap_or_else(|error| panic!("{name} of {limit}: {error}"));
            check(&subject, *largest);
            free(pool, (block, layout(*largest as usize, 1)), &stream).unwrap();
        }
    }
}
