//! The interface of an allocator under stress.

use super::finding::{Finding, RoundState};
use super::kernels::Kernels;
use super::plan::{Plan, Shape};
use crate::Result;
use warpheap::device_pools::{Faults, HeapMap};
use warpheap::driver::{Device, Module};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::kernel::Arg;

/// The result of the comparison of the allocator's metadata with the live blocks.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Account {
    /// The differences.
    pub findings: Vec<Finding>,
    /// Blocks that are neither free nor live. For an arena, in allocations of the smallest size.
    pub lost_blocks: u64,
    /// Bytes that the allocator wasted by design.
    pub wasted_bytes: u64,
}

/// An allocator under stress: a pool, its kernels, and access to its statistics and metadata.
///
/// The allocator may be incorrect: no check relies on the promises of its `DeviceAlloc`, which are
/// what is tested. A thread writes to a block only after it has checked that the block is inside
/// the pool, and has claimed its memory.
///
/// # Safety
/// [`stress_allocator`](super::stress_allocator) is a safe function that launches kernels with
/// values from the implementation. The implementation promises:
///
/// - S1. From [`new`](Self::new) until `self` is dropped, the `plan.pool_bytes()` bytes from
///   [`start`](Self::start) are device memory that only blocks of this pool use, and everything
///   that [`handle`](Self::handle) refers to is live.
/// - S2. Each of [`KERNELS`](Self::KERNELS) is declared by
///   [`stress_kernels!`](warpheap_device::stress_kernels!) under the key that [`Kernels`] names, or
///   requires no more of its callers. [`Kernels::overlap`] and [`Kernels::take_all`] have no key.
///   They may rely on S1, on their arguments, and on no other kernel running. After `overlap`, only
///   the checks rely on memory that the pool allocates.
/// - S3. Any threads of any number of kernels may concurrently call `alloc` of the handle, and
///   `free` once for each return of `alloc`, even if `alloc` returned an address twice. They write
///   only to the pool's memory and its metadata.
/// - S4. Host methods that launch kernels or copies wait for them before they return.
/// - S5. In the module that [`module`](Self::module) returns, the kernels with the given names are
///   those that this program declares: compiled from the same sources, on a GPU into unmodified
///   PTX.
pub unsafe trait Subject: Sized {
    /// The handle of the pool in kernels.
    type Handle: DeviceAlloc;
    /// The kernels that a run launches.
    const KERNELS: Kernels<Self::Handle>;
    /// The allocator's name in reports.
    const NAME: &'static str;
    /// Whether the new pool is exhausted before the first round, and
    /// [`is_emptied`](Self::is_emptied) measures how many blocks it allocates.
    const MEASURED: bool = false;

    /// Loads the `kernels` with these names on `device`: those of [`KERNELS`](Self::KERNELS), and
    /// those that `stress_kernels!(checks)` declares. Default: this program's functions, which run
    /// only on the CPU. For a GPU, return `device.load_kernels(ptx, kernels)` with the PTX of the
    /// crate that declares the kernels.
    ///
    /// # Errors
    /// An error of the device. By default, [`NotSupported`](warpheap::Error::NotSupported) on a
    /// GPU.
    fn module(device: &Device, kernels: &[&'static str]) -> Result<Module> {
        Ok(device.native_kernels(kernels)?)
    }

    /// Granule, alignments and size of a pool for allocations of `min_bytes` to `max_bytes` with a
    /// mean of `mean_bytes`. Default: blocks of at least `max_bytes` each.
    fn shape(min_bytes: u32, max_bytes: u32, mean_bytes: u32) -> Shape {
        let _ = (min_bytes, mean_bytes);
        Shape::of_blocks(max_bytes)
    }

    /// Creates a pool of `plan.pool_bytes()` without live blocks.
    ///
    /// # Errors
    /// An error of the device.
    fn new(device: &Device, plan: &Plan) -> Result<Self>;

    /// The handle of the pool as a kernel argument.
    fn handle(&self) -> Arg<Self::Handle>;

    /// The address of the pool's memory, a multiple of `plan.max_align()`.
    fn start(&self) -> u64;

    /// Frees all memory. No kernel runs.
    ///
    /// # Errors
    /// An error of the device.
    fn reset(&mut self) -> Result<()>;

    /// The misuse that the allocator has recorded since the last reset. Default: `None`, it does
    /// not record misuse.
    ///
    /// # Errors
    /// An error of the device.
    fn faults(&self) -> Result<Option<Faults>> {
        Ok(None)
    }

    /// The allocations since the last reset that failed without a proof that there was no memory.
    /// Default: `None`, the allocator does not count them.
    ///
    /// # Errors
    /// An error of the device.
    fn contended_failures(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Whether the allocator's own count of live blocks equals `live`. If they differ, the harness
    /// calls [`account`](Self::account) to find the difference. Default: `None`, it has no count.
    ///
    /// # Errors
    /// An error of the device.
    fn agrees(&self, live: u64) -> Result<Option<bool>> {
        let _ = live;
        Ok(None)
    }

    /// Whether the pool is exhausted after threads have allocated until allocation failed or they
    /// held `max` blocks. They hold `live` blocks.
    ///
    /// # Errors
    /// An error of the device.
    fn is_exhausted(&self, plan: &Plan, live: u64, max: u64) -> Result<bool>;

    /// The maximum number of allocations of the largest size in an empty pool.
    fn most_blocks(&self, plan: &Plan) -> u64;

    /// Compares the allocator's metadata with all live blocks. Default: `None`, not compared.
    ///
    /// # Errors
    /// An error of the device.
    fn account(&self, plan: &Plan, state: &RoundState<'_>) -> Result<Option<Account>> {
        let _ = (plan, state);
        Ok(None)
    }

    /// Whether the pool is exhausted after threads have allocated blocks of the largest size until
    /// allocation failed. They hold `granted` blocks. Default:
    /// [`is_exhausted`](Self::is_exhausted).
    ///
    /// # Errors
    /// An error of the device.
    fn is_emptied(&mut self, plan: &Plan, granted: u64) -> Result<bool> {
        self.is_exhausted(plan, granted, u64::MAX)
    }

    /// The map of the pool, with this label. Default: `None`, it is no heap of this library.
    ///
    /// # Errors
    /// An error of the device.
    fn map(&self, label: String) -> Result<Option<HeapMap>> {
        let _ = label;
        Ok(None)
    }

    /// The argument of [`Kernels::overlap`]. `victim` is the address of a live block, which is the
    /// default.
    ///
    /// # Errors
    /// An error of the device.
    fn overlap_argument(&self, victim: u64) -> Result<u64> {
        Ok(victim)
    }
}
