//! The allocators as device functions with the C ABI, compiled to relocatable PTX.
//!
//! The PTX defines the functions of [`functions`] and no kernel. `nvcc -dc`, nvJitLink and
//! `cuLinkAddData` link it with kernels of any language. The functions exist for the CPU, too, for
//! tests.

pub mod functions;
pub mod inline;

use warpheap::KernelImage;

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
