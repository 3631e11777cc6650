//! The driver's stream-ordered pools: statistics, ordering, and errors. On the CPU, a model of
//! them.

use crate::cases::layout;
use crate::kernels::{fill, linger};
use crate::suite::{Block, give, memory};
use crate::support::{devices, is_cpu, module};
use std::alloc::Layout;
use std::time::{Duration, Instant};
use warpheap::error::{Dangling, InvalidConfig, InvalidRequest, NotSupported, OutOfMemory};
use warpheap::host_pools::{BlockPool, DeviceAllocator, DriverPool, ReusePolicies, SyncDriverAllocator};
use warpheap::{Device, Error, LaunchConfig, Module, Stream};
use warpheap_device::kernel::DeviceSlice;

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);
const MIB: u64 = 1 << 20;

fn take(pool: &DriverPool, layout: Layout, stream: &Stream) -> Block {
    (pool.allocate(layout, stream).unwrap(), layout)
}

fn mib(n: usize) -> Layout {
    layout(n << 20, 256)
}

fn words(device: &Device, block: Block) -> DeviceSlice<u32> {
    memory(device, block).slice_at(0, block.1.size() as u64 / 4).unwrap()
}

/// Sets all values of a block to `value` on a stream.
fn set(stream: &Stream, module: &Module, block: Block, value: f32) {
    let values = words(stream.device(), block);
    let config = LaunchConfig::linear(values.len() as u32, 256);
    // SAFETY: the caller has ordered the stream after other work on the block.
    unsafe { stream.launch(module, fill, &config, (values, value.to_bits())) }.unwrap();
}

/// The number of values of a block that differ from `value`.
fn others(device: &Device, block: Block, value: f32) -> usize {
    let mut all = vec![0.0_f32; block.1.size() / 4];
    memory(device, block).read(0, &mut all).unwrap();
    all.iter().filter(|found| **found != value).count()
}

#[test]
fn used_and_reserved_before_and_after_an_allocation_a_free_and_a_trim() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().release_threshold(256 * MIB).build(&device).unwrap();
        let figures = || (pool.stats().unwrap().usage.used_bytes, pool.stats().unwrap().usage.reserved_bytes);
        assert_eq!((figures(), pool.release_threshold().unwrap()), ((0, 0), 256 * MIB));
        let block = take(&pool, mib(100), &stream);
        stream.synchronize().unwrap();
        let (used, reserved) = figures();
        assert!(
            (100 * MIB..104 * MIB).contains(&used) && reserved >= used,
            "{used} of {reserved} on {device}"
        );
        give(&pool, block, &stream).unwrap();
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
        assert_eq!(figures(), (0, reserved), "on {device}: below the threshold it stays");
        let stats = pool.stats().unwrap();
        assert_eq!(
            (stats.peak_used_bytes, stats.peak_reserved_bytes, stats.live_blocks),
            (used, reserved, 0)
        );
        pool.trim_to(0).unwrap();
        assert_eq!(figures(), (0, 0), "on {device}");
        pool.reset_high_water().unwrap();
        assert_eq!(
            (pool.stats().unwrap().peak_used_bytes, pool.stats().unwrap().peak_reserved_bytes),
            (0, 0)
        );
    }
}

#[test]
fn a_threshold_of_nothing_gives_back_at_a_synchronisation() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().release_threshold(0).build(&device).unwrap();
        let waits: [&dyn Fn() -> Result<(), Error>; 2] = [&|| stream.synchronize(), &|| device.synchronize()];
        for wait in waits {
            let left_of_some = || {
                give(&pool, take(&pool, mib(64), &stream), &stream).unwrap();
                wait().unwrap();
                pool.stats().unwrap().usage.reserved_bytes
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
fn a_trim_keeps_what_is_live() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = DriverPool::builder().build(&device).unwrap();
        let (live, free) = (take(&pool, mib(100), &stream), take(&pool, mib(100), &stream));
        set(&stream, &module, live, 3.0);
        give(&pool, free, &stream).unwrap();
        stream.synchronize().unwrap();
        let before = pool.stats().unwrap().usage.reserved_bytes;
        pool.trim_to(150 * MIB).unwrap();
        let kept = pool.stats().unwrap().usage.reserved_bytes;
        assert!(kept >= 150 * MIB && kept <= before, "{kept} on {device}");
        pool.trim_to(0).unwrap();
        let least = pool.stats().unwrap().usage.reserved_bytes;
        assert!(least >= 100 * MIB && least < before, "{least} of {before} on {device}");
        assert_eq!(others(&device, live, 3.0), 0, "on {device}");
        give(&pool, live, &stream).unwrap();
    }
}

