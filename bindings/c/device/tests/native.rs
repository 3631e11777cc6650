//! The device functions on the CPU: the semantics of C's functions, and all kinds of wrong
//! arguments.

use std::ptr::null_mut;
use warpheap::device_pools::{Bump, FreeList, Heap};
use warpheap::{Device, LaunchConfig};
use warpheap_c_device::functions::heap::{
    wh_aligned_alloc, wh_calloc, wh_free, wh_free_begin, wh_free_block, wh_free_finish, wh_free_warp,
    wh_malloc, wh_malloc_begin, wh_malloc_block, wh_malloc_block_each, wh_malloc_finish, wh_malloc_warp,
    wh_realloc, wh_usable_size,
};
use warpheap_c_device::functions::pools::{
    wh_bump_aligned_alloc, wh_bump_alloc, wh_freelist_alloc, wh_freelist_free,
};
use warpheap_device::fault::FaultKind;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{bump, freelist, heap, kernel, thread, warp};

/// Full warps and a part of one.
const THREADS: u32 = 80;
const BLOCK: u32 = 40;

/// A call of a device function, or of another unsafe one, by a kernel of this test.
macro_rules! call {
    ($($call:tt)+) => {{
        // SAFETY: the handles are null or of live pools, each thread uses its own blocks and words
        // only, and whole groups make the calls of groups.
        unsafe { $($call)+ }
    }};
}

/// The pool at an address; null is none.
macro_rules! pool {
    ($type:ty, $address:expr) => {
        call!(($address as *const $type).as_ref())
    };
}

fn is_aligned(block: *mut u8, align: usize) -> bool {
    !block.is_null() && block.addr().is_multiple_of(align)
}

/// Adds up five words; 99 without a block.
fn sum(block: *mut u8) -> u64 {
    let words = block.cast::<u64>();
    if block.is_null() { 99 } else { (0..5).map(|i| call!(words.add(i).read())).sum() }
}

