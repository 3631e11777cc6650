//! Settings of arenas and free lists at and beyond their limits, and statistics of full and empty
//! pools.

use crate::kernels::{NONE, take_all};
use crate::support::run;
use warpheap::device_pools::{Bump, FreeList};
use warpheap::error::InvalidConfig;
use warpheap::simt::{Executor, Mode};
use warpheap::{Device, Error, Result};
use warpheap_device::bump::MAX_GRANULES;
use warpheap_device::freelist::{MAX_CAPACITY, MAX_STRIDE};

/// The setting that is rejected, and the whole message.
fn rejected<T: std::fmt::Debug>(built: Result<T>) -> (String, String) {
    let error = built.unwrap_err();
    let Error::InvalidConfig(InvalidConfig::Pool { setting, .. }) = &error else { panic!("{error}") };
    (setting.to_string(), error.to_string())
}

/// A device of 64 MiB, on which the largest pools fail for another reason than their settings.
fn small_device() -> Device {
    Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 64 << 20)
}

#[test]
fn an_arena_has_granules_of_a_power_of_two_up_to_64_kib() {
    let device = Device::cpu();
    for min_align in [0, 3, 48, (1 << 16) + 1, 3 << 15, 1 << 17, 1 << 20] {
        let (setting, text) = rejected(Bump::builder(1 << 24).min_align(min_align).build(&device));
        assert_eq!(setting, "min_align", "{text}");
        assert!(text.contains("a power of two from 1 to 65536 bytes"), "{text}");
    }
    for min_align in [1, 2, 1 << 15, 1 << 16] {
        let arena = Bump::builder(1 << 24).min_align(min_align).build(&device).unwrap();
        assert_eq!(arena.stats().unwrap().usage.reserved_bytes, 1 << 24);
        assert!(arena.memory().address().is_multiple_of(min_align));
    }
}

#[test]
fn an_arena_has_at_least_one_granule_and_no_more_than_a_counter_has_bits_for() {
    let device = small_device();
    let (setting, text) = rejected(Bump::builder(0).min_align(16).build(&device));
    assert_eq!(setting, "capacity", "{text}");
    assert!(text.contains("must be from 1 B"), "{text}");
    for min_align in [1, 8] {
        let most = MAX_GRANULES * min_align;
        for capacity in [most + min_align, u64::MAX] {
            let (setting, text) = rejected(Bump::builder(capacity).min_align(min_align).build(&device));
            assert_eq!(setting, "capacity", "{text}");
            assert!(text.contains(&format!("to {most} B")), "{text}");
        }
        // The setting is accepted; the device does not have that much memory.
        let error = Bump::builder(most).min_align(min_align).build(&device).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    }
    // Sizes are rounded up.
    for (capacity, reserved) in [(1, 16), (16, 16), (17, 32)] {
        let arena = Bump::builder(capacity).min_align(16).build(&device).unwrap();
        assert_eq!(arena.stats().unwrap().usage.reserved_bytes, reserved);
    }
}

#[test]
fn an_arena_has_no_more_shards_than_granules_to_share() {
    let device = Device::cpu();
    let (setting, text) = rejected(Bump::builder(64).min_align(16).shards(5).build(&device));
    assert_eq!(setting, "shards", "{text}");
    assert!(text.contains("only 4 granules"), "{text}");
    for shards in [0, 1, 4] {
        let arena = Bump::builder(64).min_align(16).shards(shards).build(&device).unwrap();
        let stats = arena.stats().unwrap();
        assert_eq!((stats.remaining_bytes, stats.unsettled), (64, 0));
        let known = if shards == 0 { Some(64) } else { None };
        assert_eq!(stats.usage.largest_free_bytes, known, "with {shards} shards");
    }
}

/// Without a setting, small arenas have one counter, whose free memory is one range.
#[test]
fn large_arenas_are_sharded_by_default() {
    let device = Device::cpu();
    let largest = |bytes: u64| {
        let arena = Bump::builder(bytes).min_align(16).build(&device).unwrap();
        arena.stats().unwrap().usage.largest_free_bytes
    };
    assert_eq!(largest((16 << 20) - 16), Some((16 << 20) - 16));
    assert_eq!((largest(16 << 20), largest(32 << 20)), (None, None));
}

#[test]
fn a_free_list_has_blocks_of_a_power_of_two_of_alignment_up_to_64_kib() {
    let device = Device::cpu();
    for align in [0, 3, 48, (1 << 16) + 1, 3 << 15, 1 << 17] {
        let (setting, text) = rejected(FreeList::builder(4, 16).align(align).build(&device));
        assert_eq!(setting, "align", "{text}");
    }
    for align in [1, 32, 1 << 15, 1 << 16] {
        let list = FreeList::builder(4, 5).align(align).build(&device).unwrap();
        assert_eq!(list.geometry().stride(), 5_u64.next_multiple_of(align));
        assert!(list.memory().address().is_multiple_of(align));
    }
}

#[test]
fn the_number_and_the_size_of_blocks_are_within_limits() {
    let device = small_device();
    let (most, largest) = (u64::from(MAX_CAPACITY), u64::from(MAX_STRIDE));
    for blocks in [0, most + 1, 1 << 32, u64::MAX] {
        let (setting, text) = rejected(FreeList::builder(blocks, 16).build(&device));
        assert_eq!(setting, "blocks", "{text}");
        assert!(text.contains(&format!("from 1 to {most}")), "{text}");
    }
    for size in [0, largest + 1, 1 << 32, u64::MAX] {
        let (setting, text) = rejected(FreeList::builder(4, size).build(&device));
        assert_eq!(setting, "block_size", "{text}");
        assert!(text.contains(&format!("to {largest} B")), "{text}");
    }
    // Both settings are accepted; the device does not have that much memory.
    let error = FreeList::builder(most, largest).build(&device).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
}

/// A pool of three blocks with none, one, and all of them allocated.
#[test]
fn a_free_list_counts_the_bytes_of_its_blocks() {
    let device = Device::cpu();
    for (live, largest) in [(0, 48), (1, 48), (3, 0)] {
        let list = FreeList::builder(3, 40).build(&device).unwrap();
        let (owners, out) = (device.zeroed::<u32>(5).unwrap(), device.zeroed::<u32>(80).unwrap());
        if live > 0 {
            run(&device, take_all, live, (list.handle(), owners.slice(), out.slice(), 0));
        }
        let taken = out.copy_to_vec().unwrap()[..live as usize].to_vec();
        assert!(!taken.contains(&NONE));
        let stats = list.stats().unwrap();
        assert_eq!(
            (stats.blocks, stats.live_blocks, stats.free_blocks),
            (3, live.into(), 3 - u64::from(live))
        );
        let usage = (stats.usage.used_bytes, stats.usage.reserved_bytes, stats.usage.largest_free_bytes);
        assert_eq!(usage, (48 * u64::from(live), 144, Some(largest)));
    }
}
