//! The heap's functions for warps and blocks, and the block cache: on the CPU in parallel mode and
//! replayed under many seeds, and on a GPU if there is one.
#![cfg(not(loom))]

use std::collections::{BTreeMap, BTreeSet};
use warpheap::device_pools::Heap;
use warpheap::driver::Module;
use warpheap::simt::Mode;
use warpheap::{Device, DeviceBuffer, LaunchConfig, kernel_names};
use warpheap_device::fault::FaultKind;
use warpheap_device::kernel::{DevicePtr, Kernel};
use warpheap_harness::kernels::bench::Counter;
use warpheap_harness::kernels::groups::{
    CACHE_THREADS, Endings, Plan, groups_block, groups_cache, groups_exhaust, groups_free, groups_misuse,
    groups_vanish, groups_warp, groups_whole,
};

/// The launched kernels.
const KERNELS: [&str; 8] = kernel_names![
    groups_block,
    groups_cache,
    groups_exhaust,
    groups_free,
    groups_misuse,
    groups_vanish,
    groups_warp,
    groups_whole
];

/// The smallest heap, which soon runs out of memory.
const BYTES: u64 = 1 << 20;
/// Two and a half warps: some threads have no slots.
const BLOCK: u32 = 80;
const THREADS: u32 = 4 * BLOCK;

const _: () = assert!(CACHE_THREADS < BLOCK);

/// A device with its kernels, a heap, and the output buffers of the kernels.
struct Bench {
    name: String,
    device: Device,
    module: Module,
    heap: Heap,
    failures: DeviceBuffer<u64>,
    marks: DeviceBuffer<u32>,
    out: DeviceBuffer<u64>,
}

impl Bench {
    fn new(name: String, device: Device, module: Module) -> Bench {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        Bench {
            failures: device.zeroed(1).unwrap(),
            marks: device.zeroed((heap.capacity() / 16) as usize).unwrap(),
            out: device.zeroed(THREADS as usize).unwrap(),
            name,
            device,
            module,
            heap,
        }
    }

    fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) {
        let config = LaunchConfig {
            grid: [threads.div_ceil(BLOCK), 1, 1],
            block: [threads.min(BLOCK), 1, 1],
            shared_bytes: 0,
        };
        let stream = self.device.stream().unwrap();
        // SAFETY: all arguments of the kernels live in `self` or until the caller returns.
        unsafe { stream.launch(&self.module, kernel, &config, args) }.unwrap();
        stream.synchronize().unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    fn failures(&self) -> u64 {
        self.failures.copy_to_vec().unwrap()[0]
    }

    fn out(&self) -> Vec<u64> {
        self.out.copy_to_vec().unwrap()
    }

    /// Frees these blocks with plain calls.
    fn free(&self, blocks: &[u64]) {
        let mut all = blocks.to_vec();
        all.resize(THREADS as usize, 0);
        let blocks = self.device.from_slice(&all).unwrap();
        self.run(groups_free, THREADS, (self.heap.handle(), blocks.slice()));
    }

    /// Whether everything is free: the whole heap can be allocated as one block.
    fn is_whole(&self) -> bool {
        let got = self.device.zeroed::<u64>(1).unwrap();
        let handle = self.heap.handle();
        self.run(groups_whole, 1, (handle, got.slice(), self.heap.capacity()));
        got.copy_to_vec().unwrap()[0] == 1
    }

    /// Checks that no failure was recorded and that everything was freed.
    fn check(&self) {
        let faults = self.heap.faults().unwrap();
        assert_eq!(faults.count, 0, "{}: {:?}", self.name, faults.first.first());
        assert_eq!(self.failures(), 0, "{}", self.name);
        assert!(self.is_whole(), "{}: blocks were lost", self.name);
    }
}

/// The parallel CPU, one replay for each of `seeds` seeds, and the GPU.
fn benches(seeds: u64) -> impl Iterator<Item = Bench> {
    let modes = std::iter::once(Mode::Parallel { workers: 2 });
    let modes = modes.chain((0..seeds).map(|seed| Mode::Replay { seed }));
    let cpus = modes.map(|mode| {
        let device = Device::cpu_with(mode);
        let module = device.native_kernels(&KERNELS).unwrap();
        Bench::new(format!("{mode:?}"), device, module)
    });
    cpus.chain(gpus())
}

/// The GPU with each of the program's kernel images that it can run.
fn gpus() -> Vec<Bench> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let (Ok(device), Ok(images)) = (Device::cuda(0), warpheap_harness::build_info::images()) else {
        assert!(!required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
        return Vec::new();
    };
    let load = |image: &warpheap::KernelImage| {
        Bench::new(
            format!("{} on the GPU", image.arch),
            device.clone(),
            device.load_kernels(image.ptx, &KERNELS).unwrap(),
        )
    };
    images.iter().map(load).collect()
}

