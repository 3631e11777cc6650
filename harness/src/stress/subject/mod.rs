//! A pool under stress, and what its own numbers say about the blocks that are live.

mod bump;
mod freelist;
mod heap;

pub(super) use bump::BumpSubject;
pub(super) use freelist::FreeListSubject;
pub(super) use heap::HeapSubject;

use super::finding::{Finding, Narrator};
use super::plan::{BLOCK_THREADS, Plan, Shape, refuse};
use crate::Result;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::pool::Faults;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::Round;
use warpheap_device::kernel::{Arg, DevicePtr, DeviceSlice, Kernel};

/// The arguments of a round's kernel: `stress` of [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type StressArgs<H> = (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, Round);

/// The arguments of the kernel that empties a pool: `grab` of [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type GrabArgs<H> = (Arg<H>, u32, u32, DeviceSlice<Record>, DevicePtr<u64>);

/// The arguments of the kernel that frees blocks: `give_back` of [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type GiveBackArgs<H> = (Arg<H>, DeviceSlice<Record>, u64);

/// The arguments of a kernel in which blocks change hands, with all records and the cells: `exchange` of
/// [`stress_kernels!`](warpheap_device::stress_kernels!).
pub type ExchangeArgs<H> =
    (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, DeviceSlice<u64>, Round);

/// What the allocator's own numbers say, beside the blocks that are live.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Account {
    /// Where the two differ.
    pub findings: Vec<Finding>,
    /// Blocks that are neither free nor anyone's; for an arena, allocations of the least size.
    pub lost_blocks: u64,
    /// Bytes that the allocator gave up by design.
    pub wasted_bytes: u64,
}

/// The kernels that a subject launches beside the three of its associated types, by when.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Launched {
    /// In every run.
    pub always: &'static [&'static str],
    /// By [`Subject::exchange`]. Empty: workloads that hand blocks over are refused.
    pub handing_over: &'static [&'static str],
    /// By [`Subject::corrupt`] and [`Subject::free_twice`]. Empty: those faults are refused.
    pub planted: &'static [&'static str],
}

impl Launched {
    /// None.
    pub const NONE: Launched = Launched { always: &[], handing_over: &[], planted: &[] };

    /// These in every run, and no others.
    pub const fn always(kernels: &'static [&'static str]) -> Launched {
        Launched { always: kernels, ..Launched::NONE }
    }

    /// The same, and these by [`Subject::exchange`].
    #[must_use]
    pub const fn handing_over(self, kernels: &'static [&'static str]) -> Launched {
        Launched { handing_over: kernels, ..self }
    }

    /// The same, and these by [`Subject::corrupt`] and [`Subject::free_twice`].
    #[must_use]
    pub const fn planted(self, kernels: &'static [&'static str]) -> Launched {
        Launched { planted: kernels, ..self }
    }
}

/// An allocator under stress: a pool, its kernels, and what it says of itself.
///
/// The allocator may be wrong: no check relies on the promise of its `DeviceAlloc`, which is what is tested, and the threads write to a block only after its
/// address was found inside the pool and its memory was claimed.
///
/// # Safety
/// [`stress_allocator`](super::stress_allocator) is safe, and launches kernels with what an implementation returns:
///
/// - S1. From [`new`](Self::new) until `self` is dropped, [`start`](Self::start)` .. start + plan.pool_bytes()` is
///   device memory, which nothing but blocks of this pool uses, and all that [`handle`](Self::handle) refers to is live.
/// - S2. `STRESS`, `GRAB` and `GIVE_BACK` are declared by [`stress_kernels!`](warpheap_device::stress_kernels!) under those
///   keys, or ask no more of their callers.
/// - S3. Every thread of any number of kernels may call `alloc` of the handle at the same time, and `free` once for each
///   return of `alloc`, also where it returned an address twice. They write to no memory but the pool's and its metadata.
/// - S4. Methods of the host that launch kernels or copies wait for them before they return, except
///   [`exchange`](Self::exchange), which launches on the stream that it is given alone.
/// - S5. In the module that [`module`](Self::module) returns, the kernels of the names that it is
///   given are those that this program declares: compiled from the same sources, on a GPU into PTX
///   that was not changed.
pub unsafe trait Subject: Sized {
    /// The pool as kernels have it.
    type Handle: DeviceAlloc;
    /// The type of [`STRESS`](Self::STRESS).
    type Stress: Kernel<Args = StressArgs<Self::Handle>>;
    /// The type of [`GRAB`](Self::GRAB).
    type Grab: Kernel<Args = GrabArgs<Self::Handle>>;
    /// The type of [`GIVE_BACK`](Self::GIVE_BACK).
    type GiveBack: Kernel<Args = GiveBackArgs<Self::Handle>>;
    /// A round: `stress` of [`stress_kernels!`](warpheap_device::stress_kernels!).
    const STRESS: Self::Stress;
    /// Empties the pool: `grab`.
    const GRAB: Self::Grab;
    /// Frees blocks: `give_back`.
    const GIVE_BACK: Self::GiveBack;
    /// The allocator's name in reports.
    const NAME: &'static str;
    /// Whether what the new pool grants is measured before the first round, by [`is_emptied`](Self::is_emptied).
    const MEASURED: bool = false;
    /// The kernels of the methods that have a default.
    const LAUNCHED: Launched = Launched::NONE;

