//! Build information: the kernels' PTX, the commit, the compilers.

use warpheap::KernelImage;

/// The commit, 12 digits, followed by `-dirty` if a tracked file differed; `unknown` outside git.
pub const COMMIT: &str = env!("WARPHEAP_COMMIT");

/// The compiler of this program: `rustc 1.95.0 (...)`.
pub const HOST_COMPILER: &str = env!("WARPHEAP_HOST_RUSTC");

/// The target of this program: `x86_64-unknown-linux-gnu`.
pub const TARGET: &str = env!("WARPHEAP_TARGET");

warpheap::embedded_kernels!("");

/// The kernels of the benchmark suites, [`suite_kernels`](crate::suite_kernels).
pub mod suite {
    warpheap::embedded_kernels!("suite_malloc_alloc(", "WARPHEAP_SUITE_");
}

/// The newest kernels that a GPU of this compute capability runs. Otherwise the reason why this
/// build has none, and what to install. For a GPU that is too old for all of them this returns the
/// oldest, which the driver rejects.
pub fn image_for(capability: Option<(u32, u32)>) -> std::result::Result<&'static KernelImage, &'static str> {
    Ok(KernelImage::newest_for(images()?, capability).unwrap_or(&IMAGES[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kernels_are_the_whole_text() {
        for image in images().unwrap_or_default() {
            let all: Vec<&'static str> = warpheap_build::entries(image.ptx).collect();
            assert!(image.ptx_of(&all).unwrap() == image.ptx, "the text for {} differs", image.arch);
        }
    }

    /// The host finds the variable, with the length it expects.
    #[test]
    fn the_kernels_have_a_global_heap() {
        use warpheap_device::global::{GlobalHeap, SYMBOL};
        let declared = format!(".visible .global .align 8 .b8 {SYMBOL}[{}]", size_of::<GlobalHeap>());
        for image in images().unwrap_or_default() {
            assert!(image.ptx.contains(&declared), "{} has no {declared}", image.arch);
        }
    }

    #[test]
    fn the_commit_is_one_or_unknown() {
        let digits = COMMIT.trim_end_matches("-dirty");
        let is_commit = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_commit || COMMIT == "unknown", "{COMMIT}");
    }

    #[test]
    fn the_host_is_named() {
        assert!(TARGET.contains(std::env::consts::ARCH) && HOST_COMPILER.starts_with("rustc "));
    }
}