/// The addresses of each warp or each block of the threads, without null.
fn grouped(out: &[u64], of: impl Fn(u32) -> (u32, u32)) -> BTreeMap<(u32, u32), Vec<u64>> {
    let mut groups = BTreeMap::<_, Vec<u64>>::new();
    for (i, address) in (0..).zip(out).filter(|(_, address)| **address != 0) {
        groups.entry(of(i)).or_default().push(*address);
    }
    groups
}

fn warp_of(i: u32) -> (u32, u32) {
    (i / BLOCK, i % BLOCK / 32)
}

/// Asserts that the ranges do not overlap.
fn assert_apart(name: &str, starts: impl IntoIterator<Item = u64>, bytes: u64) {
    let starts: Vec<u64> = BTreeSet::from_iter(starts).into_iter().collect();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= bytes), "{name}: {starts:x?}");
}

#[test]
fn the_lanes_of_a_mask_share_one_allocation() {
    for (lanes, bytes) in [(u32::MAX, 256), (u32::MAX, 100_000), (0x8421_8421, 300), (1 << 15, 256)] {
        for mut bench in benches(4) {
            for keep in [0, 1] {
                bench.out.fill(0).unwrap();
                let args = (bench.heap.handle(), bench.out.slice(), lanes, bytes, keep, bench.counter());
                bench.run(groups_warp, THREADS, args);
                if keep == 0 {
                    bench.check();
                }
            }
            let groups = grouped(&bench.out(), warp_of);
            let lengths = groups.values().map(Vec::len);
            if bytes == 100_000 {
                assert!(groups.len() < 12, "{}: the heap does not hold as many", bench.name);
                assert!(!groups.is_empty());
            } else {
                assert_eq!(groups.len(), 12, "{}", bench.name);
            }
            let expected =
                |warp: u32| if warp == 2 { (lanes & 0xffff).count_ones() } else { lanes.count_ones() };
            let whole = groups.keys().map(|(_, warp)| expected(*warp) as usize);
            assert!(lengths.eq(whole), "{}: all lanes of a warp or none", bench.name);
            assert!(groups.values().all(|g| g.iter().all(|a| *a == g[0])), "{}", bench.name);
            assert_apart(&bench.name, groups.values().map(|group| group[0]), bytes.into());
            bench.free(&groups.values().map(|group| group[0]).collect::<Vec<_>>());
            bench.check();
        }
    }
}

#[test]
fn the_threads_of_a_block_share_one_allocation() {
    // In some of these cases the first thread of each block has exited.
    for (bytes, gone) in [(16, 0), (24, 3), (9, 64), (4000, 2)] {
        for mut bench in benches(4) {
            let stride = u64::from(bytes).next_multiple_of(8);
            let mut wholes = bench.device.zeroed::<u64>(THREADS as usize).unwrap();
            for keep in [0, 1] {
                bench.out.fill(0).unwrap();
                wholes.fill(0).unwrap();
                let (out, wholes) = (bench.out.slice(), wholes.slice());
                let args = (bench.heap.handle(), out, wholes, bytes, gone, keep, bench.counter());
                bench.run(groups_block, THREADS, args);
                if keep == 0 {
                    bench.check();
                }
            }
            let (pieces, wholes) = (bench.out(), wholes.copy_to_vec().unwrap());
            let stay = |i: u32| gone == 0 || !(i % BLOCK).is_multiple_of(gone);
            let block_of = |i: u32| (i / BLOCK, 0);
            let groups = grouped(&wholes, block_of);
            let left = (0..BLOCK).filter(|i| stay(*i)).count();
            let granted = if bytes == 4000 { 1..=3 } else { 4..=4 };
            assert!(granted.contains(&groups.len()), "{}: {} blocks", bench.name, groups.len());
            for whole in groups.values() {
                assert_eq!(*whole, vec![whole[0]; left], "{}: all threads or none", bench.name);
            }
            for (i, (piece, whole)) in
                (0..).zip(pieces.iter().zip(&wholes)).filter(|(_, (piece, _))| **piece != 0)
            {
                assert_eq!(*piece, whole + stride * u64::from(i % BLOCK), "{}", bench.name);
            }
            assert_apart(&bench.name, groups.values().map(|g| g[0]), stride * u64::from(BLOCK));
            bench.free(&groups.values().map(|g| g[0]).collect::<Vec<_>>());
            bench.check();
        }
    }
}

/// Runs the plan, then frees the blocks that were left at the places. Returns the number of
/// failures.
fn run_cache(bench: &Bench, plan: Plan) -> u64 {
    let places = bench.device.zeroed::<u64>(32).unwrap();
    let args = (bench.heap.handle(), bench.marks.slice(), places.slice(), plan, bench.counter());
    bench.run(groups_cache, THREADS, args);
    let left: Vec<u64> = places.copy_to_vec().unwrap().into_iter().filter(|place| *place != 0).collect();
    bench.free(&left);
    bench.failures()
}

