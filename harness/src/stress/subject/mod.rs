//! Allocators under stress, and the comparison of their metadata with the live blocks.

mod bump;
mod freelist;
mod heap;

pub(super) use bump::BumpSubject;
pub(super) use freelist::FreeListSubject;
pub(super) use heap::HeapSubject;

use super::finding::{Finding, Narrator};
use super::plan::{BLOCK_THREADS, Plan, Shape, refuse};
use crate::Result;
use warpheap::device_pools::Faults;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::Round;
use warpheap_device::kernel::{Arg, DevicePtr, DeviceSlice, Kernel};

/// The arguments of a round's kernel: `stress` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type StressArgs<H> = (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, Round);

/// The arguments of the kernel that exhausts a pool: `grab` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type GrabArgs<H> = (Arg<H>, u32, u32, DeviceSlice<Record>, DevicePtr<u64>);

/// The arguments of the kernel that frees blocks: `give_back` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type GiveBackArgs<H> = (Arg<H>, DeviceSlice<Record>, u64);

/// The arguments of a kernel in which threads hand blocks to each other, with all records and the
/// cells: `exchange` of [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type ExchangeArgs<H> =
    (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, DeviceSlice<u64>, Round);

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

/// The kernels that a subject launches in addition to those of its associated types, and in which
/// runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Launched {
    /// Kernels that every run launches.
    pub always: &'static [&'static str],
    /// Kernels that [`Subject::exchange`] launches. If empty, workloads in which threads hand
    /// blocks to each other are an error.
    pub handing_over: &'static [&'static str],
    /// Kernels that [`Subject::corrupt`] and [`Subject::free_twice`] launch. If empty, planting
    /// these faults is an error.
    pub planted: &'static [&'static str],
}

impl Launched {
    /// No kernels.
    pub const NONE: Launched = Launched { always: &[], handing_over: &[], planted: &[] };

    /// Only these kernels, in every run.
    pub const fn always(kernels: &'static [&'static str]) -> Launched {
        Launched { always: kernels, ..Launched::NONE }
    }

    /// Adds the kernels that [`Subject::exchange`] launches.
    #[must_use]
    pub const fn handing_over(self, kernels: &'static [&'static str]) -> Launched {
        Launched { handing_over: kernels, ..self }
    }

    /// Adds the kernels that [`Subject::corrupt`] and [`Subject::free_twice`] launch.
    #[must_use]
    pub const fn planted(self, kernels: &'static [&'static str]) -> Launched {
        Launched { planted: kernels, ..self }
    }
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
/// - S2. `STRESS`, `GRAB` and `GIVE_BACK` are declared by
///   [`stress_kernels!`](warpheap_device::stress_kernels!) under those keys, or require no more of
///   their callers.
/// - S3. Any threads of any number of kernels may concurrently call `alloc` of the handle, and
///   `free` once for each return of `alloc`, even if `alloc` returned an address twice. They write
///   only to the pool's memory and its metadata.
/// - S4. Host methods that launch kernels or copies wait for them before they return, except
///   [`exchange`](Self::exchange), which launches only on the stream that it is given.
/// - S5. In the module that [`module`](Self::module) returns, the kernels with the given names are
///   those that this program declares: compiled from the same sources, on a GPU into unmodified
///   PTX.
pub unsafe trait Subject: Sized {
    /// The handle of the pool in kernels.
    type Handle: DeviceAlloc;
    /// The type of [`STRESS`](Self::STRESS).
    type Stress: Kernel<Args = StressArgs<Self::Handle>>;
    /// The type of [`GRAB`](Self::GRAB).
    type Grab: Kernel<Args = GrabArgs<Self::Handle>>;
    /// The type of [`GIVE_BACK`](Self::GIVE_BACK).
    type GiveBack: Kernel<Args = GiveBackArgs<Self::Handle>>;
    /// The kernel of a round: `stress` of [`stress_kernels!`](warpheap_device::stress_kernels!).
    const STRESS: Self::Stress;
    /// Exhausts the pool: `grab`.
    const GRAB: Self::Grab;
    /// Frees blocks: `give_back`.
    const GIVE_BACK: Self::GiveBack;
    /// The allocator's name in reports.
    const NAME: &'static str;
    /// Whether the new pool is exhausted before the first round, and
    /// [`is_emptied`](Self::is_emptied) measures how many blocks it allocates.
    const MEASURED: bool = false;
    /// The kernels that the methods with a default implementation launch.
    const LAUNCHED: Launched = Launched::NONE;

