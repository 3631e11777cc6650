//! The bump arena.

use crate::kernels::{NONE, ask};
use crate::support::{cpus, run};
use warpheap::device_pools::Bump;
use warpheap::{Device, LaunchConfig};

/// Allocates one block of each size at once, one thread per size. Returns the offset and size of
/// every block allocated.
fn ask_for(device: &Device, arena: &Bump, sizes: &[u32], align: u32) -> Vec<(u32, u32)> {
    let requested = device.from_slice(sizes).unwrap();
    let mut out = device.zeroed::<u32>(sizes.len()).unwrap();
    out.fill(NONE).unwrap();
    run(device, ask, sizes.len() as u32, (arena.handle(), requested.slice(), out.slice(), align));
    let offsets = out.copy_to_vec().unwrap();
    offsets.into_iter().zip(sizes.iter().copied()).filter(|(offset, _)| *offset != NONE).collect()
}

fn arena(device: &Device, bytes: u64, min_align: u64, shards: u32) -> Bump {
    Bump::builder(bytes).min_align(min_align).shards(shards).build(device).unwrap()
}

/// Checks that the blocks are aligned, disjoint and inside the arena, and that the statistics of
/// the arena match them.
fn check(arena: &Bump, min_align: u32, align: u32, mut granted: Vec<(u32, u32)>, mode: &str) {
    assert_eq!(arena.check().unwrap(), [], "{mode}");
    let base = arena.memory().address();
    granted.sort();
    let mut end = 0;
    for (start, size) in &granted {
        assert!(*start >= end, "{mode}: {start} is granted twice");
        assert_eq!((base + u64::from(*start)) % u64::from(align), 0, "{mode}");
        end = start + size;
    }
    let stats = arena.stats().unwrap();
    assert!(u64::from(end) <= stats.usage.reserved_bytes, "{mode}");
    assert_eq!(
        stats.usage.used_bytes + stats.remaining_bytes + stats.wasted_bytes,
        stats.usage.reserved_bytes,
        "{mode}"
    );
    let padding = align.saturating_sub(min_align);
    let sum: u64 =
        granted.iter().map(|(_, size)| u64::from((size + padding).next_multiple_of(min_align))).sum();
    assert_eq!(stats.usage.used_bytes, sum, "{mode}: {stats:?}");
}

#[test]
fn of_equal_requests_exactly_what_fits_is_granted() {
    for (mode, device) in cpus(60) {
        for (capacity, min_align, size, threads) in
            [(640, 4, 4, 320), (4096, 16, 32, 240), (1600, 16, 20, 80)]
        {
            for shards in [0, 1, 3] {
                let arena = arena(&device, capacity, min_align, shards);
                let granted = ask_for(&device, &arena, &vec![size; threads], 1);
                let fits = capacity / u64::from(size).next_multiple_of(min_align);
                assert_eq!(granted.len() as u64, fits.min(threads as u64), "{mode}: {size} of {capacity}");
                check(&arena, min_align as u32, 1, granted, &mode);
            }
        }
    }
}

/// A lane that runs out of memory consumes none of it: smaller requests of the same warp can still
/// use it.
#[test]
fn memory_left_after_failures_serves_smaller_requests() {
    for (mode, device) in cpus(40) {
        let arena = arena(&device, 4096, 4, 0);
        let mut granted = ask_for(&device, &arena, &[200; 80], 1);
        assert_eq!(granted.len(), 20, "{mode}");
        granted.extend(ask_for(&device, &arena, &[200, 200, 200], 1));
        granted.extend(ask_for(&device, &arena, &[92, 8, 4, 200], 1));
        assert_eq!(granted.len(), 22, "{mode}: 96 bytes are left for 92 and 4, or for 8 and 4");
        check(&arena, 4, 1, granted, &mode);
    }
}

#[test]
fn mixed_requests_are_disjoint_and_add_up() {
    for (mode, device) in cpus(60) {
        for shards in [0, 1, 3] {
            for align in [1, 64] {
                let arena = arena(&device, 40_000, 16, shards);
                let sizes: Vec<u32> = (0..240).map(|i| i * i % 37 * (1 + i % 11) * (i % 7).min(1)).collect();
                let mut granted = ask_for(&device, &arena, &sizes, align);
                if align == 1 {
                    granted.extend(ask_for(&device, &arena, &[9000, 1, 20_000, 600], 1));
                }
                check(&arena, 16, align, granted, &mode);
            }
        }
    }
}

/// Launches `ask` on each stream at once: 256 threads that request 4 bytes of that stream's arena.
/// Returns the offsets on each stream.
fn ask_on_streams(device: &Device, arenas: &[&Bump]) -> Vec<Vec<u32>> {
    let module = device.native_module().unwrap();
    let sizes = device.from_slice(&[4_u32; 256]).unwrap();
    let launch = |arena: &&Bump| {
        let (stream, out) = (device.stream().unwrap(), device.from_slice(&[NONE; 256]).unwrap());
        let args = (arena.handle(), sizes.slice(), out.slice(), 4);
        // SAFETY: the arena and the buffers are live until the kernel has ended: their drops wait.
        unsafe { stream.launch(&module, ask, &LaunchConfig::linear(256, 80), args) }.unwrap();
        out
    };
    let outs: Vec<_> = arenas.iter().map(launch).collect();
    outs.iter().map(|out| out.copy_to_vec().unwrap()).collect()
}

/// Several streams allocate the whole of an arena, and no byte of it twice.
#[test]
fn streams_share_an_arena_or_have_one_each() {
    for (mode, device) in cpus(10) {
        for streams in [1, 2, 4, 8, 32] {
            let shared = arena(&device, 1024 * streams, 4, 0);
            let mut offsets = ask_on_streams(&device, &vec![&shared; streams as usize]).concat();
            offsets.sort_unstable();
            assert!(offsets.into_iter().eq((0..256 * streams as u32).map(|i| 4 * i)), "{mode}: {streams}");
            assert_eq!(shared.stats().unwrap().remaining_bytes, 0, "{mode}");
        }
        let separate: Vec<_> = (0..8).map(|_| arena(&device, 1024, 4, 0)).collect();
        for mut offsets in ask_on_streams(&device, &separate.iter().collect::<Vec<_>>()) {
            offsets.sort_unstable();
            assert!(offsets.into_iter().eq((0..256).map(|i| 4 * i)), "{mode}");
        }
    }
}

/// With one counter no byte is wasted, whatever the sizes and their order.
#[test]
fn one_counter_wastes_nothing() {
    for (mode, device) in cpus(60) {
        let mut arena = arena(&device, 3000, 1, 0);
        for _ in 0..2 {
            let sizes: Vec<u32> = (0..160).map(|i| 1 + i * 7 % 60).collect();
            let mut granted = ask_for(&device, &arena, &sizes, 1);
            let sum: u32 = granted.iter().map(|(_, size)| size).sum();
            assert!(3000 - sum < 60, "{mode}: {sum} of 3000, and no request is larger");
            granted.extend(ask_for(&device, &arena, &[1; 80], 1));
            assert_eq!(granted.iter().map(|(_, size)| size).sum::<u32>(), 3000, "{mode}");
            check(&arena, 1, 1, granted, &mode);
            arena.reset().unwrap();
        }
    }
}
