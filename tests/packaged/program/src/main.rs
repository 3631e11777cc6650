//! An application built from the packaged crates. Its kernel and its host code allocate from and
//! free to a heap, and the harness stresses the heap. `warpheap-user [cpu | cuda]`

mod kernels;

use kernels::user_square;
use std::alloc::Layout;
use std::error::Error;
use warpheap::device_pools::Heap;
use warpheap::{Device, KernelImage, LaunchConfig, Module};
use warpheap_device::kernel::Pod;
use warpheap_harness::OwnModule;
use warpheap_harness::stress::{AllocatorKind, Limit, StressConfig, stress};

/// The kernels of this program.
const PTX: &str = include_str!(env!("KERNELS_PTX"));
const THREADS: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let on_gpu = match std::env::args().nth(1).as_deref() {
        None | Some("cpu") => false,
        Some("cuda") => true,
        Some(other) => return Err(format!("{other} is neither cpu nor cuda").into()),
    };
    kernels_are_inside()?;
    let device = if on_gpu { Device::cuda(0)? } else { Device::cpu() };
    let module = if on_gpu { device.load_module(PTX)? } else { device.native_module()? };
    let heap = Heap::builder(16 << 20).build(&device)?;
    square(&device, &module, &heap)?;
    allocate_from_host(&heap)?;
    stress_heap(&device)?;
    println!("ok: {THREADS} threads and the host allocated and freed on {device}");
    Ok(())
}

/// A package without its kernels would still run on the CPU.
fn kernels_are_inside() -> Result<(), Box<dyn Error>> {
    let library = warpheap::build_info::images()?;
    let harness = warpheap_harness::build_info::images()?;
    let has = |image: &KernelImage, kernel: &str| image.ptx.contains(&format!(".visible .entry {kernel}("));
    assert!(library.len() == 2 && library.iter().all(|image| has(image, "heap_alloc_many")));
    assert!(harness.len() == 2 && harness.iter().all(|image| has(image, "stress_heap")));
    assert!(PTX.contains(".visible .entry user_square("));
    Ok(())
}

fn square(device: &Device, module: &Module, heap: &Heap) -> warpheap::Result<()> {
    let (stream, out) = (device.stream()?, device.zeroed::<u64>(THREADS as usize)?);
    let grid = LaunchConfig::linear(THREADS, 256);
    // SAFETY: the heap and the buffer live until the stream is synchronised, and no other kernel
    // accesses the buffer.
    unsafe { stream.launch(module, user_square, &grid, (heap.handle(), Pod([3, 5]), out.slice()))? };
    stream.synchronize()?;
    assert!(out.copy_to_vec()?.into_iter().zip(0_u64..).all(|(result, i)| result == 3 * i * i + 5));
    assert_eq!(heap.faults()?.count, 0);
    Ok(())
}

fn allocate_from_host(heap: &Heap) -> warpheap::Result<()> {
    let layouts: Vec<_> =
        (1..=500).map(|bytes| Layout::from_size_align(bytes, 8).expect("a layout")).collect();
    let blocks: Vec<_> = heap.allocate_many(&layouts)?.into_iter().flatten().collect();
    assert_eq!(blocks.len(), layouts.len());
    assert_eq!(heap.leaks(0)?.count, layouts.len() as u64);
    // SAFETY: no kernel uses the blocks.
    unsafe { heap.deallocate_many(&blocks)? };
    assert_eq!((heap.leaks(0)?.count, heap.check()?.len()), (0, 0));
    Ok(())
}

fn stress_heap(device: &Device) -> Result<(), Box<dyn Error>> {
    let config = StressConfig::new().allocator(AllocatorKind::Heap).threads(512).sizes(16..=512).limit(Limit::Rounds(2));
    let kernels = OwnModule::load(device, &config.kernels())?;
    let report = stress(device, &kernels, &config, &mut |_| ())?;
    assert!(report.is_clean() && report.allocations > 0);
    Ok(())
}
