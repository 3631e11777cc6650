//! What can be asked of the driver's pool, and told.

use super::DriverPool;
use crate::alloc::{Usage, lock};
use crate::driver::PoolAttribute;
use crate::error::Result;
use serde::Serialize;

/// When memory that was freed on one stream serves another, before anybody has waited for it. All are allowed at first, as the driver
/// has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReusePolicies {
    /// If the other stream waits for an event behind the free. The CPU's pools do not look for that.
    pub follow_event_dependencies: bool,
    /// If the work before the free is done: so it depends on the moment which memory an allocation gets.
    pub allow_opportunistic: bool,
    /// If there is no more memory: the other stream is made to wait for the free.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicies {
    fn default() -> ReusePolicies {
        ReusePolicies {
            follow_event_dependencies: true,
            allow_opportunistic: true,
            allow_internal_dependencies: true,
        }
    }
}

impl ReusePolicies {
    /// Memory serves the stream alone that it was freed on, until someone waits for the work: always the same addresses for the same
    /// calls, and no stream waits for another.
    pub fn none() -> ReusePolicies {
        ReusePolicies {
            follow_event_dependencies: false,
            allow_opportunistic: false,
            allow_internal_dependencies: false,
        }
    }
}

/// The driver's figures of a pool, in bytes. Of the device's own pool they include what others use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DriverPoolStats {
    /// What the pool has of the device, and what is allocated from it, with what the driver rounds up.
    pub usage: Usage,
    /// The most that it had since [`DriverPool::reset_high_water`].
    pub peak_reserved_bytes: u64,
    /// The most that was allocated since [`DriverPool::reset_high_water`].
    pub peak_used_bytes: u64,
    /// What stays with the pool when someone waits for the device.
    pub release_threshold: u64,
    /// Blocks that were allocated through this [`DriverPool`] and not given back.
    pub live_blocks: u64,
    /// Their bytes, with what alignments take.
    pub live_bytes: u64,
}

impl DriverPool {
    pub(super) fn reserved_bytes(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReservedCurrent)
    }

    /// Lets both highest amounts begin anew, at what there is.
    ///
    /// # Errors
    /// What the driver answers; one of them may have been reset then.
    pub fn reset_high_water(&self) -> Result<()> {
        self.pool.set(PoolAttribute::ReservedHigh, 0)?;
        self.pool.set(PoolAttribute::UsedHigh, 0)
    }

    /// All of these figures, asked for one after the other.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stats(&self) -> Result<DriverPoolStats> {
        let (live_blocks, live_bytes) = {
            let live = lock(&self.live);
            (live.blocks() as u64, live.taken())
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

    /// Gives what nothing uses back to the device, until the pool has `bytes` left, or what is in use. Frees that are pending are in
    /// use: wait for their streams first.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn trim_to(&self, bytes: u64) -> Result<()> {
        self.pool.trim_to(bytes)
    }

    /// Bytes that stay with the pool, used or not, when someone waits for the device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn release_threshold(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReleaseThreshold)
    }

    /// Sets that; `u64::MAX` keeps all. Of the device's own pool it holds for everyone.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.pool.set(PoolAttribute::ReleaseThreshold, bytes)
    }

    /// When memory that was freed on one stream serves another.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn reuse(&self) -> Result<ReusePolicies> {
        let is_on = |which| self.pool.get(which).map(|value| value != 0);
        Ok(ReusePolicies {
            follow_event_dependencies: is_on(PoolAttribute::FollowEvents)?,
            allow_opportunistic: is_on(PoolAttribute::Opportunistic)?,
            allow_internal_dependencies: is_on(PoolAttribute::InternalDependencies)?,
        })
    }

    /// Sets that. Of the device's own pool it holds for everyone.
    ///
    /// # Errors
    /// What the driver answers; some of it may have been set then.
    pub fn set_reuse(&self, policies: ReusePolicies) -> Result<()> {
        self.pool.set(PoolAttribute::FollowEvents, policies.follow_event_dependencies.into())?;
        self.pool.set(PoolAttribute::Opportunistic, policies.allow_opportunistic.into())?;
        self.pool.set(PoolAttribute::InternalDependencies, policies.allow_internal_dependencies.into())
    }
}
