//! Floors: kernels that do the same work except for the allocation or the free.

use super::figures::BLOCK;
use super::timing::{Timer, Timing};
use crate::Result;
use crate::kernels::bench::{Counter, Order, Sizes, bench_alloc_floor, bench_churn_floor, bench_free_floor};
use warpheap::driver::{DeviceBuffer, LaunchConfig};

impl Timer {
    /// Each thread stores an address to its entry of `out`.
    pub fn alloc_floor(&self, out: &DeviceBuffer<u64>, sizes: Sizes) -> Result<Timing> {
        let args = (out.address(), out.slice(), sizes);
        // SAFETY: `out` is live, and only this stream uses it.
        let launch = || unsafe { self.stream.launch(&self.module, bench_alloc_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }

    /// Each thread loads an address from an entry of `out`.
    pub fn free_floor(&self, out: &DeviceBuffer<u64>, order: Order, failures: Counter) -> Result<Timing> {
        let args = (out.slice(), order, failures);
        // SAFETY: `out` and the counter are live, and only this stream uses them.
        let launch = || unsafe { self.stream.launch(&self.module, bench_free_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }

    /// Each thread repeatedly stores to its entry of `out`.
    pub fn churn_floor(&self, out: &DeviceBuffer<u64>, turns: u32) -> Result<Timing> {
        let args = (out.slice(), turns);
        // SAFETY: `out` is live, and only this stream uses it.
        let launch = || unsafe { self.stream.launch(&self.module, bench_churn_floor, &grid_of(out), args) };
        self.time(|| Ok(()), launch)
    }
}

/// A grid with a thread for each entry.
pub(super) fn grid_of(out: &DeviceBuffer<u64>) -> LaunchConfig {
    LaunchConfig::linear(out.len() as u32, BLOCK)
}
