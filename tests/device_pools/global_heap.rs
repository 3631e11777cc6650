//! The global allocator: the state that a thread leaves behind when its allocation fails, and
//! settings that the host rejects.

use crate::support::{cpus, run_in_blocks};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeSet;
use warpheap::device_pools::Heap;
use warpheap::error::{Dangling, InvalidModule};
use warpheap::{Device, DeviceBuffer, Error, LaunchConfig};
use warpheap_device::fault::FaultKind;
use warpheap_device::global::{GlobalHeap, SYMBOL};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::{kernel, thread};

/// Bytes that every thread of [`hoard`] allocates.
const PIECE: usize = 64 << 10;
const THREADS: u32 = 128;

/// # Safety
/// `at` is the address of a global heap that outlives the kernel.
unsafe fn global<'a>(at: DevicePtr<u64>) -> &'a GlobalHeap {
    // SAFETY: `global` requires the address of a global heap that outlives the kernel.
    unsafe { &*at.0.cast() }
}

fn piece() -> Layout {
    Layout::from_size_align(PIECE, 16).unwrap()
}

kernel! {
    /// Every thread allocates a piece and keeps it. A thread whose allocation fails never writes
    /// its word.
    ///
    /// # Safety
    /// `heap` is the address of a `GlobalHeap`; `pieces` is live and nothing else accesses it.
    unsafe fn hoard(heap: DevicePtr<u64>, pieces: DeviceSlice<u64>) {
        // SAFETY: `hoard` requires the address of a global heap.
        let heap = unsafe { global(heap) };
        // SAFETY: the layout of a piece is not empty.
        let block = unsafe { heap.alloc(piece()) };
        // SAFETY: each thread writes its own word.
        unsafe { pieces.set(thread::index_1d().into(), block as u64) };
    }

    /// Thread `i` frees piece `i`, if there is one.
    ///
    /// # Safety
    /// See [`hoard`], which wrote `pieces`.
    unsafe fn free_pieces(heap: DevicePtr<u64>, pieces: DeviceSlice<u64>) {
        // SAFETY: `free_pieces` requires the address of a global heap.
        let heap = unsafe { global(heap) };
        // SAFETY: no thread writes to `pieces`.
        let block = unsafe { pieces.get(thread::index_1d().into()) }.unwrap_or(0);
        if block != 0 {
            // SAFETY: allocated by `hoard` with this layout.
            unsafe { heap.dealloc(block as *mut u8, piece()) };
        }
    }

    /// Every thread repeatedly doubles a block, from 16 bytes to 4 KiB, and counts the bytes that
    /// kept their value.
    ///
    /// # Safety
    /// See [`hoard`].
    unsafe fn grow(heap: DevicePtr<u64>, kept: DeviceSlice<u64>) {
        let i = thread::index_1d();
        // SAFETY: `grow` requires the address of a global heap.
        let heap = unsafe { global(heap) };
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        // SAFETY: the layout is not empty.
        let mut block = unsafe { heap.alloc_zeroed(layout(16)) };
        let (mut bytes, mut kept_bytes) = (16, 0);
        while bytes < 4096 {
            for at in 0..bytes {
                // SAFETY: inside the block, and initialised.
                let place = unsafe { block.add(at) };
                // SAFETY: inside the block, and initialised.
                kept_bytes += u64::from(unsafe { place.read() } == (if bytes == 16 { 0 } else { i as u8 }));
                // SAFETY: inside the block.
                unsafe { place.write(i as u8) };
            }
            // SAFETY: this thread's block, with this layout.
            block = unsafe { heap.realloc(block, layout(bytes), 2 * bytes) };
            // SAFETY: the block has twice `bytes` bytes.
            let later = unsafe { block.add(bytes) };
            // SAFETY: the second half of the block.
            unsafe { later.write_bytes(i as u8, bytes) };
            bytes *= 2;
        }
        // SAFETY: this thread's block, with this layout.
        unsafe { heap.dealloc(block, layout(bytes)) };
        // SAFETY: each thread writes its own word.
        unsafe { kept.set(i.into(), kept_bytes) };
    }

    /// Does nothing.
    ///
    /// # Safety
    /// No requirement.
    unsafe fn idle() {}
}

/// Runs one of the kernels above over all threads.
fn run<K>(device: &Device, kernel: K, global: &GlobalHeap, words: &DeviceBuffer<u64>)
where
    K: kernel::Kernel<Args = (DevicePtr<u64>, DeviceSlice<u64>)>,
{
    let address = std::ptr::from_ref(global) as u64;
    // SAFETY: the value outlives the kernel, and is not part of another allocation of the device.
    let _named = unsafe { warpheap::DeviceMemory::from_raw(device, address, size_of::<GlobalHeap>() as u64) };
    run_in_blocks(device, kernel, THREADS, 64, (DevicePtr(address as *mut u64), words.slice()));
}

/// A heap of `bytes` bytes, the global heap over it, and a word for each thread.
fn set_up(device: &Device, bytes: u64) -> (Heap, GlobalHeap, DeviceBuffer<u64>) {
    let heap = Heap::builder(bytes).build(device).unwrap();
    // SAFETY: only kernels use it, and the heap outlives them.
    let global = unsafe { GlobalHeap::with_heap(heap.handle()) };
    (heap, global, device.zeroed(THREADS as usize).unwrap())
}

