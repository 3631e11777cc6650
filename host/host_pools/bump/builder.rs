//! Builder of a bump pool.

use super::pool::{BumpPool, Overflow};
use crate::driver::Device;
use crate::error::{Bytes, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{describe, invalid_setting, named};
use crate::host_pools::sync_driver::SyncDriverAllocator;
use std::alloc::Layout;

/// Builder for a [`BumpPool`].
#[derive(Clone, Debug)]
#[must_use = "call build or build_over"]
pub struct BumpPoolBuilder {
    name: Option<String>,
    region: Layout,
    policy: Overflow,
}

impl BumpPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

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
        let kind = named("bump pool", self.name.as_deref());
        let name = format!("{kind} of {}", Bytes(self.region.size() as u64));
        BumpPool::new(upstream, name, self.region, self.policy)
    }
}

impl BumpPool {
    /// Returns the builder of a pool of `region.size()` bytes that start at a multiple of
    /// `region.align()`.
    pub fn builder(region: Layout) -> BumpPoolBuilder {
        BumpPoolBuilder { name: None, region, policy: Overflow::default() }
    }
}
