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
//! With the feature `delays`, [`Delays`] lets random threads wait at named points of the allocator.
//!
//! # Custom allocators
//! [`stress_allocator`] runs the same checks on any allocator. Its handle implements
//! [`DeviceAlloc`](warpheap_device::alloc::DeviceAlloc),
//! [`stress_kernels!`](warpheap_device::stress_kernels!) declares the kernels for it, and a
//! [`Subject`] builds the pool. This example uses the free list of `warpheap`:
//!
//! ```
//! use warpheap::device_pools::FreeList;
//! use warpheap::Device;
//! use warpheap_device::freelist::FreeList as Handle;
//! use warpheap_device::kernel::Arg;
//! use warpheap_harness::Result;
//! use warpheap_harness::stress::{Kernels, Plan, StressConfig, Subject, stress_allocator};
//!
//! warpheap_device::stress_kernels! {
//!     Handle { stress: stress_mine, exhaust: exhaust_mine, free_all: free_all_mine }
//! }
//!
//! struct Mine(FreeList);
//!
//! // SAFETY: the pool's memory and metadata live as long as the pool (S1). The macro declares the
//! // kernels (S2). Any thread may call the handle (S3). No method launches a kernel (S4). `module`
//! // is the default (S5).
//! unsafe impl Subject for Mine {
//!     type Handle = Handle;
//!     const KERNELS: Kernels<Handle> = Kernels::new(&stress_mine, &exhaust_mine, &free_all_mine);
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

mod checks;
mod compare;
mod config;
mod delays;
mod finding;
mod inject;
mod kernels;
mod kinds;
mod launches;
mod plan;
mod report;
mod run;
mod subject;
mod subjects;
mod tables;

pub use config::{Limit, StressConfig};
pub use delays::{DelayReport, Delays};
pub use finding::{Finding, FindingKind, RoundState};
pub use kernels::{
    ExchangeArgs, ExhaustArgs, FreeAllArgs, FreeTwiceArgs, KernelRef, KernelWith, Kernels, StressArgs,
};
pub use kinds::{AllocatorKind, Plant, SizeMix, Workload};
pub use plan::{Plan, Shape};
pub use report::{Progress, StressReport};
pub use run::{stress, stress_allocator};
pub use subject::{Account, Subject};
