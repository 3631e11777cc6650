//! The functions that start a run, and what they need of its subject.

use super::config::StressConfig;
use super::kinds::AllocatorKind;
use super::plan::Plan;
use super::report::{Progress, StressReport};
use super::run::Run;
use super::subject::Subject;
use super::subjects::{BumpSubject, FreeListSubject, HeapSubject};
use super::validate::Support;
use super::{compare, inject};
use crate::{Error, OwnModule};
use warpheap::driver::{Device, Module};
use warpheap_device::alloc::DeviceAlloc;

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
    let plan = plan::<S>(config, device)?;
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
    let plan = plan::<S>(config, device)?;
    Run::<S>::new(device, module, config, plan)?.run(progress)
}

fn plan<S: Subject>(config: &StressConfig, device: &Device) -> Result<Plan, Error> {
    let support = Support {
        name: S::NAME,
        reclaims: S::Handle::RECLAIMS,
        exchanges: S::KERNELS.exchange.is_some(),
        overlap: S::KERNELS.overlap.is_some(),
        free_twice: S::KERNELS.free_twice.is_some(),
        points: S::Handle::POINTS,
    };
    Plan::new(config, device, &support, S::shape)
}

impl StressConfig {
    /// The kernels that [`stress`] launches.
    pub fn kernels(&self) -> Vec<&'static str> {
        match self.allocator {
            AllocatorKind::Bump => self.kernels_of::<BumpSubject>(),
            AllocatorKind::FreeList => self.kernels_of::<FreeListSubject>(),
            AllocatorKind::Heap => self.kernels_of::<HeapSubject>(),
        }
    }

    /// The kernels that [`stress_allocator`] launches for `S`.
    pub fn kernels_of<S: Subject>(&self) -> Vec<&'static str> {
        let mut all = S::KERNELS.names(self.workload.exchanges(), self.plant.is_some());
        all.extend(compare::LAUNCHED);
        all.extend(inject::LAUNCHED.iter().filter(|_| self.plant.is_some()));
        all
    }

    /// Checks that the configuration can run on the device.
    ///
    /// # Errors
    /// [`Error::InvalidStress`], which says what to change, or an error of the driver.
    pub fn validate(&self, device: &Device) -> Result<(), Error> {
        match self.allocator {
            AllocatorKind::Bump => plan::<BumpSubject>(self, device),
            AllocatorKind::FreeList => plan::<FreeListSubject>(self, device),
            AllocatorKind::Heap => plan::<HeapSubject>(self, device),
        }
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise two rounds of 256 KiB in four streams take minutes.
    #[test]
    fn large_blocks_take_fewer_steps_on_the_cpu() {
        let device = Device::cpu();
        let steps = |bytes, threads| {
            let config = StressConfig::new().sizes(bytes..=bytes).threads(threads).streams(4);
            plan::<HeapSubject>(&config.pool_bytes(Some(64 << 20)), &device).unwrap().steps
        };
        let most = steps(64, 1024);
        assert_eq!(steps(512, 8192), most, "as many as without a limit");
        assert!(steps(1 << 18, 256) < most / 2 && steps(1 << 18, 256) > steps(1 << 18, 8192));
        let written = |threads: u32| u64::from(steps(1 << 18, threads) * threads) * (4 << 18);
        assert!(written(256) < 3 << 30, "{}", written(256));
    }
}
