//! What fails on the way, and how often streams wait.

use super::*;
use crate::alloc::{DriverMemory, Statistics};
use crate::driver::fault_injection::faulty_stream;

const BLOCK: Layout = Layout::new::<[u64; 8]>();

type Pool = BlockPool<Statistics<DriverMemory>>;

fn pool(device: &Device, blocks: usize) -> Pool {
    BlockPool::new(Statistics::new(DriverMemory::new(device)), BLOCK, blocks).unwrap()
}

fn take(pool: &Pool, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(BLOCK, stream).unwrap()
}

fn give(pool: &Pool, ptr: DevicePtr<u8>, stream: &Stream) -> Result<()> {
    // SAFETY: no work uses it.
    unsafe { pool.deallocate(ptr, BLOCK, stream) }
}

/// I1 and I2, of a pool that nobody else uses at the moment.
fn check(pool: &Pool) {
    let state = lock(&pool.state);
    let mut free: Vec<u32> = state.idle.iter().copied().chain(state.pending.items()).collect();
    free.sort_unstable();
    let marked = (0..).zip(&state.states).filter(|(_, of)| **of == Block::Free).map(|(index, _)| index);
    assert_eq!(free, marked.collect::<Vec<u32>>(), "I1");
    assert!(!state.states.contains(&Block::Moving));
    assert_eq!(free.len() + state.used, pool.blocks(), "I2");
}

#[test]
fn only_another_stream_waits_and_only_if_it_has_to() {
    let device = Device::cpu();
    let pool = pool(&device, 3);
    let ((first, of_first), (second, of_second)) = (faulty_stream(&device), faulty_stream(&device));
    let waits = || (of_first.waits(), of_second.waits());
    let one = take(&pool, &first);
    give(&pool, one, &first).unwrap();
    assert_eq!(take(&pool, &first).0, one.0, "what this stream freed comes first");
    give(&pool, one, &first).unwrap();
    let rest = [take(&pool, &second), take(&pool, &second)];
    assert!(!rest.iter().any(|ptr| ptr.0 == one.0), "then what nobody can be using");
    assert_eq!(waits(), (0, 0));
    assert_eq!(take(&pool, &second).0, one.0, "then what another stream freed");
    assert_eq!(waits(), (0, 1));
    // Freed here and there; the other stream gets what was freed first, and this one what was freed last.
    let [two, three] = rest;
    for ptr in [two, one, three] {
        give(&pool, ptr, &first).unwrap();
    }
    check(&pool);
    assert_eq!((take(&pool, &second).0, waits()), (two.0, (0, 2)));
    assert_eq!((take(&pool, &first).0, waits()), (three.0, (0, 2)));
    assert_eq!(of_first.records(), 5, "one for each free");
    for ptr in [two, three] {
        give(&pool, ptr, &first).unwrap();
    }
    check(&pool);
}

#[test]
fn a_block_that_could_not_be_waited_for_is_as_free_as_before() {
    let device = Device::cpu();
    let pool = pool(&device, 2);
    let (first, (second, of_second)) = (device.stream().unwrap(), faulty_stream(&device));
    let two = [take(&pool, &first), take(&pool, &first)];
    for ptr in two {
        give(&pool, ptr, &first).unwrap();
    }
    of_second.fail(true);
    for _ in 0..3 {
        assert!(matches!(pool.allocate(BLOCK, &second), Err(Error::Driver { .. })));
        assert_eq!(pool.available(), 2);
        check(&pool);
    }
    of_second.fail(false);
    assert_eq!(take(&pool, &second).0, two[0].0, "still what was freed first");
    assert_eq!(take(&pool, &first).0, two[1].0);
    assert!(pool.allocate(BLOCK, &second).is_err());
    for ptr in two {
        give(&pool, ptr, &second).unwrap();
    }
}

#[test]
fn a_free_that_could_not_be_recorded_can_be_tried_again() {
    let device = Device::cpu();
    let pool = pool(&device, 1);
    let (stream, of_stream) = faulty_stream(&device);
    let ptr = take(&pool, &stream);
    of_stream.fail(true);
    assert!(matches!(give(&pool, ptr, &stream), Err(Error::Driver { .. })));
    assert_eq!(pool.available(), 0);
    check(&pool);
    of_stream.fail(false);
    give(&pool, ptr, &stream).unwrap();
    assert!(give(&pool, ptr, &stream).unwrap_err().to_string().contains("is free already"));
    check(&pool);
}

#[test]
fn at_its_end_the_home_stream_waits_for_every_free() {
    let device = Device::cpu();
    let mut pool = pool(&device, 4);
    let (home, of_home) = faulty_stream(&device);
    pool.home = home;
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let all: Vec<_> = (0..4).map(|_| take(&pool, &first)).collect();
    for (ptr, stream) in all.into_iter().zip([&first, &second, &first, &second]) {
        give(&pool, ptr, stream).unwrap();
    }
    drop(pool);
    assert_eq!(of_home.waits(), 4);
}
