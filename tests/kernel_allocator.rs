//! Collections of kernels on the CPU, in a program with [`KernelAllocator`] as its global
//! allocator: they use the global heap of the module, and nothing else of the program does.
#![cfg(not(loom))]

use std::alloc::Layout;
use std::collections::BTreeMap;
use warpheap::device_pools::Heap;
use warpheap::error::KernelFault;
use warpheap::simt::{KernelAllocator, Mode};
use warpheap::{Arg, Device, Error, LaunchConfig};
use warpheap_device::fault::FaultCheck;
use warpheap_device::heap::{BlockCache, Heap as HeapHandle};
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_device::{kernel, thread};

#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

const THREADS: u32 = 96;

kernel! {
    /// Counts words in a map of texts. Frees everything.
    ///
    /// # Safety
    /// `out` has a word for each thread, and nothing else accesses it.
    unsafe fn count_words(out: DeviceSlice<u64>) {
        let i = thread::index_1d();
        let mut words = BTreeMap::<String, Vec<u32>>::new();
        for n in 0..50 {
            words.entry(format!("word {}", (n * 7 + i) % 13)).or_default().push(n);
            // Other lanes run in between.
            thread::nanosleep(100);
        }
        let sum = words.iter().map(|(word, at)| word.len() as u64 * u64::from(at.iter().sum::<u32>()));
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), sum.sum()) };
    }

    /// Leaks a block of 100 bytes in each thread.
    ///
    /// # Safety
    /// None.
    unsafe fn leak() {
        std::mem::forget(Box::new([1_u8; 100]));
    }

    /// Grows a vector without end.
    ///
    /// # Safety
    /// `out` has a word for each thread, and nothing else accesses it.
    unsafe fn grow(out: DeviceSlice<u64>) {
        let i = thread::index_1d();
        let mut all = Vec::new();
        for n in 0..1 << 24 {
            all.push(u64::from(n ^ i));
        }
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), all.len() as u64) };
    }

    /// Panics in one thread, which has blocks.
    ///
    /// # Safety
    /// None.
    unsafe fn fail() {
        let blocks: Vec<_> = (0..10_u64).map(Box::new).collect();
        assert!(thread::index_1d() != 5, "thread {} has {} blocks", thread::index_1d(), blocks.len());
    }

    /// Panics with a payload that is a block of the heap.
    ///
    /// # Safety
    /// None.
    unsafe fn fail_with_a_block() {
        let text = format!("thread {}", thread::index_1d());
        if thread::index_1d() == 7 {
            std::panic::panic_any(text);
        }
    }

    /// Grows a vector while a panic unwinds the thread, in an exhausted heap.
    ///
    /// # Safety
    /// None.
    unsafe fn grow_while_unwinding() {
        struct Grows(Vec<u64>);
        impl Drop for Grows {
            fn drop(&mut self) {
                self.0.extend(0..1 << 22);
            }
        }
        let _grows = Grows(vec![1; 10]);
        assert!(thread::index_1d() != 5, "the first panic");
    }

    /// Leaves the address of a block in each word.
    ///
    /// # Safety
    /// `out` has a word for each thread, and nothing else accesses it.
    unsafe fn keep(out: DeviceSlice<u64>) {
        let i = thread::index_1d();
        let block = Box::into_raw(Box::new([u64::from(i); 3]));
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), block.expose_provenance() as u64) };
    }

    /// Uses shared memory, which belongs to the thread block and is no block of the heap.
    ///
    /// # Safety
    /// `heap` outlives the kernel, and blocks have 48 threads.
    unsafe fn share(heap: HeapHandle) {
        let layout = Layout::new::<[u64; 2]>();
        // SAFETY: all 48 threads of the block begin together, and there is no other cache.
        let cache = unsafe { BlockCache::<48, 4>::begin(&heap, layout) };
        // SAFETY: all threads end together, and none has a block of the cache.
        unsafe { cache.end() };
    }
}

fn devices() -> [Device; 2] {
    [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 7 }].map(Device::cpu_with)
}

/// Runs a kernel with a heap of `bytes`. Returns its words or its error, and the heap.
fn run<K: Kernel>(
    device: &Device,
    bytes: u64,
    kernel: K,
    args: impl FnOnce(DeviceSlice<u64>, Arg<HeapHandle>) -> K::Args,
) -> (Result<Vec<u64>, Error>, Heap) {
    let heap = Heap::builder(bytes).build(device).unwrap();
    let module = device.native_module().unwrap();
    module.set_global_heap(&heap).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.zeroed::<u64>(THREADS as usize).unwrap());
    let (grid, args) = (
        LaunchConfig { grid: [2, 1, 1], block: [48, 1, 1], shared_bytes: 0 },
        args(out.slice(), heap.handle()),
    );
    // SAFETY: the kernels need a buffer of their own, and the heap, which is live.
    unsafe { stream.launch(&module, kernel, &grid, args) }.unwrap();
    let done = stream.synchronize();
    assert_eq!(heap.check().unwrap(), [], "{}", K::NAME);
    (done.and_then(|()| out.copy_to_vec()), heap)
}

