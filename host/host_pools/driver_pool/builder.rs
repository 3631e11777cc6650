//! Settings of a driver pool.

use super::control::ReusePolicies;
use super::pool::{DriverPool, KIND};
use crate::driver::{Device, PoolOrigin};
use crate::error::{Bytes, Result};
use crate::host_pools::request::{invalid_setting, named};

/// Builder for a [`DriverPool`], created by [`DriverPool::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "call build"]
pub struct DriverPoolBuilder {
    name: Option<String>,
    release_threshold: Option<u64>,
    max_size: Option<u64>,
    reuse: ReusePolicies,
}

impl DriverPool {
    /// Returns the builder of a new pool. By default the pool keeps its memory until it is trimmed,
    /// and is limited only by the device memory.
    pub fn builder() -> DriverPoolBuilder {
        DriverPoolBuilder::default()
    }
}

impl DriverPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> DriverPoolBuilder {
        self.name = Some(name.into());
        self
    }

    /// Release threshold: bytes that the pool keeps, used or free, when the device is synchronised.
    /// Default: keep all. With 0, the driver's own default, all free memory is released each time.
    pub fn release_threshold(mut self, bytes: u64) -> DriverPoolBuilder {
        self.release_threshold = Some(bytes);
        self
    }

    /// Limit of the memory that the pool reserves, in bytes. The driver may round it up. Requires
    /// CUDA 12.2.
    pub fn max_size(mut self, bytes: u64) -> DriverPoolBuilder {
        self.max_size = Some(bytes);
        self
    }

    /// Policies for reusing memory that was freed on another stream.
    pub fn reuse(mut self, policies: ReusePolicies) -> DriverPoolBuilder {
        self.reuse = policies;
        self
    }

    /// Creates the pool on `device`. It has no memory yet.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a maximum size of 0 or above the
    /// device memory, and for a threshold above the maximum size;
    /// [`Error::NotSupported`](crate::Error::NotSupported) for a driver or a GPU without such
    /// pools; an error of the driver.
    pub fn build(&self, device: &Device) -> Result<DriverPool> {
        self.check(device)?;
        let backend = device.driver().pool(PoolOrigin::New { max: self.max_size })?;
        let pool = DriverPool::new(device, named(KIND, self.name.as_deref()), backend, self.max_size)?;
        pool.set_release_threshold(self.release_threshold.unwrap_or(u64::MAX))?;
        pool.set_reuse(self.reuse)?;
        Ok(pool)
    }

    fn check(&self, device: &Device) -> Result<()> {
        let Some(max) = self.max_size else { return Ok(()) };
        if max == 0 {
            let why = "it must be at least 1 B; leave it unset for no limit";
            return Err(invalid_setting("max_size", Bytes(max), why));
        }
        let total = device.info()?.memory_total;
        if max > total {
            return Err(invalid_setting("max_size", Bytes(max), format!("{device} has {}", Bytes(total))));
        }
        match self.release_threshold {
            Some(threshold) if threshold > max => {
                let why = format!("the pool never exceeds its max_size, {}", Bytes(max));
                Err(invalid_setting("release_threshold", Bytes(threshold), why))
            }
            _ => Ok(()),
        }
    }
}
