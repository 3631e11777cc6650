//! How a pool of the driver's shall be.

use super::{DriverPool, ReusePolicies};
use crate::driver::{Device, PoolAttribute};
use crate::error::{Bytes, InvalidConfig, Result};

/// How a [`DriverPool`] shall be. [`DriverPool::builder`] makes one.
#[derive(Clone, Debug, Default)]
#[must_use = "a pool is made by build"]
pub struct DriverPoolBuilder {
    release_threshold: Option<u64>,
    max_size: Option<u64>,
    reuse: ReusePolicies,
}

impl DriverPoolBuilder {
    /// Bytes that stay with the pool, used or not, when someone waits for the device. Without it all stays; with 0, the driver's
    /// own default, what is free goes back each time.
    pub fn release_threshold(mut self, bytes: u64) -> DriverPoolBuilder {
        self.release_threshold = Some(bytes);
        self
    }

    /// The most bytes that the pool may have of the device, which the driver may round up. Needs CUDA 12.2.
    pub fn max_size(mut self, bytes: u64) -> DriverPoolBuilder {
        self.max_size = Some(bytes);
        self
    }

    /// When memory that was freed on one stream serves another.
    pub fn reuse(mut self, policies: ReusePolicies) -> DriverPoolBuilder {
        self.reuse = policies;
        self
    }

    /// Makes the pool of `device`, which has no memory yet.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a largest size of 0 or of more than the device has, and for a threshold above it;
    /// [`Error::NotSupported`](crate::Error::NotSupported) for a driver or a GPU without such pools; what the driver answers.
    pub fn build(&self, device: &Device) -> Result<DriverPool> {
        self.check(device)?;
        let pool = DriverPool::over(device, device.driver().new_pool(self.max_size)?, self.max_size)?;
        self.apply(pool)
    }

    /// The same over a given pool of the driver's.
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