kernel! {
    /// Calls every function of a heap for single threads, and reports four words per thread.
    ///
    /// # Safety
    /// `address` is 0 or that of a live heap. Only this kernel accesses `out`.
    unsafe fn use_heap(address: u64, out: DeviceSlice<[u64; 4]>) {
        let heap = pool!(heap::Heap, address);
        let a = call!(wh_malloc(heap, 24));
        let b = call!(wh_aligned_alloc(heap, 256, 100));
        let c = call!(wh_calloc(heap, 5, 8));
        let zeros = sum(c);
        if !c.is_null() {
            (0..5).for_each(|i| call!(c.cast::<u64>().add(i).write(i as u64 + 1)));
        }
        let c = call!(wh_realloc(heap, c, 4000));
        let d = call!(wh_realloc(heap, null_mut(), 10));
        let given = [is_aligned(a, 16), is_aligned(b, 256), is_aligned(c, 16), is_aligned(d, 16)];
        let failed = [
            call!(wh_malloc(heap, 0)),
            call!(wh_malloc(heap, usize::MAX)),
            call!(wh_malloc(heap, 1 << 40)),
            call!(wh_aligned_alloc(heap, 24, 24)),
            call!(wh_aligned_alloc(heap, 0, 24)),
            call!(wh_aligned_alloc(heap, 1 << 22, 24)),
            call!(wh_calloc(heap, usize::MAX, 2)),
            call!(wh_calloc(heap, 0, 8)),
            call!(wh_realloc(heap, d, usize::MAX)),
        ];
        let failed = failed.iter().filter(|block| block.is_null()).count() as u64;
        let usable = call!(wh_usable_size(heap, a)) + call!(wh_usable_size(heap, null_mut()));
        let kept = sum(c);
        let is_freed = call!(wh_realloc(heap, c, 0)).is_null();
        [a, b, d, null_mut()].into_iter().for_each(|block| call!(wh_free(heap, block)));
        let given = given.iter().filter(|is| **is).count() as u64;
        let words = [given * 10 + failed, zeros * 100 + kept, usable as u64, is_freed.into()];
        call!(out.set(thread::index_1d().into(), words));
    }

    /// Frees and resizes addresses that are no blocks.
    ///
    /// # Safety
    /// `address` is that of a live heap.
    unsafe fn misuse_heap(address: u64, foreign: u64) {
        let heap = pool!(heap::Heap, address);
        let foreign = foreign as *mut u8;
        call!(wh_free(heap, foreign));
        assert!(call!(wh_realloc(heap, foreign, 64)).is_null());
        assert_eq!(call!(wh_usable_size(heap, foreign)), 0);
        let block = call!(wh_malloc(heap, 64));
        call!(wh_free(heap, block.wrapping_add(8)));
        call!(wh_free(heap, block));
        call!(wh_free(heap, block));
    }

    /// As [`misuse_heap`], in two parts, by all lanes of a warp; lane 0 gets no block, and the last
    /// one a large one.
    ///
    /// # Safety
    /// As for [`misuse_heap`].
    unsafe fn misuse_in_parts(address: u64, foreign: u64) {
        let heap = call!(&*(address as *const heap::Heap));
        let lane = thread::index_1d();
        let alloc = |size| {
            let step = call!(wh_malloc_begin(heap, size));
            if step.rest == 0 { step.address as *mut u8 } else { call!(wh_malloc_finish(Some(heap), size, step)) }
        };
        let free = |block| {
            let step = call!(wh_free_begin(heap, block));
            if step.rest != 0 {
                call!(wh_free_finish(Some(heap), block, step));
            }
        };
        let block = alloc(if lane == 0 { 0 } else if lane == 31 { 1 << 20 } else { 64 });
        assert_eq!(block.is_null(), lane == 0);
        if lane == 1 {
            free(foreign as *mut u8);
            free(block.wrapping_add(8));
        }
        free(block);
        // A second free of a warp, and of one lane.
        let again = alloc(64);
        free(again);
        free(if lane.is_multiple_of(2) { again } else { null_mut() });
        let none = call!(std::mem::zeroed::<heap::Heap>());
        let step = call!(wh_malloc_begin(&none, 64));
        assert!(call!(wh_malloc_finish(None, 64, step)).is_null());
        let step = call!(wh_free_begin(&none, again));
        call!(wh_free_finish(None, again, step));
    }

    /// Allocates for warps and thread blocks, and reports three addresses per thread.
    ///
    /// # Safety
    /// As for [`use_heap`].
    unsafe fn use_groups(address: u64, out: DeviceSlice<[u64; 3]>) {
        let heap = pool!(heap::Heap, address);
        let mask = warp::activemask();
        let of_warp = call!(wh_malloc_warp(heap, mask.0, 100));
        let of_block = call!(wh_malloc_block(heap, 1000));
        let mut whole = null_mut();
        let own = call!(wh_malloc_block_each(heap, 24, &raw mut whole));
        if !own.is_null() {
            call!(own.cast::<u64>().add(2).write(thread::index_1d().into()));
        }
        let words = [of_warp, of_block, own].map(|block| block.addr() as u64);
        call!(out.set(thread::index_1d().into(), words));
        assert_eq!(own.is_null(), whole.is_null());
        assert!(call!(wh_malloc_block(heap, 0)).is_null());
        call!(wh_free_block(heap, whole));
        call!(wh_free_block(heap, of_block));
        call!(wh_free_block(heap, null_mut()));
        call!(wh_free_warp(heap, mask.0, of_warp));
        call!(wh_free_warp(heap, mask.0, null_mut()));
    }

    /// Allocates from an arena and a free list, and reports three addresses per thread.
    ///
    /// # Safety
    /// The addresses are 0 or those of live pools. Only this kernel accesses `out`.
    unsafe fn use_pools(arena: u64, list: u64, out: DeviceSlice<[u64; 3]>) {
        let (arena, list) = (pool!(bump::Bump, arena), pool!(freelist::FreeList, list));
        let a = call!(wh_bump_alloc(arena, 40));
        let b = call!(wh_bump_aligned_alloc(arena, 128, 8));
        assert!(call!(wh_bump_aligned_alloc(arena, 3, 8)).is_null());
        assert!(call!(wh_bump_alloc(arena, 0)).is_null());
        let c = call!(wh_freelist_alloc(list));
        call!(wh_freelist_free(list, null_mut()));
        call!(wh_freelist_free(list, c));
        call!(out.set(thread::index_1d().into(), [a, b, c].map(|block| block.addr() as u64)));
    }
}

/// Launches `$kernel` with `$args` and a buffer for what each thread reports.
macro_rules! answers {
    ($device:expr, $kernel:expr, ($($arg:expr),*)) => {{
        let stream = $device.stream().unwrap();
        let out = $device.zeroed(THREADS as usize).unwrap();
        let grid = LaunchConfig::linear(THREADS, BLOCK);
        let module = $device.native_module().unwrap();
        call!(stream.launch(&module, $kernel, &grid, ($($arg,)* out.slice()))).unwrap();
        stream.synchronize().unwrap();
        out.copy_to_vec().unwrap()
    }};
}