#[test]
fn collections_are_blocks_of_the_heap() {
    for device in devices() {
        let heap = run(&device, 64 << 20, leak, |_, _| ()).1;
        let stats = heap.stats().unwrap();
        assert_eq!((stats.live_blocks, stats.live_bytes), (THREADS.into(), u64::from(THREADS) * 112));
    }
}

#[test]
fn a_kernel_that_frees_all_leaves_nothing_and_computes_the_same() {
    let expected = |i: u32| {
        let mut words = BTreeMap::<String, u32>::new();
        (0..50).for_each(|n| *words.entry(format!("word {}", (n * 7 + i) % 13)).or_default() += n);
        words.iter().map(|(word, sum)| word.len() as u64 * u64::from(*sum)).sum::<u64>()
    };
    for device in devices() {
        let (done, heap) = run(&device, 64 << 20, count_words, |out, _| (out,));
        assert!(done.unwrap().into_iter().eq((0..THREADS).map(expected)));
        assert_eq!((heap.stats().unwrap().live_blocks, heap.faults().unwrap().count), (0, 0));
    }
}

#[test]
fn an_exhausted_heap_ends_the_threads_that_asked() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, grow, |out, _| (out,));
        assert_eq!(done.unwrap(), [0; THREADS as usize], "no thread can have 128 MiB of 16");
        let faults = heap.faults().unwrap();
        assert_eq!(faults.count, u64::from(THREADS));
        assert!(faults.first.iter().all(|fault| fault.check == FaultCheck::NoMemory), "{faults:?}");
    }
}

#[test]
fn a_panic_frees_the_blocks_of_its_thread_and_keeps_its_message() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, fail, |_, _| ());
        let error = done.unwrap_err();
        assert!(matches!(error, Error::KernelFault(KernelFault::Panicked { .. })), "{error}");
        assert_eq!(heap.stats().unwrap().live_blocks, 0);
        drop(heap);
        assert!(error.to_string().contains("thread 5 has 10 blocks"), "{error}");
    }
}

#[test]
fn shared_memory_is_no_block_of_the_heap() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, share, |_, heap| (heap,));
        done.unwrap();
        assert_eq!(heap.stats().unwrap().live_blocks, 0);
    }
}

#[test]
fn a_module_without_a_heap_and_the_program_use_the_other_allocator() {
    for device in devices() {
        let (module, stream) = (device.native_module().unwrap(), device.stream().unwrap());
        let heap = Heap::builder(16 << 20).build(&device).unwrap();
        module.set_global_heap(&heap).unwrap();
        let host: Vec<u64> = (0..1000).collect();
        module.clear_global_heap().unwrap();
        // SAFETY: the kernel needs nothing.
        unsafe { stream.launch(&module, leak, &LaunchConfig::linear(THREADS, 64), ()) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!((heap.stats().unwrap().live_blocks, host.len()), (0, 1000));
    }
}

#[test]
fn a_payload_of_a_panic_may_be_a_block() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, fail_with_a_block, |_, _| ());
        assert!(done.unwrap_err().to_string().contains(": thread 7"));
        assert_eq!(heap.stats().unwrap().live_blocks, 0);
    }
}

#[test]
fn a_destructor_may_allocate_more_than_the_heap_has_while_a_panic_unwinds() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, grow_while_unwinding, |_, _| ());
        assert!(done.unwrap_err().to_string().contains("the first panic"));
        // The other threads grew their vectors in the heap, and ended.
        assert_eq!(heap.faults().unwrap().count, u64::from(THREADS) - 1);
    }
}

#[test]
fn a_block_that_the_program_or_another_heap_frees_stays_live() {
    for device in devices() {
        let (done, heap) = run(&device, 16 << 20, keep, |out, _| (out,));
        let blocks = done.unwrap();
        let other = Heap::builder(16 << 20).build(&device).unwrap();
        let module = device.native_module().unwrap();
        module.set_global_heap(&other).unwrap();
        for block in blocks.iter().take(2) {
            // SAFETY: made by `Box::into_raw` in `keep`.
            drop(unsafe {
                Box::from_raw(std::ptr::with_exposed_provenance_mut::<[u64; 3]>(*block as usize))
            });
        }
        assert_eq!(heap.stats().unwrap().live_blocks, u64::from(THREADS));
        assert_eq!(heap.check().unwrap(), []);
    }
}
