//! Settings of a driver pool.

use super::{DriverPool, ReusePolicies};
use crate::driver::{Device, PoolAttribute};
use crate::error::{Bytes, InvalidConfig, Result};

/// Builder for a [`DriverPool`], created by [`DriverPool::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "call build"]
pub struct DriverPoolBuilder {
    release_threshold: Option<u64>,
    max_size: Option<u64>,
    reuse: ReusePolicies,
}

impl DriverPoolBuilder {
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
        let pool = DriverPool::new(device, device.driver().new_pool(self.max_size)?, self.max_size)?;
        self.apply(pool)
    }

    /// Applies the settings to an existing driver pool.
    pub(super) fn apply(&self, pool: DriverPool) -> Result<DriverPool> {
        let threshold = self.release_threshold.unwrap_or(u64::MAX);
        pool.pool.set(PoolAttribute::ReleaseThreshold, threshold)?;
        pool.set_reuse(self.reuse)?;
        Ok(pool)
    }

    fn check(&self, device: &Device) -> Result<()> {
        let Some(most) = self.max_size else { return Ok(()) };
        let refuse = |setting, given, why| Err(InvalidConfig::Pool { setting, given, why }.into());
        let given = Bytes(most).to_string();
        if most == 0 {
            return refuse(
                "max_size",
                given,
                "a pool has at least 1 B; leave the setting out for no limit".into(),
            );
        }
        let total = device.info()?.memory_total;
        if most > total {
            return refuse("max_size", given, format!("{device} has {}", Bytes(total)));
        }
        match self.release_threshold {
            Some(threshold) if threshold > most => {
                let why = format!("the pool never has more than its max_size, {}", Bytes(most));
                refuse("release_threshold", Bytes(threshold).to_string(), why)
            }
            _ => Ok(()),
        }
    }
}
