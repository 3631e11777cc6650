//! The device library that a GPU gets.

use warpheap::KernelImage;

/// The newest library that a GPU of compute capability `major.minor` runs; the oldest library,
/// which all supported GPUs run, if the GPU is `None`.
///
/// # Errors
/// A text: this build has no library, or the GPU is too old.
pub fn device_library(capability: Option<(i64, i64)>) -> Result<&'static KernelImage, String> {
    newest_for(libraries()?, capability)
}

/// The library for each architecture, oldest first.
///
/// # Errors
/// A text: this build has no library.
pub fn libraries() -> Result<&'static [KernelImage], String> {
    let missing = |why: &str| format!("this build of warpheap has no device library: {}", why.trim());
    warpheap_c_device::libraries().map_err(missing)
}

fn newest_for(images: &[KernelImage], capability: Option<(i64, i64)>) -> Result<&KernelImage, String> {
    let needs = |image: &KernelImage| (i64::from(image.capability.0), i64::from(image.capability.1));
    let oldest = images.first().ok_or("the device library has no image")?;
    let Some((major, minor)) = capability else { return Ok(oldest) };
    images.iter().rev().find(|image| (major, minor) >= needs(image)).ok_or_else(|| {
        let (least, least_minor) = oldest.capability;
        format!(
            "the device library needs compute capability {least}.{least_minor} or newer, not {major}.{minor}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_the_newest_that_it_runs() {
        let old = KernelImage { arch: "sm_70", capability: (7, 0), ptx: "" };
        let new = KernelImage { arch: "sm_90", capability: (9, 0), ptx: "" };
        for (capability, arch) in
            [(None, "sm_70"), (Some((7, 5)), "sm_70"), (Some((9, 0)), "sm_90"), (Some((12, 1)), "sm_90")]
        {
            assert_eq!(newest_for(&[old, new], capability).unwrap().arch, arch, "{capability:?}");
        }
        for capability in [(6, 1), (0, 0), (-1, -1)] {
            let why = newest_for(&[old, new], Some(capability)).unwrap_err();
            assert!(why.contains("needs compute capability 7.0 or newer, not "), "{why}");
        }
        assert!(newest_for(&[], None).is_err());
    }
}
