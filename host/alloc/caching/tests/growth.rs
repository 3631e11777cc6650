//! A reservation grows, and meanwhile somebody takes what it counted on: what was free at its end.

use super::*;
use crate::alloc::DriverMemory;
use crate::driver::fault_injection::{self, Call, Faults};
use crate::error::{Error, OutOfMemory};

/// What the pool grows by at a time, in MiB, at least.
const STEP: usize = 4;
/// What is asked for: more than that.
const ASKED: usize = 6;
/// The most that it may have, in MiB: no stream takes more than two for itself, so that two are left of the first step.
const MOST: usize = 64;
/// As many as there are attempts to grow for one allocation.
const ATTEMPTS: usize = crate::alloc::caching::search::MOST_GROWTHS;

type Growing = CachingPool<DriverMemory>;

/// Another thread, with a stream of its own, that has a block of all that is free at the end each time that memory is mapped there.
struct Thief {
    pool: Arc<Growing>,
    faults: Arc<Faults>,
    stream: Stream,
    taken: Mutex<Vec<(DevicePtr<u8>, usize)>>,
}

impl Thief {
    /// It comes that often.
    fn come(self: Arc<Thief>, times: usize) {
        if times == 0 {
            return;
        }
        self.faults.clone().before(Call::Map, move || {
            // At first two are left of the first step; then the step before, which was for the others.
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

/// Asks for more than there is, while the thief comes that often; the pool, how it went, and how often memory was mapped for it.
fn race(times: usize, most: usize) -> (Arc<Growing>, Result<()>, usize) {
    let (device, faults) = fault_injection::faulty_device(256 << 20);
    let builder = CachingPool::builder()
        .spare_bytes(0)
        .segment_bytes((STEP * MIB) as u64)
        .max_bytes((most * MIB) as u64);
    let pool = Arc::new(builder.build(&device).unwrap());
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    // A stream that is alone would get the whole first step.
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
        // SAFETY: no work uses it.
        unsafe { pool.deallocate(ptr, layout(size), &stream) }.unwrap();
    }
    (pool, asked.map(drop), mapped)
}

/// All is free again, and goes back.
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
    assert!(error.to_string().contains("other threads took what it grew by, 8 times"), "{error}");
    assert_eq!((mapped, pool.stats().rungs.failed), (ATTEMPTS, 1));
    let device = pool.device().clone();
    let stream = device.stream().unwrap();
    let ptr = take_of(&pool, ASKED * MIB, &stream);
    // SAFETY: no work uses it.
    unsafe { pool.deallocate(ptr, layout(ASKED * MIB), &stream) }.unwrap();
    ends_well(&pool);
}
