//! Builder of a bump pool.

use super::overflow::Overflow;
use super::pool::BumpPool;
use crate::driver::Device;
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{describe, invalid_setting};
use crate::host_pools::sync_driver::SyncDriverAllocator;
use std::alloc::Layout;

/// Builder for a [`BumpPool`].
#[derive(Clone, Debug)]
#[must_use = "call build or build_over"]
pub struct BumpPoolBuilder {
    region: Layout,
    policy: Overflow,
}

impl BumpPoolBuilder {
    /// Policy for a request that does not fit. Default: [`Overflow::Error`].
    pub fn overflow(mut self, policy: Overflow) -> Self {
        self.policy = policy;
        self
    }

    /// Builds a pool over the driver memory of `device`.
    ///
    /// # Errors
    /// The errors of [`build_over`](Self::build_over).
    pub fn build(&self, device: &Device) -> Result<BumpPool> {
        self.build_over(SyncDriverAllocator::new(device))
    }

    /// Builds a pool in one allocation of `upstream`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for zero bytes; errors of the
    /// upstream.
    pub fn build_over<A: DeviceAllocator>(&self, upstream: A) -> Result<BumpPool<A>> {
        if self.region.size() == 0 {
            return Err(invalid_setting("region", describe(self.region), "the size must be at least 1 B"));
        }
        BumpPool::new(upstream, self.region, self.policy)
    }
}

impl BumpPool {
    /// Returns the builder of a pool of `region.size()` bytes that start at a multiple of
    /// `region.align()`.
    pub fn builder(region: Layout) -> BumpPoolBuilder {
        BumpPoolBuilder { region, policy: Overflow::default() }
    }
}
