//! Kernels of plain Rust: sorts, trait objects, function pointers and recursion. None of this is
//! part of the library, but compilers have made wrong code of it. `docs/miscompiled.md` has the
//! causes.

pub mod kernel_tests;
pub mod kernels;

/// The kernels of the unit tests use their heap on the CPU, too.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: warpheap::simt::KernelAllocator = warpheap::simt::KernelAllocator::system();

/// The kernels, for every GPU since Volta. Empty if no compiler for kernels was found.
pub const PTX: &str = include_str!(env!("WARPHEAP_PTX_SM_70"));
/// The same kernels as cubins. Empty if NVIDIA's assembler was not found.
pub const CUBINS: [&[u8]; 2] =
    [include_bytes!(env!("WARPHEAP_CUBIN_SM_80")), include_bytes!(env!("WARPHEAP_CUBIN_SM_90"))];
/// Why there are no kernels.
pub const PTX_MISSING: &str = include_str!(env!("WARPHEAP_PTX_MISSING_REASON_FILE"));
