//! The driver's stream-ordered pools: statistics, ordering, and errors. On the CPU, a model of
//! them.

use crate::kernels::fill;
use crate::prelude::*;

const MIB: u64 = 1 << 20;

fn mib(n: usize) -> Layout {
    layout(n << 20, 256)
}

fn words(device: &Device, block: Block) -> DeviceSlice<u32> {
    memory(device, block).slice_at(0, block.1.size() as u64 / 4).unwrap()
}

fn pool(device: &Device) -> DriverPool {
    DriverPool::builder().build(device).unwrap()
}

fn reserved(pool: &DriverPool) -> u64 {
    pool.stats().unwrap().usage.reserved_bytes
}

/// Sets all values of a block to `value` on a stream.
pub fn set(stream: &Stream, module: &Module, block: Block, value: f32) {
    let values = words(stream.device(), block);
    let config = LaunchConfig::linear(values.len() as u32, 256);
    // SAFETY: the caller has ordered the stream after other work on the block.
    unsafe { stream.launch(module, fill, &config, (values, value.to_bits())) }.unwrap();
}

/// The number of values of a block that differ from `value`.
pub fn others(device: &Device, block: Block, value: f32) -> usize {
    let mut all = vec![0.0_f32; block.1.size() / 4];
    memory(device, block).read(0, &mut all).unwrap();
    all.iter().filter(|found| **found != value).count()
}

#[test]
fn usage_follows_an_allocation_a_free_and_a_trim() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().release_threshold(256 * MIB).build(&device).unwrap();
        let usage = || (pool.stats().unwrap().usage.used_bytes, reserved(&pool));
        assert_eq!((usage(), pool.release_threshold().unwrap()), ((0, 0), 256 * MIB));
        let block = alloc(&pool, mib(100), &stream);
        stream.synchronize().unwrap();
        let (used, reserved) = usage();
        assert!((100 * MIB..104 * MIB).contains(&used) && reserved >= used, "{used} of {reserved}");
        free(&pool, block, &stream).unwrap();
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
        assert_eq!(usage(), (0, reserved), "on {device}: below the threshold it stays");
        let peaks = || (pool.stats().unwrap().peak_used_bytes, pool.stats().unwrap().peak_reserved_bytes);
        assert_eq!((peaks(), pool.stats().unwrap().live_blocks), ((used, reserved), 0));
        pool.trim_to(0).unwrap();
        assert_eq!(usage(), (0, 0), "on {device}");
        pool.reset_high_water().unwrap();
        assert_eq!(peaks(), (0, 0));
    }
}

#[test]
fn a_zero_threshold_releases_memory_at_a_synchronisation() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().release_threshold(0).build(&device).unwrap();
        let waits: [&dyn Fn() -> Result<(), Error>; 2] = [&|| stream.synchronize(), &|| device.synchronize()];
        for wait in waits {
            let left_of_some = || {
                free(&pool, alloc(&pool, mib(64), &stream), &stream).unwrap();
                wait().unwrap();
                reserved(&pool)
            };
            assert_eq!(left_of_some(), 0, "on {device}");
            pool.set_release_threshold(u64::MAX).unwrap();
            assert!(left_of_some() >= 64 * MIB, "on {device}");
            pool.set_release_threshold(0).unwrap();
            assert_eq!(left_of_some(), 0, "on {device}");
        }
    }
}

#[test]
fn a_trim_keeps_live_blocks() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = pool(&device);
        let (live, freed) = (alloc(&pool, mib(100), &stream), alloc(&pool, mib(100), &stream));
        set(&stream, &module, live, 3.0);
        free(&pool, freed, &stream).unwrap();
        stream.synchronize().unwrap();
        let before = reserved(&pool);
        pool.trim_to(150 * MIB).unwrap();
        let kept = reserved(&pool);
        assert!(kept >= 150 * MIB && kept <= before, "{kept} on {device}");
        pool.trim_to(0).unwrap();
        let min = reserved(&pool);
        assert!(min >= 100 * MIB && min < before, "{min} of {before} on {device}");
        assert_eq!(others(&device, live, 3.0), 0, "on {device}");
        free(&pool, live, &stream).unwrap();
    }
}

#[test]
fn settings_are_returned_as_they_were_set() {
    for device in devices() {
        let mut policies = ReusePolicies::default();
        let default = pool(&device);
        let defaults = (default.reuse().unwrap(), default.release_threshold().unwrap(), default.max_size());
        assert_eq!(defaults, (policies, u64::MAX, None), "it keeps all");
        policies.allow_opportunistic = false;
        let pool = DriverPool::builder().reuse(policies).release_threshold(7 * MIB).build(&device).unwrap();
        assert_eq!((pool.reuse().unwrap(), pool.release_threshold().unwrap()), (policies, 7 * MIB));
        pool.set_reuse(ReusePolicies::none()).unwrap();
        assert_eq!(pool.reuse().unwrap(), ReusePolicies::none());
    }
}

#[test]
fn invalid_settings_are_rejected() {
    for device in devices() {
        let rejected = |builder: DriverPoolBuilder, words: &str| {
            let error = builder.build(&device).unwrap_err();
            assert!(matches!(error, Error::InvalidConfig(_)) && error.to_string().contains(words), "{error}");
        };
        let builder = DriverPool::builder();
        rejected(builder.clone().max_size(0), "at least 1 B");
        rejected(builder.clone().max_size(u64::MAX), "max_size = 18446744073709551615 B");
        rejected(builder.max_size(MIB).release_threshold(MIB + 1), "never exceeds its max_size");
    }
}

