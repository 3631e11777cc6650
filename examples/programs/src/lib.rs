//! What the programs share: the device, the kernels, and the checks of results and heaps.

pub mod kernels;

use std::fmt::Debug;
use warpheap::device_pools::Heap;
use warpheap::{Backend, Bytes, Device, LaunchConfig, Module, Stream};
use warpheap_device::check::hash::absorb;
use warpheap_device::kernel::Kernel;

/// A result with any error. A wrong result is an error too.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The kernels, for every GPU since Volta. Empty if no compiler for kernels was found.
const PTX: &str = include_str!(env!("WARPHEAP_PTX_SM_70"));
/// Why there are no kernels.
const PTX_MISSING: &str = include_str!(env!("WARPHEAP_PTX_MISSING_REASON_FILE"));

/// Threads in a block.
const BLOCK: u32 = 256;
/// Bytes of a heap for each thread that allocates from it.
const HEAP_BYTES: u64 = 16 << 10;

/// The device of the program's first argument, `cpu` or `cuda`. Without one: the first GPU, or the
/// CPU if there is none. Prints its name.
///
/// # Errors
/// For another argument, and for `cuda` without a GPU or without kernels.
pub fn device() -> Result<Device> {
    let device = match std::env::args().nth(1).as_deref() {
        None => gpu_or_cpu()?,
        Some("cpu") => Device::cpu(),
        Some("cuda") if PTX.is_empty() => return Err(PTX_MISSING.into()),
        Some("cuda") => Device::cuda(0)?,
        Some(other) => return Err(format!("{other} is neither cpu nor cuda").into()),
    };
    println!("device: {}", device.info()?.name);
    Ok(device)
}

fn gpu_or_cpu() -> Result<Device> {
    let why = match Device::cuda(0) {
        Ok(device) if !PTX.is_empty() => return Ok(device),
        Ok(_) => PTX_MISSING.to_owned(),
        Err(error) if error.is_no_device() => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    eprintln!("{why}\nrunning on the CPU");
    Ok(Device::cpu())
}

/// Loads these kernels. On the CPU they are functions of the program.
///
/// # Errors
/// [`warpheap::Error::Jit`] with the log of the driver's compiler.
pub fn load(device: &Device, kernels: &[&'static str]) -> warpheap::Result<Module> {
    match device.backend() {
        Backend::Cpu => device.native_kernels(kernels),
        _ => device.load_kernels(PTX, kernels),
    }
}

/// A number of threads for which a program takes seconds at most.
pub fn threads(device: &Device) -> u32 {
    if device.backend() == Backend::Cpu { 1 << 12 } else { 1 << 16 }
}

/// A heap for so many threads.
///
/// # Errors
/// [`warpheap::Error::OutOfMemory`] if the device has too little memory.
pub fn heap(device: &Device, threads: u32) -> warpheap::Result<Heap> {
    Heap::builder(u64::from(threads) * HEAP_BYTES).build(device)
}

/// Runs a kernel with one thread per item, `count` threads in all, and waits for it.
///
/// # Errors
/// Those of the launch and of the kernel.
///
/// # Safety
/// The requirements of the kernel, until this returns.
pub unsafe fn run_kernel<K: Kernel>(
    module: &Module,
    stream: &Stream,
    kernel: K,
    count: usize,
    args: K::Args,
) -> warpheap::Result<()> {
    // SAFETY: the caller meets the requirements of the kernel until it has ended.
    unsafe { stream.launch(module, kernel, &grid(count), args) }?;
    stream.synchronize()
}

/// A grid with a thread for each of `count` items, and some more in its last block.
pub fn grid(count: usize) -> LaunchConfig {
    LaunchConfig::linear(count.max(1) as u32, BLOCK)
}

/// Checks that kernels used the heap correctly: no allocation failed, no misuse was recorded,
/// nothing is left in it, and its metadata is intact.
///
/// # Errors
/// The first of these that does not hold.
pub fn check_empty(heap: &Heap) -> Result {
    let (faults, stats) = (heap.faults()?, heap.stats()?);
    if stats.failed_allocations > 0 {
        let (failed, size) = (stats.failed_allocations, Bytes(heap.capacity()));
        return Err(format!("{failed} allocations failed in a heap of {size}: make it larger").into());
    }
    if faults.count > 0 {
        return Err(format!("{} faults, the first: {:?}", faults.count, faults.first.first()).into());
    }
    if stats.live_blocks > 0 {
        return Err(format!("{} blocks were not freed", stats.live_blocks).into());
    }
    if let Some(violation) = heap.check()?.first() {
        return Err(format!("the heap's metadata is not intact: {violation:?}").into());
    }
    println!("- the heap is empty again; no allocation failed");
    Ok(())
}

/// Checks that the device computed the same as the host.
///
/// # Errors
/// The first difference.
pub fn check_same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) -> Result {
    if found.len() != expected.len() {
        return Err(format!("{} {what} instead of {}", found.len(), expected.len()).into());
    }
    let pairs = found.iter().zip(expected).enumerate();
    if let Some((i, (found, expected))) = pairs.into_iter().find(|(_, (found, expected))| found != expected) {
        return Err(format!("{what}: number {i} is {found:?} instead of {expected:?}").into());
    }
    println!("- {} {what} are as the host computes them", found.len());
    Ok(())
}

/// A pseudo-random number, equal on every machine.
pub fn scrambled(i: u64) -> u64 {
    absorb(i, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::Layout;

    #[test]
    fn a_wrong_result_is_an_error() {
        assert!(check_same("sums", &[1, 2], &[1, 2]).is_ok());
        let error = check_same("sums", &[1, 2], &[1, 3]).unwrap_err();
        assert_eq!(error.to_string(), "sums: number 1 is 2 instead of 3");
        let error = check_same("sums", &[1], &[1, 3]).unwrap_err();
        assert_eq!(error.to_string(), "1 sums instead of 2");
    }

    #[test]
    fn a_leak_and_a_failed_allocation_are_errors() {
        let heap = heap(&Device::cpu(), 64).unwrap();
        check_empty(&heap).unwrap();
        let block = heap.allocate(Layout::new::<u64>()).unwrap().unwrap();
        assert_eq!(check_empty(&heap).unwrap_err().to_string(), "1 blocks were not freed");
        // SAFETY: nothing uses the block.
        unsafe { heap.deallocate(block) }.unwrap();
        let large = Layout::from_size_align(2 * heap.capacity() as usize, 16).unwrap();
        assert!(heap.allocate(large).unwrap().is_none());
        assert!(check_empty(&heap).unwrap_err().to_string().starts_with("1 allocations failed"));
    }

    #[test]
    fn there_are_kernels_or_a_reason() {
        let is_required = std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_some_and(|value| value == "1");
        assert_eq!(PTX.is_empty(), !PTX_MISSING.is_empty());
        assert!(!is_required || PTX.contains(".visible .entry table_count("), "{PTX_MISSING}");
    }
}
