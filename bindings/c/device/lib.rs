//! The allocators as device functions with the C ABI, compiled to relocatable PTX.
//!
//! The PTX defines the functions of [`functions`] and no kernel. `nvcc -dc`, nvJitLink and
//! `cuLinkAddData` link it with kernels of any language. The functions exist for the CPU, too, for
//! tests.

pub mod functions;
pub mod inline;

use warpheap::KernelImage;
use warpheap::device_pools::Heap;
use warpheap_device::heap::Heap as DeviceHeap;
use warpheap_device::kernel::KernelArg;

macro_rules! image {
    ($arch:literal, $capability:expr, $variable:literal) => {
        KernelImage { arch: $arch, capability: $capability, ptx: include_str!(env!($variable)) }
    };
}

/// Oldest first.
const IMAGES: [KernelImage; 3] = [
    image!("sm_70", (7, 0), "WARPHEAP_PTX_SM_70"),
    image!("sm_80", (8, 0), "WARPHEAP_PTX_SM_80"),
    image!("sm_90", (9, 0), "WARPHEAP_PTX_SM_90"),
];
const PTX_MISSING: &str = include_str!(env!("WARPHEAP_PTX_MISSING_REASON_FILE"));

/// The compiler of the library: `rustc 1.96.0 (...)`, or `none` without a library.
pub const DEVICE_COMPILER: &str = env!("WARPHEAP_DEVICE_RUSTC");

/// The library for each architecture, oldest first. If this build has none, the reason and what to
/// install.
pub fn libraries() -> Result<&'static [KernelImage], &'static str> {
    if PTX_MISSING.is_empty() { Ok(&IMAGES) } else { Err(PTX_MISSING) }
}

/// The words of 8 bytes in the handle of a heap.
pub const HANDLE_WORDS: usize = DeviceHeap::ADDRESSES + DeviceHeap::NUMBERS / 2;

/// The handle of a heap by value, as the inlined functions of `warpheap.cuh` read it: addresses,
/// the last of which is [`device_address`](Heap::device_address), and numbers of 4 bytes. `None` in
/// builds with the feature `debug`, which changes the handle.
pub fn handle_value(heap: &Heap) -> Option<[u64; HANDLE_WORDS]> {
    let handle = heap.handle().to_abi();
    if size_of_val(&handle) != HANDLE_WORDS * 8 {
        return None;
    }
    // SAFETY: both have the same size, and a handle consists of addresses and integers.
    Some(unsafe { std::mem::transmute_copy(&handle) })
}