    /// Loads the `kernels` with these names on `device`: those of this trait's constants, and those
    /// that `stress_kernels!(checks)` declares. Default: this program's functions, which run only
    /// on the CPU. For a GPU, return `device.load_kernels(ptx, kernels)` with the PTX of the crate
    /// that declares the kernels.
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

    /// The misuse that the allocator has recorded since the last reset. `None` if it does not
    /// record misuse.
    ///
    /// # Errors
    /// An error of the device.
    fn faults(&self) -> Result<Option<Faults>>;

    /// Whether the allocator's own count of live blocks equals `live`. `None` if it has no count.
    /// If they differ, the harness calls [`account`](Self::account) to find the difference.
    ///
    /// # Errors
    /// An error of the device.
    fn agrees(&self, live: u64) -> Result<Option<bool>>;

    /// Whether the pool is exhausted after threads have allocated until allocation failed or they
    /// held `most` blocks. They hold `live` blocks.
    ///
    /// # Errors
    /// An error of the device.
    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool>;

    /// The maximum number of allocations of the largest size in an empty pool.
    fn most_blocks(&self, plan: &Plan) -> u64;

    /// Compares the allocator's metadata with all live blocks. Default: `None`, not compared.
    ///
    /// # Errors
    /// An error of the device.
    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Option<Account>> {
        let _ = (plan, narrator);
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

    /// Whether all memory is free. All blocks have been freed. Default: `None`, not checked beyond
    /// the count of [`agrees`](Self::agrees).
    ///
    /// # Errors
    /// An error of the device.
    ///
    /// # Safety
    /// `module` was returned by [`module`](Self::module). No kernel runs.
    unsafe fn is_all_free(&self, module: &Module, stream: &Stream) -> Result<Option<bool>> {
        let _ = (module, stream);
        Ok(None)
    }

    /// Launches a kernel in which threads hand blocks to each other.
    ///
    /// # Errors
    /// Not supported by default. Otherwise, an error of the device.
    ///
    /// # Safety
    /// As for the kernel: [`exchange::run`](warpheap_device::check::exchange::run). `module` was
    /// returned by [`module`](Self::module).
    unsafe fn exchange(
        &self,
        module: &Module,
        stream: &Stream,
        grid: &LaunchConfig,
        args: ExchangeArgs<Self::Handle>,
    ) -> Result<()> {
        let _ = (module, stream, grid, args);
        Err(unsupported::<Self>("with blocks that change hands"))
    }

    /// Makes the allocator allocate live memory again. `victim` is the address of a live block.
    ///
    /// # Errors
    /// Not supported by default. Otherwise, an error of the device.
    ///
    /// # Safety
    /// `module` was returned by [`module`](Self::module). No kernel runs. From now on, no code
    /// except the checks relies on memory that the pool allocates.
    unsafe fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let _ = (module, stream, victim);
        Err(unsupported::<Self>("with a planted overlap"))
    }

    /// Frees the block of the record with index `place` twice.
    ///
    /// # Errors
    /// Not supported by default. Otherwise, an error of the device.
    ///
    /// # Safety
    /// As for [`corrupt`](Self::corrupt). The records are those of the live blocks of this pool,
    /// and `map` is their ownership map.
    unsafe fn free_twice(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        map: Arg<OwnershipMap>,
        place: u32,
    ) -> Result<()> {
        let _ = (module, stream, records, map, place);
        Err(unsupported::<Self>("with a planted double free"))
    }
}

fn unsupported<S: Subject>(how: &str) -> crate::Error {
    refuse(
        format!("{} {how}", S::NAME),
        "implement that method of its subject, and name its kernels in `LAUNCHED`".into(),
    )
}

/// Frees the blocks of the first `count` records, and empties the records. No kernel runs.
pub(super) fn give_back<S: Subject>(
    subject: &S,
    module: &Module,
    stream: &Stream,
    records: DeviceSlice<Record>,
    count: u64,
) -> Result<()> {
    let grid = LaunchConfig::linear(records.len() as u32, BLOCK_THREADS);
    let args = (subject.handle(), records, count);
    // SAFETY: the records are unused blocks of this pool (S1), the kernel is that of
    // `stress_kernels!` (S2), and nothing else runs.
    unsafe { stream.launch(module, S::GIVE_BACK, &grid, args) }?;
    Ok(stream.synchronize()?)
}
