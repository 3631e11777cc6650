//! Each kernel computes what the same function computes on the host, for any number of threads: on
//! the CPU, and on the first GPU if there is one, compiled by the driver and from a cubin. With
//! `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
//!
//! All tests run one after another, since a GPU has one size of stacks for all kernels.

use std::time::Instant;
use warpheap::device_pools::Heap;
use warpheap::simt::{KernelAllocator, Mode};
use warpheap::{Backend, Device, LaunchConfig, Module};
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_language::kernels::{
    LIBRARY, evaluate, language_dyn, language_library, language_mutual, language_pointers, language_sort,
    language_tree, mutual, pointers, sorted, tree,
};
use warpheap_language::{CUBINS, PTX, PTX_MISSING};

/// The kernels use their heap on the CPU, too.
#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

/// Large enough for the deepest recursion here.
const STACK_BYTES: u64 = 32 << 10;

/// Bytes of the heap for each thread and number: two pairs for a stable sort, or a node of a tree.
const SORT_BYTES: u64 = 64;
const NODE_BYTES: u64 = 160;
/// For each text: itself, which grows to 64 bytes, and its place in a vector.
const TEXT_BYTES: u64 = 256;

/// Most threads on the CPU, where each is a coroutine.
const CPU_THREADS: u32 = 200;

struct Fixture {
    device: Device,
    module: Module,
}

fn fixtures() -> Vec<Fixture> {
    let modes = [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 1 }];
    let cpu = modes.map(|mode| {
        let device = Device::cpu_with(mode);
        let module = device.native_module().unwrap();
        Fixture { device, module }
    });
    let required = std::env::var_os("WARPHEAP_REQUIRE_CUDA").is_some_and(|value| value == "1");
    let gpu = Device::cuda(0).ok().filter(|_| !PTX.is_empty());
    assert!(gpu.is_some() || !required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU or {PTX_MISSING}");
    let gpu = gpu.into_iter().flat_map(|device| {
        assert!(device.set_stack_bytes(STACK_BYTES).unwrap() >= STACK_BYTES);
        let compiled = device.load_module(PTX).unwrap();
        [Some(compiled), of_cubin(&device)].into_iter().flatten().map(move |module| {
            let device = device.clone();
            Fixture { device, module }
        })
    });
    cpu.into_iter().chain(gpu).collect()
}

/// The kernels from a cubin. `None` if none is for this GPU.
fn of_cubin(device: &Device) -> Option<Module> {
    let began = Instant::now();
    let module = device.load_module_with_cubins(PTX, &CUBINS).unwrap();
    println!("loaded from a cubin for {:?}: {:?}", module.cubin_arch(), began.elapsed());
    let info = device.info().unwrap();
    let of_major = |major: u32, cubin: &[u8]| {
        let is_for = info.compute_capability.is_some_and(|capability| capability.0 == major);
        is_for && !cubin.is_empty()
    };
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    let has_all = CUBINS.iter().all(|cubin| !cubin.is_empty());
    assert!(has_all || !is_set("WARPHEAP_REQUIRE_PTXAS"), "WARPHEAP_REQUIRE_PTXAS=1, but there is no cubin");
    // The driver of the toolkit that compiles them here, or a newer one.
    if info.driver_version >= Some((13, 0)) {
        assert_eq!(module.cubin_arch().is_some(), of_major(8, CUBINS[0]) || of_major(9, CUBINS[1]));
    }
    module.cubin_arch()?;
    Some(module)
}

/// Checks that `threads` threads in blocks of `block` compute `expected`, and free all memory.
fn check<K: Kernel>(
    fixture: &Fixture,
    [threads, block]: [u32; 2],
    (size, heap_bytes): (u32, u64),
    kernel: K,
    args: impl FnOnce(DeviceSlice<u64>) -> K::Args,
    expected: impl Fn(u64) -> u64,
) {
    let Fixture { device, module } = fixture;
    if device.backend() == Backend::Cpu && threads > CPU_THREADS {
        return;
    }
    let name = K::NAME;
    let began = Instant::now();
    let bytes = u64::from(threads) * (u64::from(size) * heap_bytes + 4096) + (64 << 20);
    let heap = Heap::builder(bytes).build(device).unwrap();
    module.set_global_heap(&heap).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.zeroed::<u64>(threads as usize).unwrap());
    let grid = LaunchConfig::linear(threads, block);
    // SAFETY: the heap and the buffer live until the stream is synchronised, and nothing else
    // accesses the buffer.
    unsafe { stream.launch(module, kernel, &grid, args(out.slice())) }.unwrap();
    stream.synchronize().unwrap_or_else(|error| panic!("{name} of {size}, {threads} threads: {error}"));
    module.clear_global_heap().unwrap();
    let out = out.copy_to_vec().unwrap();
    // Neighbours in a warp, and threads all over a large grid.
    let step = (threads as usize / 2048).max(1) | 1;
    let wrong = (0..threads as usize).step_by(step).filter(|i| out[*i] != expected(*i as u64));
    let wrong: Vec<_> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{name} of {size} on {device}: {} of {threads} threads in blocks of {block} are wrong: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(8)]
    );
    let (faults, stats) = (heap.faults().unwrap(), heap.stats().unwrap());
    assert_eq!((faults.count, stats.live_blocks), (0, 0), "{name} of {size}: {faults:?}");
    if device.backend() != Backend::Cpu {
        println!("{name:18} {size:5} {threads:7} threads of {block:4}: {:?}", began.elapsed());
    }
}

/// Threads and block sizes: parts of warps, full warps, many blocks. Without a register limit, 256
/// threads fit into a block.
const SHAPES: [[u32; 2]; 8] =
    [[1, 32], [2, 32], [31, 32], [64, 64], [199, 96], [1024, 256], [1 << 13, 128], [1 << 17, 256]];

fn sorts(fixture: &Fixture) {
    for shape in SHAPES {
        for count in [2, 3, 20, 21, 33, 64, 100, 900, 4096] {
            let is_slow = fixture.device.backend() == Backend::Cpu && count > 100;
            for kind in 0..4 {
                if is_slow && shape[0] > 2 {
                    continue;
                }
                let args = |out| (kind, count, out);
                check(fixture, shape, (count, SORT_BYTES), language_sort, args, |i| sorted(kind, count, i));
            }
        }
    }
}

fn recursion(fixture: &Fixture) {
    for shape in SHAPES {
        for size in [3, 40, 200] {
            check(fixture, shape, (size, NODE_BYTES), language_dyn, |out| (size, out), |i| evaluate(size, i));
            check(fixture, shape, (size, NODE_BYTES), language_tree, |out| (size, out), |i| tree(size, i));
        }
        for depth in [1, 7, 15] {
            check(fixture, shape, (depth, 0), language_mutual, |out| (depth, out), |i| mutual(depth, i));
            check(fixture, shape, (depth, 0), language_pointers, |out| (depth, out), |i| pointers(depth, i));
        }
    }
}

fn library(fixture: &Fixture) {
    for shape in SHAPES {
        for count in [1, 2, 9, 30] {
            for (kind, function) in (0..).zip(LIBRARY) {
                let args = |out| (kind, count, out);
                check(fixture, shape, (count, TEXT_BYTES), language_library, args, |i| function(count, i));
            }
        }
    }
}

#[test]
fn kernels_compute_what_the_host_computes() {
    for fixture in fixtures() {
        sorts(&fixture);
        recursion(&fixture);
        library(&fixture);
    }
}