#[test]
fn the_functions_of_a_heap_are_those_of_c() {
    let device = Device::cpu();
    let heap = Heap::builder(16 << 20).build(&device).unwrap();
    for words in answers!(device, use_heap, (heap.device_address())) {
        let [counts, sums, usable, is_freed] = words;
        assert_eq!((counts, sums, is_freed), (49, 15, 1));
        assert!((24..48).contains(&usable), "{usable}");
    }
    let stats = heap.stats().unwrap();
    assert_eq!((stats.live_blocks, stats.large_blocks, stats.faults), (0, 0, 0));
    assert_eq!(heap.check().unwrap(), []);
}

#[test]
fn a_null_handle_allocates_nothing() {
    let device = Device::cpu();
    for words in answers!(device, use_heap, (0_u64)) {
        assert_eq!(words, [9, 9999, 0, 1]);
    }
    for words in
        answers!(device, use_groups, (0_u64)).into_iter().chain(answers!(device, use_pools, (0_u64, 0_u64)))
    {
        assert_eq!(words, [0; 3]);
    }
}

#[test]
fn misuse_is_recorded() {
    let device = Device::cpu();
    let heap = Heap::builder(16 << 20).build(&device).unwrap();
    let other = device.zeroed::<u64>(8).unwrap();
    let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
    let args = (heap.device_address(), other.address());
    call!(stream.launch(&module, misuse_heap, &LaunchConfig::linear(1, 1), args)).unwrap();
    stream.synchronize().unwrap();
    let faults = heap.faults().unwrap();
    let kinds: Vec<_> = faults.first.iter().map(|fault| fault.kind).collect();
    let foreign = FaultKind::ForeignFree;
    assert_eq!(kinds, [foreign, foreign, FaultKind::InteriorFree, FaultKind::DoubleFree]);
    assert_eq!(heap.check().unwrap(), []);
    assert_eq!(heap.stats().unwrap().live_blocks, 0);
}

#[test]
fn misuse_is_recorded_in_two_parts() {
    let device = Device::cpu();
    let heap = Heap::builder(16 << 20).build(&device).unwrap();
    let other = device.zeroed::<u64>(8).unwrap();
    let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
    let args = (heap.device_address(), other.address());
    call!(stream.launch(&module, misuse_in_parts, &LaunchConfig::linear(32, 32), args)).unwrap();
    stream.synchronize().unwrap();
    let faults = heap.faults().unwrap();
    let count = |kind| faults.first.iter().filter(|fault| fault.kind == kind).count();
    let kinds = [FaultKind::ForeignFree, FaultKind::InteriorFree, FaultKind::DoubleFree].map(count);
    assert_eq!(kinds, [1, 1, 16]);
    assert_eq!(heap.check().unwrap(), []);
    let stats = heap.stats().unwrap();
    assert_eq!((stats.live_blocks, stats.large_blocks), (0, 0));
}

#[test]
fn groups_share_one_allocation() {
    let device = Device::cpu();
    let heap = Heap::builder(16 << 20).build(&device).unwrap();
    let all = answers!(device, use_groups, (heap.device_address()));
    for block in all.chunks(BLOCK as usize) {
        assert!(block.iter().all(|words| words[1] == block[0][1] && words[1] != 0));
        // 24 bytes at an alignment of 16.
        assert!(block.windows(2).all(|pair| pair[1][2] == pair[0][2] + 32));
        for warp in block.chunks(32) {
            assert!(warp.iter().all(|words| words[0] == warp[0][0] && words[0] != 0));
        }
    }
    assert_eq!(heap.stats().unwrap().live_blocks, 0);
    assert_eq!(heap.check().unwrap(), []);
}

#[test]
fn an_arena_and_a_free_list_serve_every_thread() {
    let device = Device::cpu();
    let arena = Bump::builder(1 << 20).build(&device).unwrap();
    let list = FreeList::builder(u64::from(THREADS), 64).build(&device).unwrap();
    let all = answers!(device, use_pools, (arena.device_address(), list.device_address()));
    for [a, b, c] in all {
        assert!(a != 0 && b != 0 && c != 0 && a % 16 == 0 && b % 128 == 0);
    }
    let freed = list.stats().unwrap();
    assert_eq!((freed.live_blocks, freed.free_blocks), (0, THREADS.into()));
    assert!(list.faults().unwrap().first.is_empty());
    assert!(arena.stats().unwrap().usage.used_bytes >= 48 * u64::from(THREADS));
}
