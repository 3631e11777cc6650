//! The stress harness: thousands of GPU threads allocate and free, and everything they do is checked.
//!
//! Who checks what:
//!
//! | check | where | finds |
//! |---|---|---|
//! | every allocation claims its memory in an ownership map | device, at once | overlaps, also momentary ones |
//! | every owner writes a pattern and reads it again | device, at once | writes of others |
//! | the allocator refuses and records misuse | device, at once | double, foreign and interior frees |
//! | all live blocks claim on a fresh map | device, between rounds | overlaps |
//! | all live blocks are sorted and compared | host, between rounds | overlaps, by another way |
//! | the allocator's numbers against the live blocks | host, between rounds | lost blocks |
//! | threads allocate until they are refused | both | blocks too many or too few |
//! | a heap of which all was given back is taken in one piece | device, at the end | lost blocks |
//!
//! ```
//! use std::time::Duration;
//! use warpheap::Device;
//! use warpheap_harness::stress::{AllocatorKind, Limit, SizeMix, StressConfig, Workload, stress};
//!
//! let device = Device::cpu();
//! let config = StressConfig {
//!     allocator: AllocatorKind::FreeList,
//!     threads: 256,
//!     workload: Workload::Churn,
//!     sizes: 16..=64,
//!     mix: SizeMix::Uniform,
//!     limit: Limit::Rounds(2),
//!     streams: 2,
//!     pool_bytes: None,
//!     seed: 1,
//!     plant: None,
//! };
//! let module = device.native_kernels(&config.kernels())?;
//! let report = stress(&device, &module, &config, &mut |_| ())?;
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
pub use finding::{Finding, FindingKind};
pub use report::{Progress, StressReport};
pub use workload::{SizeMix, Workload};

use crate::Error;
use plan::Plan;
use run::Run;
use subject::{BumpSubject, FreeListSubject, HeapSubject, Subject};
use warpheap::driver::{Device, Module};

/// The kernels that a stress of `allocator` launches.
pub fn kernels(allocator: AllocatorKind, workload: Workload, plant: Option<Plant>) -> Vec<&'static str> {
    let subject = match allocator {
        AllocatorKind::Bump => BumpSubject::LAUNCHED,
        AllocatorKind::FreeList => FreeListSubject::LAUNCHED,
        AllocatorKind::Heap => HeapSubject::LAUNCHED,
    };
    let mut all = [subject.always, &census::LAUNCHED].concat();
    if workload.hands_over() {
        all.extend(subject.handing_over);
    }
    if plant.is_some() {
        all.extend(subject.planted.iter().chain(&plant::LAUNCHED));
    }
    all
}

/// Runs the stress that `config` describes and tells what was found. `progress` is called after each round.
///
/// `module` holds the [`kernels`](StressConfig::kernels) of this crate that the run launches. A run that finds something ends with that round.
///
/// # Errors
/// As for [`StressConfig::validate`], and whatever fails on the way: a kernel that crashes is an error, not a
/// finding.
pub fn stress(
    device: &Device,
    module: &Module,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    let plan = Plan::new(config, device)?;
    match config.allocator {
        AllocatorKind::Bump => Run::<BumpSubject>::new(device, module, config, plan)?.run(progress),
        AllocatorKind::FreeList => Run::<FreeListSubject>::new(device, module, config, plan)?.run(progress),
        AllocatorKind::Heap => Run::<HeapSubject>::new(device, module, config, plan)?.run(progress),
    }
}
