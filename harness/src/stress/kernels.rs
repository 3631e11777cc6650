//! The kernels that a stress run launches on an allocator.

use std::fmt;
use warpheap::driver::{LaunchConfig, Module, Stream};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::Round;
use warpheap_device::kernel::{Arg, DevicePtr, DeviceSlice, Kernel};

/// A kernel with the arguments `A`. Every [`Kernel`] implements it.
pub trait KernelWith<A> {
    /// The kernel's name in a module.
    fn name(&self) -> &'static str;

    /// Launches the kernel.
    ///
    /// # Errors
    /// See [`Stream::launch`].
    ///
    /// # Safety
    /// See [`Stream::launch`].
    unsafe fn launch(
        &self,
        stream: &Stream,
        module: &Module,
        grid: &LaunchConfig,
        args: A,
    ) -> warpheap::Result<()>;
}

impl<K: Kernel> KernelWith<K::Args> for K {
    fn name(&self) -> &'static str {
        K::NAME
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        module: &Module,
        grid: &LaunchConfig,
        args: K::Args,
    ) -> warpheap::Result<()> {
        // SAFETY: the caller keeps P1 to P6 of `Stream::launch`, as this function requires.
        unsafe { stream.launch(module, *self, grid, args) }
    }
}

/// A kernel with the arguments `A`, as [`Kernels`] stores it.
pub type KernelRef<A> = &'static dyn KernelWith<A>;

/// The arguments of a round's kernel: `stress` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type StressArgs<H> = (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, Round);

/// The arguments of the kernel that exhausts a pool: `exhaust` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type ExhaustArgs<H> = (Arg<H>, u32, u32, DeviceSlice<Record>, DevicePtr<u64>);

/// The arguments of the kernel that frees blocks: `free_all` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type FreeAllArgs<H> = (Arg<H>, DeviceSlice<Record>, u64);

/// The arguments of a kernel in which threads exchange blocks, with all records and the cells:
/// `exchange` of [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type ExchangeArgs<H> =
    (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, DeviceSlice<u64>, Round);

/// The arguments of the kernel that plants a double free: `free_twice` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type FreeTwiceArgs<H> = (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, u32);

/// The kernels of a [`Subject`](super::Subject) with the handle `H`.
pub struct Kernels<H: DeviceAlloc> {
    pub(super) stress: KernelRef<StressArgs<H>>,
    pub(super) exhaust: KernelRef<ExhaustArgs<H>>,
    pub(super) free_all: KernelRef<FreeAllArgs<H>>,
    pub(super) exchange: Option<KernelRef<ExchangeArgs<H>>>,
    pub(super) overlap: Option<KernelRef<(Arg<H>, u64)>>,
    pub(super) free_twice: Option<KernelRef<FreeTwiceArgs<H>>>,
    pub(super) take_all: Option<KernelRef<(Arg<H>, DevicePtr<u64>)>>,
}

impl<H: DeviceAlloc> Kernels<H> {
    /// The kernels that every run needs: `stress`, `exhaust` and `free_all` of
    /// [`stress_kernels!`](warpheap_device::stress_kernels!).
    pub const fn new(
        stress: KernelRef<StressArgs<H>>,
        exhaust: KernelRef<ExhaustArgs<H>>,
        free_all: KernelRef<FreeAllArgs<H>>,
    ) -> Self {
        Kernels { stress, exhaust, free_all, exchange: None, overlap: None, free_twice: None, take_all: None }
    }

    /// Adds `exchange` of [`stress_kernels!`](warpheap_device::stress_kernels!). Without it,
    /// workloads in which threads exchange blocks are an error.
    #[must_use]
    pub const fn exchange(self, kernel: KernelRef<ExchangeArgs<H>>) -> Self {
        Kernels { exchange: Some(kernel), ..self }
    }

    /// Adds the kernel that plants an overlap. One thread makes the allocator allocate live memory
    /// again; [`Subject::overlap_argument`](super::Subject::overlap_argument) is its second
    /// argument. Without it, planting an overlap is an error.
    #[must_use]
    pub const fn overlap(self, kernel: KernelRef<(Arg<H>, u64)>) -> Self {
        Kernels { overlap: Some(kernel), ..self }
    }

    /// Adds `free_twice` of [`stress_kernels!`](warpheap_device::stress_kernels!). Without it,
    /// planting a double free is an error.
    #[must_use]
    pub const fn free_twice(self, kernel: KernelRef<FreeTwiceArgs<H>>) -> Self {
        Kernels { free_twice: Some(kernel), ..self }
    }

    /// Adds the kernel that checks that all memory is free. One thread allocates the entire memory,
    /// frees it, and stores 1 if it succeeded, otherwise 0. Without it, only the count of
    /// [`Subject::agrees`](super::Subject::agrees) is checked.
    #[must_use]
    pub const fn take_all(self, kernel: KernelRef<(Arg<H>, DevicePtr<u64>)>) -> Self {
        Kernels { take_all: Some(kernel), ..self }
    }

    /// The names of the kernels that a run launches: with an exchange of blocks, with planted
    /// faults.
    pub(super) fn names(&self, exchanges: bool, plants: bool) -> Vec<&'static str> {
        let mut all = vec![self.stress.name(), self.exhaust.name(), self.free_all.name()];
        all.extend(self.take_all.map(|kernel| kernel.name()));
        all.extend(self.exchange.filter(|_| exchanges).map(|kernel| kernel.name()));
        all.extend(self.overlap.filter(|_| plants).map(|kernel| kernel.name()));
        all.extend(self.free_twice.filter(|_| plants).map(|kernel| kernel.name()));
        all
    }
}

impl<H: DeviceAlloc> fmt::Debug for Kernels<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names(true, true)).finish()
    }
}