#[test]
fn settings_come_back_as_they_were_made() {
    for device in devices() {
        let mut policies = ReusePolicies::default();
        assert_eq!(DriverPool::builder().build(&device).unwrap().reuse().unwrap(), policies);
        policies.allow_opportunistic = false;
        let pool = DriverPool::builder().reuse(policies).release_threshold(7 * MIB).build(&device).unwrap();
        assert_eq!((pool.reuse().unwrap(), pool.release_threshold().unwrap()), (policies, 7 * MIB));
        pool.set_reuse(ReusePolicies::none()).unwrap();
        assert_eq!(pool.reuse().unwrap(), ReusePolicies::none());
        assert_eq!(pool.max_size(), None);
        assert_eq!(
            DriverPool::builder().build(&device).unwrap().release_threshold().unwrap(),
            u64::MAX,
            "it keeps all"
        );
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for device in devices() {
        let refused = |builder: warpheap::host_pools::DriverPoolBuilder, words: &str| {
            let error = builder.build(&device).unwrap_err();
            assert!(
                matches!(error, Error::InvalidConfig(InvalidConfig::Pool { .. }))
                    && error.to_string().contains(words),
                "{error}"
            );
        };
        let builder = DriverPool::builder();
        refused(builder.clone().max_size(0), "at least 1 B");
        refused(builder.clone().max_size(u64::MAX), "max_size = 18446744073709551615 B");
        refused(builder.max_size(MIB).release_threshold(MIB + 1), "never has more than its max_size");
    }
}

#[test]
fn a_pool_grows_to_its_largest_size_and_no_further() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = match DriverPool::builder().max_size(128 * MIB).build(&device) {
            Err(Error::NotSupported(NotSupported::Backend { .. })) if !is_cpu(&device) => continue,
            other => other.unwrap(),
        };
        let blocks = [0; 3].map(|_| take(&pool, mib(32), &stream));
        let error = pool.allocate(mib(33), &stream).unwrap_err();
        let Error::OutOfMemory(OutOfMemory::Pool { used, reserved, largest, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!((used.0, reserved.0, largest.0), (96 * MIB, 128 * MIB, 32 * MIB), "{error}");
        assert!(error.to_string().contains("max_size"), "{error}");
        for block in blocks {
            give(&pool, block, &stream).unwrap();
        }
        stream.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        let all = take(&pool, mib(128), &stream);
        give(&pool, all, &stream).unwrap();
    }
}

#[test]
fn alignments_beyond_the_drivers_are_kept_and_absurd_ones_refused() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let pool = DriverPool::builder().build(&device).unwrap();
        let blocks: Vec<Block> = (0..22).map(|bits| take(&pool, layout(5000, 1 << bits), &stream)).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert!((block.0.0 as usize).is_multiple_of(1 << i), "{:?} on {device}", block.0);
            set(&stream, &module, *block, i as f32);
        }
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(others(&device, *block, i as f32), 0, "block {i} on {device}");
            give(&pool, *block, &stream).unwrap();
        }
        let error = pool.allocate(layout(1, 1 << 31), &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{error}");
    }
}

#[test]
fn memory_that_is_given_back_is_known_to_launches_no_more() {
    // On a GPU another test may be given the address at the same time.
    let device = Device::cpu();
    let (module, stream) = (module(&device), device.stream().unwrap());
    let pool = DriverPool::builder().build(&device).unwrap();
    let block = take(&pool, layout(4096, 256), &stream);
    let values = words(&device, block);
    set(&stream, &module, block, 1.0);
    give(&pool, block, &stream).unwrap();
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
        let pool = DriverPool::builder().build(&device).unwrap();
        let block = take(&pool, Layout::array::<f32>(1 << 20).unwrap(), &first);
        // SAFETY: one thread, on the stream of the block.
        unsafe { first.launch(&module, linger, &ONE, (words(&device, block), 20_000)) }.unwrap();
        set(&first, &module, block, 1.0);
        second.wait(&first.record().unwrap()).unwrap();
        set(&second, &module, block, 2.0);
        assert_eq!(others(&device, block, 2.0), 0, "on {device}");
        // The block is freed after a kernel of the second stream. The next allocation of the first
        // stream is ordered after that kernel.
        // SAFETY: one thread, on the stream that owns the block now.
        unsafe { second.launch(&module, linger, &ONE, (words(&device, block), 20_000)) }.unwrap();
        give(&pool, block, &second).unwrap();
        let again = take(&pool, block.1, &first);
        set(&first, &module, again, 3.0);
        assert_eq!(
            others(&device, again, 3.0),
            0,
            "on {device}: reused before the work of the free was done"
        );
        give(&pool, again, &first).unwrap();
    }
}

