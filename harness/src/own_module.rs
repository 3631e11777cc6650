//! Modules with the kernels of this library.

use crate::build_info;
use warpheap::driver::{Backend, Device, KernelImage, Module};
use warpheap::error::{Error, Result};

/// Kernels of this library, loaded on a device.
///
/// Only [`load`](Self::load) and [`load_for`](Self::load_for) create one, from the
/// [images](build_info::images) in this library, or on the CPU from its functions. Safe functions
/// may therefore launch its kernels by name.
#[derive(Clone, Debug)]
pub struct OwnModule {
    module: Module,
    image: Option<&'static KernelImage>,
}

impl OwnModule {
    /// Loads `kernels` for the compute capability of `device`. On the CPU, uses this program's
    /// functions.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if this library was built without GPU kernels. Otherwise as for
    /// [`Device::load_kernels`].
    pub fn load(device: &Device, kernels: &[&'static str]) -> Result<OwnModule> {
        OwnModule::load_image(device, None, kernels)
    }

    /// Like [`load`](Self::load), with the newest image that a GPU of this compute capability can
    /// run: `(7, 0)` for the kernels of sm_70. The CPU has no images.
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub fn load_for(device: &Device, capability: (u32, u32), kernels: &[&'static str]) -> Result<OwnModule> {
        OwnModule::load_image(device, Some(capability), kernels)
    }

    /// Loads kernels of the suites' module, [`suite_kernels`](crate::suite_kernels), for the same
    /// device and architecture.
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub(crate) fn load_suite(&self, kernels: &[&'static str]) -> Result<OwnModule> {
        let device = self.module.device();
        let Some(image) = self.image else {
            return Ok(OwnModule { module: device.native_kernels(kernels)?, image: None });
        };
        let images = build_info::suite::images().map_err(no_kernels)?;
        let image = images.iter().find(|one| one.arch == image.arch).unwrap_or(&images[0]);
        Ok(OwnModule { module: device.load_kernels(image.ptx, kernels)?, image: Some(image) })
    }

    fn load_image(
        device: &Device,
        capability: Option<(u32, u32)>,
        kernels: &[&'static str],
    ) -> Result<OwnModule> {
        if device.backend() == Backend::Cpu {
            return Ok(OwnModule { module: device.native_kernels(kernels)?, image: None });
        }
        let capability = match capability {
            Some(capability) => Some(capability),
            None => device.info()?.compute_capability,
        };
        let image = build_info::image_for(capability).map_err(no_kernels)?;
        Ok(OwnModule { module: device.load_kernels(image.ptx, kernels)?, image: Some(image) })
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The image that the module was loaded from. `None` on the CPU.
    pub fn image(&self) -> Option<&'static KernelImage> {
        self.image
    }
}

fn no_kernels(why: &str) -> Error {
    Error::NoDevice {
        requested: "a GPU".into(),
        found: "this program was built without kernels for one".into(),
        advice: why.into(),
    }
}