#[test]
fn a_thread_without_memory_is_recorded_and_ends_alone() {
    for (_, device) in cpus(6) {
        let (heap, global, pieces) = set_up(&device, 2 << 20);
        run(&device, hoard, &global, &pieces);
        let got = pieces.copy_to_vec().unwrap().iter().filter(|piece| **piece != 0).count();
        assert_eq!(got, (2 << 20) / PIECE, "the heap is filled");
        let faults = heap.faults().unwrap();
        assert_eq!(faults.count, u64::from(THREADS) - got as u64);
        let kinds: BTreeSet<_> = faults.first.iter().map(|f| (f.kind as u32, f.detail)).collect();
        assert_eq!(kinds, BTreeSet::from([(FaultKind::OutOfMemory as u32, PIECE as u64)]));
        let threads: BTreeSet<_> = faults.first.iter().map(|f| (f.block, f.thread)).collect();
        assert_eq!(threads.len(), faults.first.len(), "each thread once");
        assert_eq!(global.faults().count(), 0);
        run(&device, free_pieces, &global, &pieces);
        run(&device, hoard, &global, &pieces);
        assert_eq!(heap.faults().unwrap().count, 2 * faults.count, "what was freed is available again");
    }
}

#[test]
fn without_a_heap_every_thread_is_recorded_and_ends() {
    for (_, device) in cpus(6) {
        // SAFETY: only kernels use it.
        let global = unsafe { GlobalHeap::unset() };
        let words = device.zeroed::<u64>(THREADS as usize).unwrap();
        run(&device, hoard, &global, &words);
        assert!(words.copy_to_vec().unwrap().iter().all(|word| *word == 0), "no thread went on");
        assert_eq!(global.faults().count(), u64::from(THREADS));
        let right =
            global.faults().faults().all(|f| f.kind == FaultKind::NoGlobalHeap && f.detail == PIECE as u64);
        assert!(right, "{:?}", global.faults().faults().next());
    }
}

#[test]
fn blocks_grow_and_keep_their_bytes() {
    for (_, device) in cpus(6) {
        let (heap, global, kept) = set_up(&device, 4 << 20);
        run(&device, grow, &global, &kept);
        assert_eq!(kept.copy_to_vec().unwrap(), vec![4096 - 16; THREADS as usize]);
        assert_eq!(heap.faults().unwrap().count, 0);
    }
}

/// PTX with an empty kernel and `line`.
fn ptx(line: &str) -> String {
    format!(".version 7.0\n.target sm_70\n.address_size 64\n{line}\n.visible .entry idle() {{ ret; }}\n")
}

fn symbol(bytes: usize) -> String {
    ptx(&format!(".visible .global .align 8 .b8 {SYMBOL}[{bytes}];"))
}

#[test]
fn a_module_without_a_global_heap_is_rejected() {
    let device = Device::cpu();
    let heap = Heap::builder(1 << 20).build(&device).unwrap();
    let error = device.load_module(&ptx("")).unwrap().set_global_heap(&heap).unwrap_err();
    assert!(matches!(error, Error::InvalidModule(InvalidModule::NoGlobalHeap { .. })), "{error}");
    assert!(error.to_string().contains("global_heap!()"), "{error}");
    let other = device.load_module(&symbol(8)).unwrap().set_global_heap(&heap).unwrap_err();
    assert!(matches!(other, Error::InvalidModule(InvalidModule::VariableLayout { .. })), "{other}");
    let right = device.load_module(&symbol(size_of::<GlobalHeap>())).unwrap();
    right.set_global_heap(&heap).unwrap();
    assert_eq!(right.global_heap_faults().unwrap().count, 0);
}

#[test]
fn a_heap_of_another_device_is_rejected() {
    let (device, other) = (Device::cpu(), Device::cpu());
    let heap = Heap::builder(1 << 20).build(&other).unwrap();
    let error = device.native_module().unwrap().set_global_heap(&heap).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { what: "the heap", .. }), "{error}");
}

#[test]
fn a_launch_after_the_end_of_the_heap_is_rejected() {
    let device = Device::cpu();
    let (module, stream) = (device.native_module().unwrap(), device.stream().unwrap());
    // SAFETY: the kernel does nothing.
    let launch = || unsafe { stream.launch(&module, idle, &LaunchConfig::linear(1, 1), ()) };
    let heap = Heap::builder(1 << 20).build(&device).unwrap();
    module.set_global_heap(&heap).unwrap();
    launch().unwrap();
    drop(heap);
    // Another heap, likely at the same address.
    let next = Heap::builder(1 << 20).build(&device).unwrap();
    let error = launch().unwrap_err();
    assert!(matches!(error, Error::Dangling(Dangling::GlobalHeap { kernel: "idle", .. })), "{error}");
    module.set_global_heap(&next).unwrap();
    launch().unwrap();
    drop(next);
    module.clear_global_heap().unwrap();
    launch().unwrap();
}
