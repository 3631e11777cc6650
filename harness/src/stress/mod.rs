//! Stress harness: thousands of GPU threads allocate and free, and every operation is checked.
//!
//! The checks:
//!
//! | check | where | finds |
//! |---|---|---|
//! | allocations claim memory in an ownership map | device, online | overlaps, even temporary |
//! | every owner writes and verifies a pattern | device, online | writes by other threads |
//! | the allocator rejects and records misuse | device, online | double, foreign, interior frees |
//! | all live blocks are claimed in a cleared map | device, between rounds | overlaps |
//! | all live blocks are sorted and compared | host, between rounds | overlaps, again |
//! | counts and metadata are compared with the live blocks | host, between rounds | lost blocks |
//! | threads allocate until allocation fails | both | too many or too few blocks |
//! | a heap without live blocks allocates all memory at once | device, at the end | lost blocks |
//!
//! ```
//! use warpheap::Device;
//! use warpheap_harness::OwnModule;
//! use warpheap_harness::stress::{AllocatorKind, Limit, StressConfig, stress};
//!
//! let device = Device::cpu();
//! let config = StressConfig::new()
//!     .allocator(AllocatorKind::FreeList)
//!     .threads(256)
//!     .sizes(16..=64)
//!     .limit(Limit::Rounds(2))
//!     .streams(2);
//! let kernels = OwnModule::load(&device, &config.kernels())?;
//! let report = stress(&device, &kernels, &config, &mut |_| ())?;
//! assert!(report.is_clean() && report.allocations > 1000);
//! # Ok::<(), warpheap_harness::Error>(())
//! ```
//!
//! # Custom allocators
//! [`stress_allocator`] runs the same checks on any allocator. Its handle implements
//! [`DeviceAlloc`](warpheap_device::alloc::DeviceAlloc),
//! [`stress_kernels!`](warpheap_device::stress_kernels!) declares the kernels for it, and a
//! [`Subject`] builds the pool. This example uses the free list of `warpheap`:
//!
//! ```
//! use warpheap::device_pools::{Faults, FreeList};
//! use warpheap::Device;
//! use warpheap_device::freelist::FreeList as Handle;
//! use warpheap_device::kernel::Arg;
//! use warpheap_harness::Result;
//! use warpheap_harness::stress::{Plan, StressConfig, Subject, stress_allocator};
//!
//! warpheap_device::stress_kernels! {
//!     Handle { stress: stress_mine, grab: grab_mine, give_back: give_back_mine }
//! }
//!
//! struct Mine(FreeList);
//!
//! // SAFETY: the pool's memory and metadata live as long as the pool (S1). The macro declares the
//! // kernels (S2). Any thread may call the handle (S3). No method launches a kernel (S4). `module`
//! // is the default (S5).
//! unsafe impl Subject for Mine {
//!     type Handle = Handle;
//!     type Stress = stress_mine;
//!     type Grab = grab_mine;
//!     type GiveBack = give_back_mine;
//!     const STRESS: stress_mine = stress_mine;
//!     const GRAB: grab_mine = grab_mine;
//!     const GIVE_BACK: give_back_mine = give_back_mine;
//!     const NAME: &'static str = "mine";
//!
//!     fn new(device: &Device, plan: &Plan) -> Result<Self> {
//!         let stride = plan.block_bytes().expect("the default shape is of blocks");
//!         Ok(Mine(FreeList::builder(plan.pool_bytes() / stride, stride).build(device)?))
//!     }
//!     fn handle(&self) -> Arg<Handle> {
//!         self.0.handle()
//!     }
//!     fn start(&self) -> u64 {
//!         self.0.memory().address()
//!     }
//!     fn reset(&mut self) -> Result<()> {
//!         Ok(self.0.reset()?)
//!     }
//!     fn faults(&self) -> Result<Option<Faults>> {
//!         Ok(Some(self.0.faults()?))
//!     }
//!     fn agrees(&self, live: u64) -> Result<Option<bool>> {
//!         Ok(Some(self.0.stats()?.live_blocks == live))
//!     }
//!     fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool> {
//!         Ok(live == self.most_blocks(plan).min(most))
//!     }
//!     fn most_blocks(&self, plan: &Plan) -> u64 {
//!         plan.pool_bytes() / plan.block_bytes().expect("the default shape is of blocks")
//!     }
//! }
//!
//! let device = Device::cpu();
//! let config = StressConfig::new().threads(256);
//! let report = stress_allocator::<Mine>(&device, &config, &mut |_| ())?;
//! assert!(report.is_clean() && report.allocations > 1000);
//! # Ok::<(), warpheap_harness::Error>(())
//! ```

mod census;
mod checks;
mod config;
mod finding;
mod launches;
pub mod overlap;
mod plan;
mod plant;
mod report;
mod run;
mod subject;
mod tables;
mod workload;

pub use config::{AllocatorKind, Limit, Plant, StressConfig, UnknownName};
pub use finding::{Finding, FindingKind, Narrator};
pub use plan::{Plan, Shape};
pub use report::{Progress, StressReport};
pub use subject::{Account, ExchangeArgs, GiveBackArgs, GrabArgs, Launched, StressArgs, Subject};
pub use workload::{SizeMix, Workload};

use crate::{Error, OwnModule};
use run::Run;
use subject::{BumpSubject, FreeListSubject, HeapSubject};
use warpheap::driver::{Device, Module};

/// Runs the stress test that `config` describes and reports its findings. Calls `progress` after
/// each round.
///
/// `kernels` contains the kernels that [`StressConfig::kernels`] names. The run ends after the
/// first round with a finding.
///
/// # Errors
/// As for [`StressConfig::validate`], and any error during the run. A kernel that crashes is an
/// error, not a finding.
pub fn stress(
    device: &Device,
    kernels: &OwnModule,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    match config.allocator {
        AllocatorKind::Bump => run::<BumpSubject>(device, kernels.module(), config, progress),
        AllocatorKind::FreeList => run::<FreeListSubject>(device, kernels.module(), config, progress),
        AllocatorKind::Heap => run::<HeapSubject>(device, kernels.module(), config, progress),
    }
}

/// Runs the stress test that `config` describes on the caller's allocator. Like [`stress`], but
/// ignores `config.allocator`.
///
/// [`Subject::module`] loads the kernels that [`kernels_of`](StressConfig::kernels_of) names.
///
/// # Errors
/// [`Error::InvalidStress`] if the configuration is invalid or the [`Subject`] does not support it,
/// and any error during the run. A kernel that crashes is an error, not a finding.
pub fn stress_allocator<S: Subject>(
    device: &Device,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    let plan = Plan::new::<S>(config, device)?;
    let module = S::module(device, &config.kernels_of::<S>())?;
    Run::<S>::new(device, &module, config, plan)?.run(progress)
}

/// `module` is a module as [`Subject::module`] of `S` returns it.
fn run<S: Subject>(
    device: &Device,
    module: &Module,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    let plan = Plan::new::<S>(config, device)?;
    Run::<S>::new(device, module, config, plan)?.run(progress)
}
