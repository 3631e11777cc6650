//! Each driver call fails once, and no memory is lost.

use super::*;
use crate::driver::fault_injection::{Call, Run, Which, each_call_fails_once, faulty_device, gate};
use crate::error::{InvalidFree, OutOfMemory};
use crate::host_pools::PoolBuffer;
use crate::simt::{Executor, Mode};

/// Creates a pool, uses every operation, and drops it.
fn scenario(run: &mut Run) {
    let device = &run.device;
    let stream = run.must(|| device.stream()).unwrap();
    let pool = run.must(|| DriverPool::builder().release_threshold(1 << 20).build(device)).unwrap();
    let layout = |size, align| Layout::from_size_align(size, align).unwrap();
    let mut blocks = Vec::new();
    for of in [layout(1, 1), layout(5000, 256), layout(100, 4096), layout(3 << 20, 2 << 20)] {
        let ptr = run.must(|| pool.allocate(of, &stream)).unwrap();
        assert!(ptr.0.addr().is_multiple_of(of.align()));
        blocks.push((ptr, of));
    }
    assert_eq!(device.memory_in_use(), (1 + 5000 + 100 + (3 << 20), 4), "launches know them");
    let stats = run.must(|| pool.stats()).unwrap();
    assert_eq!((stats.live_blocks, stats.release_threshold), (4, 1 << 20));
    for (ptr, of) in blocks {
        // SAFETY: no work uses the block, and it is freed once (P1, P2).
        run.must(|| unsafe { pool.deallocate(ptr, of, &stream) }).unwrap();
    }
    assert_eq!(device.memory_in_use(), (0, 0));
    assert_eq!(run.must(|| pool.stats().map(|stats| stats.usage.used_bytes)), Some(0));
    run.must(|| pool.reset_high_water()).unwrap();
    run.must(|| pool.set_release_threshold(0)).unwrap();
    run.must(|| pool.trim_to(0)).unwrap();
    assert_eq!(run.must(|| pool.reuse()), Some(ReusePolicies::default()));
    drop(pool);
    run.must(|| device.synchronize()).unwrap();
    let info = run.must(|| device.info()).unwrap();
    assert_eq!(info.memory_free, info.memory_total, "{run}");
}

#[test]
fn each_call_of_the_driver_fails_once() {
    let calls = each_call_fails_once("a stream-ordered pool", scenario);
    assert!(calls.len() > 20, "{calls:?}");
}

/// A failed free leaves the block unchanged: live, in the registry, with its layout.
#[test]
fn a_block_whose_free_failed_is_still_its_owners() {
    let (device, faults) = faulty_device(16 << 20);
    let stream = device.stream().unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    let layout = Layout::from_size_align(1000, 1024).unwrap();
    let ptr = pool.allocate(layout, &stream).unwrap();
    let range = Range { address: address_of(ptr), bytes: 1000 };
    // SAFETY: no work uses the block (P1). It is freed until a free succeeds; one more free must be
    // an error (P2).
    let free = || unsafe { pool.deallocate(ptr, layout, &stream) };
    faults.fail_calls(&[Call::PoolFree], true);
    assert!(matches!(free(), Err(Error::Driver { .. })));
    faults.fail_calls(&[Call::PoolFree], false);
    assert!(device.registry().holds(range) && pool.usage().used_bytes == 2024);
    free().unwrap();
    assert!(!device.registry().holds(range) && pool.usage().used_bytes == 0);
    assert!(matches!(free(), Err(Error::InvalidFree(InvalidFree::Block { .. }))));
}

#[test]
fn when_memory_runs_out_the_figures_are_the_pools() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 3 << 20);
    let stream = device.stream().unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    let layout = |size| Layout::from_size_align(size, 256).unwrap();
    pool.allocate(layout(4096), &stream).unwrap();
    let error = pool.allocate(layout(2 << 20), &stream).unwrap_err();
    let Error::OutOfMemory(OutOfMemory::Device { requested, free, advice, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((*requested, *free), (Bytes(2 << 20), Bytes(1 << 20)));
    let figures = ["has reserved 2097152 B (2.0 MiB)", "4096 B (4.0 KiB) are in use", "trim_to"];
    assert!(figures.iter().all(|words| advice.contains(words)), "{error}");
    drop(pool);
    assert_eq!(device.memory_in_use(), (0, 0));
}

#[test]
fn handles_of_one_pool_know_each_other_and_others_not() {
    let device = Device::cpu();
    // SAFETY: nothing destroys the pool.
    let current = unsafe { DriverPool::current_of(&device) };
    let pools = [DriverPool::default_of(&device), current, DriverPool::builder().build(&device)];
    let [default, current, own] = pools.map(Result::unwrap);
    assert!(default.is_same(&current) && current.is_same(&default));
    assert!(!default.is_same(&own) && !default.is_same(&DriverPool::default_of(&Device::cpu()).unwrap()));
}

/// Blocks that are still allocated are freed on drop, even if one of the frees fails; it is retried
/// once.
#[test]
fn its_end_gives_back_what_is_allocated() {
    for fails in [0, 1, 2, 3] {
        let (device, faults) = faulty_device(16 << 20);
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().build(&device).unwrap();
        for _ in 0..3 {
            pool.allocate(Layout::new::<[u64; 100]>(), &stream).unwrap();
        }
        let before = faults.calls();
        if fails > 0 {
            faults.tell(Which::Nth(before + fails), 2);
        }
        drop(pool);
        assert_eq!(faults.failed().len(), fails.min(1));
        assert_eq!(faults.calls_of(Call::PoolFree), 3 + faults.failed().len(), "three frees, and a retry");
        assert_eq!((faults.held(), device.memory_in_use()), (Vec::new(), (0, 0)));
    }
}

/// A subscriber that panics on each event.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a subscriber panics");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A block is freed after the work that uses it, even if the warning about the block panics.
#[test]
fn its_end_waits_and_frees_before_it_logs() {
    let (device, faults) = faulty_device(16 << 20);
    let stream = device.stream().unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    std::mem::forget(PoolBuffer::<u8, _>::zeroed(&pool, 1000, &stream).unwrap());
    let (event, gate) = gate(&device);
    stream.wait(&event).unwrap();
    // With two dispatchers, a call site asks both, whichever thread gets there first.
    let [dispatch, _second] = [Panics, Panics].map(tracing::Dispatch::new);
    let going = std::thread::spawn(move || {
        let drops = std::panic::AssertUnwindSafe(|| drop(pool));
        tracing::dispatcher::with_default(&dispatch, || std::panic::catch_unwind(drops)).is_err()
    });
    // A premature free would happen within a fraction of this time.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!going.is_finished(), "gone before the stream's work has ended");
    assert_eq!(faults.calls_of(Call::PoolFree), 0);
    gate.open();
    assert!(going.join().unwrap(), "the subscriber panicked");
    assert_eq!(faults.calls_of(Call::PoolFree), 1);
    assert_eq!((faults.held(), device.memory_in_use()), (Vec::new(), (0, 0)));
}
