//! The kernels that do everything but allocate, or free.

use super::figures::BLOCK;
use super::timing::{Timer, Timing};
use crate::Result;
use crate::kernels::bench::{Counter, Order, Sizes, bench_alloc_floor, bench_churn_floor, bench_free_floor};
use warpheap::driver::{DeviceBuffer, LaunchConfig};

impl Timer {
    /// As many threads as `out` has entries store an address each.
    pub fn alloc_floor(&self, out: &DeviceBuffer<u64>, sizes: Sizes) -> Result<Timing> {
        let args = (out.address(), out.slice(), sizes);
        // SAFETY: `out` lives, and this stream alone uses it.
        let launch = || unsafe { self.stream.launch(&self.module, bench_alloc_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }

    /// As many threads as `out` has entries load an address each.
    pub fn free_floor(&self, out: &DeviceBuffer<u64>, order: Order, failures: Counter) -> Result<Timing> {
        let args = (out.slice(), order, failures);
        // SAFETY: `out` and the counter live, and this stream alone uses them.
        let launch = || unsafe { self.stream.launch(&self.module, bench_free_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }

    /// As many threads as `out` has entries store to their own again and again.
    pub fn churn_floor(&self, out: &DeviceBuffer<u64>, turns: u32) -> Result<Timing> {
        let args = (out.slice(), turns);
        // SAFETY: `out` lives, and this stream alone uses it.
        let launch = || unsafe { self.stream.launch(&self.module, bench_churn_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }
}

/// A thread for each entry.
pub(super) fn grid_of(out: &DeviceBuffer<u64>) -> LaunchConfig {
    LaunchConfig::linear(out.len() as u32, BLOCK)
}