#[test]
fn streams_go_while_their_blocks_are_pending_and_the_pool_after_them() {
    for device in devices() {
        let (module, pool) = (module(&device), DriverPool::builder().build(&device).unwrap());
        for _ in 0..20 {
            let stream = device.stream().unwrap();
            let block = take(&pool, mib(1), &stream);
            // SAFETY: one thread, on the stream of the block.
            unsafe { stream.launch(&module, linger, &ONE, (words(&device, block), 2000)) }.unwrap();
            give(&pool, block, &stream).unwrap();
        }
        drop(pool);
        device.synchronize().unwrap();
    }
}

#[test]
fn the_devices_own_pool_outlives_its_handles() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::default_of(&device).unwrap();
        let other = DriverPool::default_of(&device).unwrap();
        let before = pool.release_threshold().unwrap();
        let block = take(&pool, mib(1), &stream);
        assert!(other.stats().unwrap().usage.used_bytes >= MIB, "they are one");
        let error = give(&other, block, &stream).unwrap_err();
        assert!(error.to_string().contains("of another allocator"), "{error}");
        drop(other);
        give(&pool, block, &stream).unwrap();
        pool.set_release_threshold(3 * MIB).unwrap();
        drop(pool);
        let again = DriverPool::default_of(&device).unwrap();
        assert_eq!(again.release_threshold().unwrap(), 3 * MIB);
        again.set_release_threshold(before).unwrap();
    }
}

#[test]
fn other_pools_stand_on_it() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let pool = DriverPool::builder().build(&device).unwrap();
        let blocks = BlockPool::builder(layout(4096, 4096), 10).build_over(&pool).unwrap();
        let block = (blocks.allocate(layout(4096, 4096), &stream).unwrap(), layout(4096, 4096));
        memory(&device, block).fill(7).unwrap();
        give(&blocks, block, &stream).unwrap();
        drop(blocks);
        assert_eq!(pool.usage().used_bytes, 0);
    }
}

/// 100 allocations of 4 MiB. On a GPU the driver's synchronous memory is far slower.
#[test]
fn stream_ordered_against_synchronous_allocation() {
    const TIMES: u32 = 100;
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let (pool, memory) =
            (DriverPool::builder().build(&device).unwrap(), SyncDriverAllocator::new(&device));
        let time = |allocator: &dyn DeviceAllocator| -> Duration {
            let start = Instant::now();
            for i in 0..TIMES {
                let block = (allocator.allocate(mib(4), &stream).unwrap(), mib(4));
                // SAFETY: one thread, on the stream of the block.
                unsafe { stream.launch(&module, fill, &ONE, (words(&device, block), i)) }.unwrap();
                give(allocator, block, &stream).unwrap();
            }
            stream.synchronize().unwrap();
            start.elapsed() / TIMES
        };
        let least =
            |allocator: &dyn DeviceAllocator| (0..4).map(|_| time(allocator)).min().unwrap_or_default();
        let (ordered, synchronous) = (least(&pool), least(&memory));
        println!("{device}: {synchronous:.2?} each, stream-ordered {ordered:.2?}");
        assert!(is_cpu(&device) || ordered < synchronous, "on {device}: {ordered:.2?}, {synchronous:.2?}");
        assert_eq!(pool.stats().unwrap().live_blocks, 0);
        let last = take(&pool, mib(4), &stream);
        set(&stream, &module, last, 5.0);
        assert_eq!(others(&device, last, 5.0), 0, "on {device}");
        give(&pool, last, &stream).unwrap();
    }
}
