//! Heaps as arguments of kernels, also inside tuples and arrays.

use crate::support::run_in_blocks;
use std::alloc::Layout;
use warpheap::device_pools::Heap;
use warpheap::error::Dangling;
use warpheap::{Arg, Device, Error, LaunchConfig};
use warpheap_device::kernel::{DeviceSlice, Kernel, KernelArgs};
use warpheap_device::{heap, kernel};

kernel! {
    /// Allocates from two heaps, one of them in a tuple. For one thread.
    ///
    /// # Safety
    /// Both heaps and `out` are live, and nothing else accesses `out`.
    unsafe fn heaps(one: heap::Heap, others: (u32, [heap::Heap; 1]), out: DeviceSlice<u64>) {
        let got = [&one, &others.1[0]].map(|heap| heap.alloc(Layout::new::<u64>()));
        // SAFETY: `out` is live and this is the only thread, so no other thread accesses it.
        (0..).zip(got).for_each(|(i, block)| _ = unsafe { out.set(i, block.map_or(0, |b| b.as_ptr() as u64)) });
    }
}

fn new_heap(device: &Device) -> Heap {
    Heap::builder(1 << 20).build(device).unwrap()
}

#[test]
fn handles_arrive_from_anywhere_in_the_arguments() {
    let device = Device::cpu();
    let ([one, other], out) = ([(); 2].map(|()| new_heap(&device)), device.zeroed::<u64>(2).unwrap());
    run_in_blocks(&device, heaps, 1, 1, (one.handle(), (0, [other.handle()]), out.slice()));
    for (heap, block) in [&one, &other].into_iter().zip(out.copy_to_vec().unwrap()) {
        let start = heap.memory().address();
        assert!((start..start + heap.capacity()).contains(&block), "{block:#x}");
    }
}

#[test]
fn the_layout_of_arguments_is_their_declaration() {
    let layouts = <heaps as Kernel>::Args::PARAMS.iter().map(|param| (param.size, param.align));
    let heap = size_of::<Arg<heap::Heap>>();
    assert_eq!(layouts.collect::<Vec<_>>(), [(heap, 8), (heap + 8, 8), (16, 8)]);
}

/// A launch finds a dropped heap inside a tuple and an array.
#[test]
fn a_dropped_heap_is_found_inside_of_arguments() {
    let device = Device::cpu();
    let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
    let (heap, out, dropped) =
        (new_heap(&device), device.zeroed::<u64>(2).unwrap(), new_heap(&device).handle());
    let args = (heap.handle(), (0, [dropped]), out.slice());
    // SAFETY: the launch fails its check, so no kernel runs.
    let error = unsafe { stream.launch(&module, heaps, &LaunchConfig::linear(1, 1), args) }.unwrap_err();
    assert!(matches!(error, Error::Dangling(Dangling::Argument { position: 1, .. })), "{error}");
}
