//! While a reservation grows, another thread takes the free memory at its end that the growth
//! relied on.

use super::*;
use crate::driver::fault_injection::{self, Call, Faults};
use crate::error::Result;
use crate::error::{Error, OutOfMemory};
use crate::host_pools::request::address_of;
use std::sync::Mutex;

/// Minimum growth of the pool, in MiB.
const STEP: usize = 4;
/// The requested size in MiB, larger than one step.
const ASKED: usize = 6;
/// Limit of the pool in MiB. An extent has at most 2 MiB, so 2 MiB of the first step stay free.
const MOST: usize = 64;
/// The number of growth attempts for one allocation.
const ATTEMPTS: usize = crate::host_pools::caching::search::MAX_GROWTHS;

type Growing = CachingPool<SyncDriverAllocator>;

/// A competing thread with a separate stream. Each time memory is mapped, it allocates all free
/// memory at the end.
struct Thief {
    pool: Arc<Growing>,
    faults: Arc<Faults>,
    stream: Stream,
    taken: Mutex<Vec<(DevicePtr<u8>, usize)>>,
}

impl Thief {
    /// Interferes with the next `times` mappings.
    fn come(self: Arc<Thief>, times: usize) {
        if times == 0 {
            return;
        }
        self.faults.clone().before(Call::Map, move || {
            // At first 2 MiB of the first step are free; later the previous step, which was meant
            // for the other thread.
            let size = if lock(&self.taken).is_empty() { 2 * MIB } else { STEP * MIB };
            let one = &self;
            let ptr = std::thread::scope(|scope| {
                let thief = scope.spawn(|| take_of(&one.pool, size, &one.stream).0.expose_provenance());
                DevicePtr(std::ptr::with_exposed_provenance_mut(thief.join().unwrap()))
            });
            lock(&self.taken).push((ptr, size));
            self.come(times - 1);
        });
    }
}

fn take_of(pool: &Growing, size: usize, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(layout(size), stream).unwrap()
}

/// Requests more than is free, while the thief interferes `times` times. Returns the pool, the
/// outcome, and the number of mappings for the request.
fn race(times: usize, most: usize) -> (Arc<Growing>, Result<()>, usize) {
    let (device, faults) = fault_injection::faulty_device(256 << 20);
    let builder = CachingPool::builder()
        .spare_bytes(0)
        .segment_bytes((STEP * MIB) as u64)
        .max_bytes((most * MIB) as u64);
    let pool = Arc::new(builder.build(&device).unwrap());
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    // If the pool had one stream only, that stream would get the whole first step.
    let cache = pool.streams.get(&other);
    lock(&pool.shared).order_of(&cache);
    let first = take_of(&pool, 2 * MIB, &stream);
    let taken = Mutex::default();
    let thief = Arc::new(Thief { pool: pool.clone(), faults: faults.clone(), stream: other, taken });
    thief.clone().come(times);
    let before = faults.calls_of(Call::Map);
    let asked = pool.allocate(layout(ASKED * MIB), &stream);
    let mapped = faults.calls_of(Call::Map) - before;
    pool.check();

    let mut blocks = std::mem::take(&mut *lock(&thief.taken));
    assert_eq!(blocks.len(), times, "it came each time");
    blocks.push((first, 2 * MIB));
    blocks.extend(asked.as_ref().ok().map(|ptr| (*ptr, ASKED * MIB)));
    blocks.sort_unstable_by_key(|(ptr, _)| address_of(*ptr));
    let mut ends =
        blocks.windows(2).map(|two| address_of(two[0].0) + two[0].1 as u64 <= address_of(two[1].0));
    assert!(ends.all(|is_apart| is_apart), "two blocks overlap");
    for (ptr, size) in blocks {
        // SAFETY: no work uses the block, and it is freed once (P1, P2).
        unsafe { pool.deallocate(ptr, layout(size), &stream) }.unwrap();
    }
    (pool, asked.map(drop), mapped)
}

/// All memory is free again, and is released.
fn ends_well(pool: &Growing) {
    pool.check();
    pool.trim().unwrap();
    assert_eq!((pool.stats().usage.used_bytes, pool.stats().usage.reserved_bytes), (0, 0));
}

#[test]
fn who_loses_what_it_counted_on_grows_again() {
    for times in 0..ATTEMPTS {
        let (pool, asked, mapped) = race(times, MOST);
        asked.unwrap();
        let rungs = pool.stats().rungs;
        assert_eq!((mapped, rungs.grown, rungs.failed), (times + 1, 2, 0), "{times} races: {rungs:?}");
        ends_well(&pool);
    }
}

#[test]
fn who_loses_each_time_gives_back_what_is_cached_and_asks_once_more() {
    let (pool, asked, mapped) = race(ATTEMPTS, MOST);
    asked.unwrap();
    let rungs = pool.stats().rungs;
    assert_eq!((mapped, rungs.released, rungs.failed), (ATTEMPTS + 1, 1, 0), "{rungs:?}");
    ends_well(&pool);
}

#[test]
fn who_loses_each_time_up_to_the_limit_is_told_of_the_others() {
    let (pool, asked, mapped) = race(ATTEMPTS, STEP * (ATTEMPTS + 1));
    let error = asked.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
    assert!(
        error.to_string().contains("other threads allocated the memory that it grew by, 8 times"),
        "{error}"
    );
    assert_eq!((mapped, pool.stats().rungs.failed), (ATTEMPTS, 1));
    let device = pool.device().clone();
    let stream = device.stream().unwrap();
    let ptr = take_of(&pool, ASKED * MIB, &stream);
    // SAFETY: no work uses the block, and it is freed once (P1, P2).
    unsafe { pool.deallocate(ptr, layout(ASKED * MIB), &stream) }.unwrap();
    ends_well(&pool);
}
