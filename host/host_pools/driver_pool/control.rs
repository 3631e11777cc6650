//! Queries and settings of a driver pool.

use super::pool::DriverPool;
use crate::driver::PoolAttribute;
use crate::error::Result;
use crate::lock::lock;
use crate::usage::Usage;
use serde::Serialize;

/// When memory that was freed on one stream may be reused on another, before any synchronisation.
/// All are allowed by default, as in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReusePolicies {
    /// Reuse if the other stream has waited for an event that was recorded after the free. The
    /// CPU's pools do not check this.
    pub follow_event_dependencies: bool,
    /// Reuse if the work before the free is done. The choice of memory then depends on timing.
    pub allow_opportunistic: bool,
    /// Reuse if there is no other memory: the other stream is made to wait for the free.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicies {
    fn default() -> ReusePolicies {
        ReusePolicies::all(true)
    }
}

impl ReusePolicies {
    fn all(allowed: bool) -> ReusePolicies {
        ReusePolicies {
            follow_event_dependencies: allowed,
            allow_opportunistic: allowed,
            allow_internal_dependencies: allowed,
        }
    }

    /// Memory is reused only on the stream that it was freed on, until a synchronisation. The same
    /// calls always get the same addresses, and no stream waits for another.
    pub fn none() -> ReusePolicies {
        ReusePolicies::all(false)
    }
}

/// Statistics of a driver pool, in bytes. Those of the device's own pool include use by other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DriverPoolStats {
    /// Bytes that the pool reserves and bytes that are allocated from it, including rounding by the
    /// driver.
    pub usage: Usage,
    /// High-water mark of reserved bytes since [`DriverPool::reset_high_water`].
    pub peak_reserved_bytes: u64,
    /// High-water mark of allocated bytes since [`DriverPool::reset_high_water`].
    pub peak_used_bytes: u64,
    /// Bytes that the pool keeps when the device is synchronised.
    pub release_threshold: u64,
    /// Live blocks that were allocated through this [`DriverPool`].
    pub live_blocks: u64,
    /// Bytes of these blocks, including alignment padding.
    pub live_bytes: u64,
}

impl DriverPool {
    pub(super) fn reserved_bytes(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReservedCurrent)
    }

    /// Resets both high-water marks to the current values.
    ///
    /// # Errors
    /// An error of the driver; one of the marks may have been reset then.
    pub fn reset_high_water(&self) -> Result<()> {
        self.pool.set(PoolAttribute::ReservedHigh, 0)?;
        self.pool.set(PoolAttribute::UsedHigh, 0)
    }

    /// All statistics, queried one after the other.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn stats(&self) -> Result<DriverPoolStats> {
        let (live_blocks, live_bytes) = {
            let live = lock(&self.live);
            (live.len() as u64, live.bytes())
        };
        Ok(DriverPoolStats {
            usage: Usage {
                used_bytes: self.pool.get(PoolAttribute::UsedCurrent)?,
                reserved_bytes: self.reserved_bytes()?,
                largest_free_bytes: None,
            },
            peak_reserved_bytes: self.pool.get(PoolAttribute::ReservedHigh)?,
            peak_used_bytes: self.pool.get(PoolAttribute::UsedHigh)?,
            release_threshold: self.release_threshold()?,
            live_blocks,
            live_bytes,
        })
    }

    /// Releases free memory to the device, until the pool holds `bytes` or only memory in use.
    /// Pending frees count as in use: synchronise their streams first.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn trim_to(&self, bytes: u64) -> Result<()> {
        self.pool.trim_to(bytes)
    }

    /// Release threshold: bytes that the pool keeps, used or free, when the device is synchronised.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn release_threshold(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReleaseThreshold)
    }

    /// Sets the release threshold; `u64::MAX` keeps all memory. On the device's own pool it applies
    /// to all users of that pool.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.pool.set(PoolAttribute::ReleaseThreshold, bytes)
    }

    /// Policies for reusing memory that was freed on another stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn reuse(&self) -> Result<ReusePolicies> {
        let is_on = |which| self.pool.get(which).map(|value| value != 0);
        Ok(ReusePolicies {
            follow_event_dependencies: is_on(PoolAttribute::FollowEvents)?,
            allow_opportunistic: is_on(PoolAttribute::Opportunistic)?,
            allow_internal_dependencies: is_on(PoolAttribute::InternalDependencies)?,
        })
    }

    /// Sets the reuse policies. On the device's own pool they apply to all users of that pool.
    ///
    /// # Errors
    /// An error of the driver; some of the policies may have been set then.
    pub fn set_reuse(&self, policies: ReusePolicies) -> Result<()> {
        self.pool.set(PoolAttribute::FollowEvents, policies.follow_event_dependencies.into())?;
        self.pool.set(PoolAttribute::Opportunistic, policies.allow_opportunistic.into())?;
        self.pool.set(PoolAttribute::InternalDependencies, policies.allow_internal_dependencies.into())
    }
}