const PLAN: Plan = Plan { steps: 40, bytes: 48, seed: 1, endings: Endings::Return as u32, plant: 0 };

#[test]
fn no_block_has_two_owners_and_none_is_lost_however_threads_end() {
    for endings in [Endings::Return, Endings::Together, Endings::Any] {
        for (bench, seed) in benches(12).zip(1..) {
            let plan = Plan { seed, endings: endings as u32, ..PLAN };
            assert_eq!(run_cache(&bench, plan), 0, "{endings:?}, {}", bench.name);
            let faults = bench.heap.faults().unwrap();
            assert_eq!(faults.count, 0, "{endings:?}, {}: {:?}", bench.name, faults.first.first());
            // Also with `Any`: in each block at least one thread reaches the end, depending on the
            // seed.
            assert!(bench.is_whole(), "{endings:?}, {}: blocks were lost", bench.name);
        }
    }
}

#[test]
fn a_planted_double_free_is_caught() {
    for (bench, seed) in benches(8).zip(1..) {
        let failures = run_cache(&bench, Plan { seed, plant: 1, endings: Endings::Together as u32, ..PLAN });
        let faults = bench.heap.faults().unwrap().count;
        assert!(failures + faults > 0, "{}: 20 blocks were freed twice", bench.name);
    }
}

#[test]
fn a_full_heap_refuses_through_the_cache_and_is_whole_after() {
    for bench in benches(6) {
        let bytes = 4096;
        for _ in 0..2 {
            let args = (bench.heap.handle(), bench.marks.slice(), bench.out.slice(), bytes, bench.counter());
            bench.run(groups_exhaust, THREADS, args);
            let taken: u64 = bench.out().iter().sum();
            let most = bench.heap.capacity() / u64::from(bytes);
            // Other threads free meanwhile, so a freed block may be allocated again.
            assert!(taken >= most / 2, "{}: {taken} of {most}", bench.name);
            assert!(bench.out().iter().any(|count| *count < 32), "{}: no one was refused", bench.name);
        }
        bench.check();
    }
}

#[test]
fn who_vanishes_loses_nothing_if_the_others_end_the_cache() {
    for mut bench in benches(4) {
        for gone in [1, 2, 33] {
            bench.run(groups_vanish, THREADS, (bench.heap.handle(), gone, 1));
            // If all threads have exited, none is left to end the cache.
            assert_eq!(bench.is_whole(), gone != 1, "one in {gone}, {}", bench.name);
            bench.heap.reset().unwrap();
        }
        bench.run(groups_vanish, THREADS, (bench.heap.handle(), 5, 0));
        assert!(!bench.is_whole(), "{}: the check sees what is lost", bench.name);
    }
}

#[test]
fn misuse_is_recorded() {
    let expected =
        [FaultKind::DoubleFree, FaultKind::DoubleFree, FaultKind::InteriorFree, FaultKind::ForeignFree];
    for bench in benches(4) {
        for (what, kind) in (0..).zip(expected) {
            let before = bench.heap.faults().unwrap().count;
            bench.run(groups_misuse, BLOCK, (bench.heap.handle(), bench.out.slice(), what));
            let faults = bench.heap.faults().unwrap();
            assert_eq!(faults.count, before + 1, "{what}, {}", bench.name);
            assert_eq!(faults.first.last().unwrap().kind, kind, "{what}, {}", bench.name);
            let base = bench.heap.memory().address();
            let [one, other] = [1, 2].map(|i| bench.out()[i] - base);
            assert_ne!(one, other, "{what}, {}: a block was allocated twice", bench.name);
            assert!(one % 64 == 0 && other % 64 == 0, "{what}, {}: {one:#x} {other:#x}", bench.name);
        }
    }
}

#[test]
fn a_replay_of_the_cache_is_the_same_run() {
    let run = |seed| {
        let device = Device::cpu_with(Mode::Replay { seed });
        let module = device.native_module().unwrap();
        let bench = Bench::new(format!("seed {seed}"), device, module);
        let places = bench.device.zeroed::<u64>(32).unwrap();
        let plan = Plan { endings: Endings::Together as u32, ..PLAN };
        let args = (bench.heap.handle(), bench.marks.slice(), places.slice(), plan, bench.counter());
        bench.run(groups_cache, THREADS, args);
        let base = bench.heap.memory().address();
        // `None` for threads that left no block. Offsets, because the heap's address differs
        // between runs.
        places.copy_to_vec().unwrap().iter().map(|&a| (a != 0).then(|| a - base)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert!((8..12).any(|seed| run(seed) != run(7)), "the seed decides who leaves what");
}
