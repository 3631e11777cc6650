//! Kernels compiled for several architectures, and the choice of an image for a GPU.

use super::ptx::extract_kernels;
use crate::error::Result;

/// The kernels of a program, compiled for one architecture. Newer GPUs run them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// The architecture, for instance `sm_80`.
    pub arch: &'static str,
    /// The minimum compute capability.
    pub capability: (u32, u32),
    /// The PTX.
    pub ptx: &'static str,
}

impl KernelImage {
    /// The PTX of only these kernels, as [`Device::load_kernels`](super::Device::load_kernels)
    /// compiles it.
    ///
    /// # Errors
    /// [`Error::InvalidModule`](crate::Error::InvalidModule).
    pub fn ptx_of(&self, kernels: &[&'static str]) -> Result<String> {
        extract_kernels(self.ptx, kernels)
    }

    /// The newest of `images` that a GPU of this compute capability can run. `images` are ordered
    /// from oldest to newest. If the GPU is too old for all of them, this is the oldest one, and
    /// the driver rejects it.
    pub fn newest_for(images: &[KernelImage], capability: Option<(u32, u32)>) -> Option<&KernelImage> {
        let fits = |image: &&KernelImage| capability.is_some_and(|capability| capability >= image.capability);
        images.iter().rev().find(fits).or(images.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_the_newest_that_it_runs() {
        let old = KernelImage { arch: "sm_70", capability: (7, 0), ptx: "" };
        let new = KernelImage { arch: "sm_80", capability: (8, 0), ptx: "" };
        let given = |capability| KernelImage::newest_for(&[old, new], capability).copied();
        for (capability, image) in
            [((6, 1), old), ((7, 0), old), ((7, 5), old), ((8, 0), new), ((12, 1), new)]
        {
            assert_eq!(given(Some(capability)), Some(image), "{capability:?}");
        }
        assert_eq!(given(None), Some(old));
        assert_eq!(KernelImage::newest_for(&[], Some((8, 0))), None);
    }
}
