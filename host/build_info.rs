//! Build information of this library: the PTX of its kernels, and the compiler that produced it.

use crate::driver::KernelImage;

/// The compiler of the kernels: `rustc 1.96.0 (...)`, or `none` without kernels.
pub const DEVICE_COMPILER: &str = env!("WARPHEAP_DEVICE_RUSTC");

/// Oldest first. From sm_80 on, one instruction sums over a warp.
const IMAGES: [KernelImage; 2] = [
    KernelImage { arch: "sm_70", capability: (7, 0), ptx: include_str!(env!("WARPHEAP_PTX_SM_70")) },
    KernelImage { arch: "sm_80", capability: (8, 0), ptx: include_str!(env!("WARPHEAP_PTX_SM_80")) },
];
const PTX_MISSING: &str = include_str!(env!("WARPHEAP_PTX_MISSING"));

/// The kernels that the library itself launches, oldest architecture first. If this build has none,
/// the reason and what to install.
pub fn images() -> std::result::Result<&'static [KernelImage], &'static str> {
    if PTX_MISSING.is_empty() { Ok(&IMAGES) } else { Err(PTX_MISSING) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_there_are_kernels_or_a_reason() {
        match images() {
            Ok(images) => {
                assert!(DEVICE_COMPILER.starts_with("rustc "));
                for image in images {
                    assert!(image.ptx.contains(".visible .entry heap_alloc_many("));
                    assert!(image.ptx.contains(&format!(".target {}", image.arch)));
                }
            }
            Err(why) => {
                assert!(!why.is_empty() && DEVICE_COMPILER == "none");
                assert!(std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_none_or(|it| it != "1"), "{why}");
            }
        }
    }
}