#[test]
fn a_pool_grows_up_to_its_maximum_size() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = match DriverPool::builder().max_size(128 * MIB).build(&device) {
            Err(Error::NotSupported(NotSupported::Backend { .. })) if !is_cpu(&device) => continue,
            other => other.unwrap(),
        };
        let blocks = [0; 3].map(|_| alloc(&pool, mib(32), &stream));
        let error = pool.allocate(mib(33), &stream).unwrap_err();
        assert_eq!(figures(&error), [33 * MIB, 96 * MIB, 128 * MIB, 32 * MIB], "{error}");
        assert!(error.to_string().contains("max_size"), "{error}");
        free_all(&pool, blocks, &stream);
        stream.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        let all = alloc(&pool, mib(128), &stream);
        free(&pool, all, &stream).unwrap();
    }
}

#[test]
fn alignments_above_the_drivers_are_served_up_to_a_limit() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = pool(&device);
        let blocks: Vec<Block> = (0..22).map(|bits| alloc(&pool, layout(5000, 1 << bits), &stream)).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert!((block.0.0 as usize).is_multiple_of(1 << i), "{:?} on {device}", block.0);
            set(&stream, &module, *block, i as f32);
        }
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(others(&device, *block, i as f32), 0, "block {i} on {device}");
            free(&pool, *block, &stream).unwrap();
        }
        let error = pool.allocate(layout(1, 1 << 31), &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{error}");
    }
}

#[test]
fn launches_reject_freed_memory() {
    // On a GPU another test may be given the address at the same time.
    let device = Device::cpu();
    let (module, stream) = (module(&device), device.stream().unwrap());
    let pool = pool(&device);
    let block = alloc(&pool, layout(4096, 256), &stream);
    let values = words(&device, block);
    set(&stream, &module, block, 1.0);
    free(&pool, block, &stream).unwrap();
    // SAFETY: the launch is rejected.
    let late = unsafe { stream.launch(&module, fill, &ONE, (values, 0)) };
    assert!(matches!(late, Err(Error::Dangling(Dangling::Argument { .. }))), "{late:?}");
}

/// A block is allocated and filled on one stream, then changed and freed on another that waited for
/// the first.
#[test]
fn a_block_crosses_streams_behind_an_event() {
    for device in devices() {
        let (module, first, second) = (module(&device), device.stream().unwrap(), device.stream().unwrap());
        let pool = pool(&device);
        let block = alloc(&pool, Layout::array::<f32>(1 << 20).unwrap(), &first);
        launch_linger(&first, &module, words(&device, block), 20_000);
        set(&first, &module, block, 1.0);
        second.wait(&first.record().unwrap()).unwrap();
        set(&second, &module, block, 2.0);
        assert_eq!(others(&device, block, 2.0), 0, "on {device}");
        // The block is freed after a kernel of the second stream. The next allocation of the first
        // stream is ordered after that kernel.
        launch_linger(&second, &module, words(&device, block), 20_000);
        free(&pool, block, &second).unwrap();
        let again = alloc(&pool, block.1, &first);
        set(&first, &module, again, 3.0);
        assert_eq!(
            others(&device, again, 3.0),
            0,
            "on {device}: reused before the work of the free was done"
        );
        free(&pool, again, &first).unwrap();
    }
}

#[test]
fn the_devices_own_pool_outlives_its_handles() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::default_of(&device).unwrap();
        let other = DriverPool::default_of(&device).unwrap();
        let before = pool.release_threshold().unwrap();
        let block = alloc(&pool, mib(1), &stream);
        assert!(other.stats().unwrap().usage.used_bytes >= MIB, "they are one");
        let error = free(&other, block, &stream).unwrap_err();
        assert!(error.to_string().contains("belongs to another allocator"), "{error}");
        drop(other);
        free(&pool, block, &stream).unwrap();
        pool.set_release_threshold(3 * MIB).unwrap();
        drop(pool);
        let again = DriverPool::default_of(&device).unwrap();
        assert_eq!(again.release_threshold().unwrap(), 3 * MIB);
        again.set_release_threshold(before).unwrap();
    }
}

#[test]
fn no_reuse_between_streams_allows_none_of_the_three_ways() {
    let none = ReusePolicies::none();
    let ways = |of: ReusePolicies| {
        [of.follow_event_dependencies, of.allow_opportunistic, of.allow_internal_dependencies]
    };
    assert_eq!((ways(none), ways(ReusePolicies::default())), ([false; 3], [true; 3]));
}

#[test]
fn a_threshold_may_be_as_large_as_the_pool_but_not_larger() {
    let (device, stream) = cpu();
    let build = |max: u64, threshold: u64| {
        DriverPool::builder().max_size(max).release_threshold(threshold).build(&device)
    };
    for (max, threshold) in [(4 * MIB, 0), (4 * MIB, MIB), (4 * MIB, 4 * MIB)] {
        let pool = build(max, threshold).unwrap();
        assert_eq!((pool.max_size(), pool.release_threshold().unwrap()), (Some(max), threshold));
        let block = alloc(&pool, mib(4), &stream);
        let error = pool.allocate(layout(1, 1), &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        free(&pool, block, &stream).unwrap();
        let limits = (pool.report().limit_bytes, pool.report().limited_bytes);
        assert_eq!(limits, (Some(max), Some(0)));
    }
    let error = build(4 * MIB, 4 * MIB + 1).unwrap_err().to_string();
    assert!(error.contains("release_threshold") && error.contains("never exceeds its max_size"), "{error}");
    let total = device.info().unwrap().memory_total;
    assert_eq!(build(total, 0).unwrap().max_size(), Some(total));
    for (max, why) in [(0, "at least 1 B"), (total + 1, "has ")] {
        let error = build(max, 0).unwrap_err().to_string();
        assert!(error.contains("max_size") && error.contains(why), "{error}");
    }
}
