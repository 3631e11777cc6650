//! While a reservation grows, another thread allocates the free memory at its end that the growth
//! relied on.

use super::super::ladder::MAX_GROWTHS;
use super::*;
use crate::driver::fault_injection::{self, Call};
use crate::error::{Error, OutOfMemory, Result};
use crate::host_pools::address_of;
use std::sync::Mutex;

/// Minimum growth of the pool, in MiB.
const STEP: usize = 4;
/// The requested size in MiB, larger than one step.
const REQUEST: usize = 6;
/// Limit of the pool in MiB. An extent has at most 2 MiB, so 2 MiB of the first step stay free.
const LIMIT: usize = 64;

type Growing = CachingPool<SyncDriverAllocator>;

/// A competing thread with a separate stream. Each time memory is mapped, it allocates all free
/// memory at the end.
struct Rival {
    pool: Arc<Growing>,
    faults: Arc<Faults>,
    stream: Stream,
    blocks: Mutex<Vec<(DevicePtr<u8>, usize)>>,
}

impl Rival {
    /// Interferes with the next `times` mappings.
    fn interfere(self: Arc<Rival>, times: usize) {
        if times == 0 {
            return;
        }
        self.faults.clone().before(Call::Map, move || {
            // At first 2 MiB of the first step are free; later the previous step, which was meant
            // for the other thread.
            let size = if lock(&self.blocks).is_empty() { 2 * MIB } else { STEP * MIB };
            let (pool, stream) = (&self.pool, &self.stream);
            let ptr = std::thread::scope(|scope| {
                let rival = scope.spawn(|| alloc(pool, size, stream).0.expose_provenance());
                DevicePtr(std::ptr::with_exposed_provenance_mut(rival.join().unwrap()))
            });
            lock(&self.blocks).push((ptr, size));
            self.interfere(times - 1);
        });
    }
}

/// Requests more than is free, while the rival interferes `times` times. Returns the pool, the
/// outcome, and the number of mappings for the request.
fn race(times: usize, limit: usize) -> (Arc<Growing>, Result<()>, usize) {
    let (device, faults) = fault_injection::faulty_device(256 << 20);
    let builder = CachingPool::builder().spare_bytes(0).segment_bytes((STEP * MIB) as u64);
    let pool = Arc::new(builder.max_bytes((limit * MIB) as u64).build(&device).unwrap());
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    // If the pool had one stream only, that stream would get the entire first step.
    let cache = pool.streams.get(&other);
    lock(&pool.shared).order_of(&cache);
    let first = alloc(&pool, 2 * MIB, &stream);
    let blocks = Mutex::default();
    let rival = Arc::new(Rival { pool: pool.clone(), faults: faults.clone(), stream: other, blocks });
    rival.clone().interfere(times);
    let before = faults.calls_of(Call::Map);
    let outcome = pool.allocate(layout(REQUEST * MIB), &stream);
    let mapped = faults.calls_of(Call::Map) - before;
    pool.check();

    let mut blocks = std::mem::take(&mut *lock(&rival.blocks));
    assert_eq!(blocks.len(), times, "it interfered each time");
    blocks.push((first, 2 * MIB));
    blocks.extend(outcome.as_ref().ok().map(|ptr| (*ptr, REQUEST * MIB)));
    blocks.sort_unstable_by_key(|(ptr, _)| address_of(*ptr));
    let is_disjoint =
        blocks.is_sorted_by(|(one, size), (two, _)| address_of(*one) + *size as u64 <= address_of(*two));
    assert!(is_disjoint, "two blocks overlap");
    blocks.into_iter().for_each(|(ptr, size)| free(&pool, ptr, size, &stream));
    (pool, outcome.map(drop), mapped)
}

#[test]
fn an_allocation_that_loses_the_race_grows_again() {
    for times in 0..=MAX_GROWTHS {
        let (pool, outcome, mapped) = race(times, LIMIT);
        outcome.unwrap();
        let rungs = pool.stats().rungs;
        // An allocation that always loses releases the cached segments and retries.
        let grown = if times < MAX_GROWTHS { (2, 0) } else { (1, 1) };
        assert_eq!((mapped, rungs.failed), (times + 1, 0), "{times} races: {rungs:?}");
        assert_eq!((rungs.grown, rungs.released), grown, "{times} races: {rungs:?}");
        check_released(&pool);
    }
}

#[test]
fn an_allocation_that_always_loses_fails_at_the_limit() {
    let (pool, outcome, mapped) = race(MAX_GROWTHS, STEP * (MAX_GROWTHS + 1));
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
    let why = "other threads allocated the memory that it grew by, 8 times";
    assert!(error.to_string().contains(why), "{error}");
    assert_eq!((mapped, pool.stats().rungs.failed), (MAX_GROWTHS, 1));
    let stream = pool.device().stream().unwrap();
    free(&pool, alloc(&pool, REQUEST * MIB, &stream), REQUEST * MIB, &stream);
    check_released(&pool);
}