    /// The `kernels` of these names on `device`: those of this trait's constants, and those that
    /// `stress_kernels!(checks)` declares. Default: this program's functions, which only the CPU
    /// runs. For a GPU it is `device.load_kernels(ptx, kernels)` with the PTX of the crate that
    /// declares them.
    ///
    /// # Errors
    /// What the device answers. By default, [`NotSupported`](warpheap::Error::NotSupported) on a
    /// GPU.
    fn module(device: &Device, kernels: &[&'static str]) -> Result<Module> {
        Ok(device.native_kernels(kernels)?)
    }

    /// Granule, alignments and size of a pool for allocations of `min_bytes` to `max_bytes`, `mean_bytes` in the mean.
    /// Default: blocks that all have room for `max_bytes`.
    fn shape(min_bytes: u32, max_bytes: u32, mean_bytes: u32) -> Shape {
        let _ = (min_bytes, mean_bytes);
        Shape::of_blocks(max_bytes)
    }

    /// A pool of `plan.pool_bytes()` with nothing allocated.
    ///
    /// # Errors
    /// What the device answers.
    fn new(device: &Device, plan: &Plan) -> Result<Self>;

    /// The pool as kernels take it.
    fn handle(&self) -> Arg<Self::Handle>;

    /// Where its memory starts, in bytes: at a multiple of `plan.max_align()`.
    fn start(&self) -> u64;

    /// Makes all memory free again. No kernel runs.
    ///
    /// # Errors
    /// What the device answers.
    fn reset(&mut self) -> Result<()>;

    /// Misuse that the allocator has recorded since the last reset; `None` if it does not record
    /// misuse.
    ///
    /// # Errors
    /// What the device answers.
    fn faults(&self) -> Result<Option<Faults>>;

    /// Whether the allocator's own count agrees with `live` blocks; `None` if it has none. If not,
    /// [`account`](Self::account) is asked for what is wrong.
    ///
    /// # Errors
    /// What the device answers.
    fn agrees(&self, live: u64) -> Result<Option<bool>>;

    /// Whether threads that allocated until allocation failed, or until they held `most` blocks, have left nothing:
    /// `live` is what they hold.
    ///
    /// # Errors
    /// What the device answers.
    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool>;

    /// How many allocations of the largest size the empty pool can grant, at most.
    fn most_blocks(&self, plan: &Plan) -> u64;

    /// Compares the allocator's metadata with all live blocks. `None`, the default: not compared.
    ///
    /// # Errors
    /// What the device answers.
    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Option<Account>> {
        let _ = (plan, narrator);
        Ok(None)
    }

    /// Whether threads that took blocks of the largest size until allocation failed have left nothing: `granted` is
    /// what they hold. Default: as [`is_exhausted`](Self::is_exhausted).
    ///
    /// # Errors
    /// What the device answers.
    fn is_emptied(&mut self, plan: &Plan, granted: u64) -> Result<bool> {
        self.is_exhausted(plan, granted, u64::MAX)
    }

    /// Whether all memory is free, now that every block was freed. `None`, the default: not
    /// checked, beyond the numbers of [`agrees`](Self::agrees).
    ///
    /// # Errors
    /// What the device answers.
    ///
    /// # Safety
    /// `module` is one of [`module`](Self::module). No kernel runs.
    unsafe fn is_all_free(&self, module: &Module, stream: &Stream) -> Result<Option<bool>> {
        let _ = (module, stream);
        Ok(None)
    }

    /// Launches a kernel in which blocks change hands.
    ///
    /// # Errors
    /// Not supported by default; else what the device answers.
    ///
    /// # Safety
    /// As for the kernel: [`exchange::run`](warpheap_device::check::exchange::run). `module` is one
    /// of [`module`](Self::module).
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

    /// Makes the allocator hand out memory twice: `victim` is a live block's address.
    ///
    /// # Errors
    /// Not supported by default; else what the device answers.
    ///
    /// # Safety
    /// `module` is one of [`module`](Self::module). No kernel runs. Of what the pool hands out from
    /// now on, code other than the checks' relies on nothing.
    unsafe fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let _ = (module, stream, victim);
        Err(unsupported::<Self>("with a planted overlap"))
    }

    /// Frees the block of the record at `place` twice.
    ///
    /// # Errors
    /// Not supported by default; else what the device answers.
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

/// Frees the first `count` of the records' blocks, and empties the records. No kernel runs.
pub(super) fn give_back<S: Subject>(
    subject: &S,
    module: &Module,
    stream: &Stream,
    records: DeviceSlice<Record>,
    count: u64,
) -> Result<()> {
    let grid = LaunchConfig::linear(records.len() as u32, BLOCK_THREADS);
    let args = (subject.handle(), records, count);
    // SAFETY: the records are blocks of this pool, and nothing else runs (S1, S2).
    unsafe { stream.launch(module, S::GIVE_BACK, &grid, args) }?;
    Ok(stream.synchronize()?)
}
