//! Examines the driver, devices, compiler and kernels.

use super::super::backend::describe;
use super::selftest::{self, SelfTest};
use crate::report::results::{DeviceRecord, dotted};
use serde::Serialize;
use warpheap::{Device, Error, KernelAttributes, Module, kernel_names};
use warpheap_harness::build_info;
use warpheap_harness::kernels::bench::{bench_bump_alloc, bench_freelist_alloc, bench_freelist_free};
use warpheap_harness::kernels::selftest::self_test;
use warpheap_harness::kernels::stress::{stress_bump, stress_freelist};

/// All findings.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The kernels in this program.
    pub kernels: Kernels,
    /// The driver.
    pub cuda: Cuda,
    /// Every GPU, in the driver's order.
    pub devices: Vec<Gpu>,
    /// The CPU.
    pub cpu: Cpu,
}

/// The PTX that was built into this program.
#[derive(Debug, Serialize)]
pub struct Kernels {
    /// Whether there is any PTX.
    pub present: bool,
    /// The compiler that built it.
    pub compiler: &'static str,
    /// Its target architectures: `sm_70` means this and later.
    pub targets: Vec<&'static str>,
    /// Number of kernels per architecture.
    pub count: usize,
    /// Why there is no PTX, and what to install.
    pub advice: Option<&'static str>,
}

/// The CUDA driver.
#[derive(Debug, Serialize)]
pub struct Cuda {
    /// Whether its library was found and responds.
    pub found: bool,
    /// The CUDA version that it supports. Known once a device was opened.
    pub version: Option<String>,
    /// Number of GPUs.
    pub count: u32,
    /// Why there is no driver, and what to do.
    pub advice: Option<String>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub struct Gpu {
    /// Ordinal for `--device`.
    pub ordinal: u32,
    /// Properties of the GPU, if it can be opened.
    pub device: Option<DeviceRecord>,
    /// Why the GPU, or the kernels on it, cannot be used.
    pub error: Option<String>,
    /// Resources of some kernels, as compiled by the driver.
    pub kernels: Vec<KernelRecord>,
    /// Result of the self-test, if the kernels load.
    pub self_test: Option<SelfTest>,
}

/// Resources of a kernel, as compiled by the driver.
#[derive(Debug, Serialize)]
pub struct KernelRecord {
    /// Its name.
    pub name: &'static str,
    /// Registers per thread.
    pub registers: u32,
    /// Stack and spilled registers per thread, in bytes.
    pub local_bytes: u32,
}

/// The CPU.
#[derive(Debug, Serialize)]
pub struct Cpu {
    /// Description in one line.
    pub description: String,
    /// Properties of the CPU device.
    pub device: Option<DeviceRecord>,
    /// Result of the self-test.
    pub self_test: SelfTest,
}

impl Findings {
    /// Whether kernels run on any device.
    pub fn works(&self) -> bool {
        self.cpu.self_test.passed || self.devices.iter().any(Gpu::works)
    }
}

impl Gpu {
    /// Whether kernels run on this GPU.
    pub fn works(&self) -> bool {
        self.self_test.as_ref().is_some_and(|test| test.passed)
    }
}

/// Examines everything. A failure does not stop the remaining checks.
pub fn examine() -> Findings {
    let kernels = kernels();
    let (mut cuda, count) = match Device::cuda_count() {
        Ok(count) => (Cuda { found: true, version: None, count, advice: None }, count),
        Err(error) => (Cuda { found: false, version: None, count: 0, advice: Some(error.to_string()) }, 0),
    };
    let devices: Vec<_> = (0..count).map(gpu).collect();
    if count == 0 && cuda.found {
        cuda.advice = Some("the driver has no GPU; check CUDA_VISIBLE_DEVICES".into());
    }
    let info = (0..count).find_map(|ordinal| Device::cuda(ordinal).ok()?.info().ok());
    cuda.version = info.and_then(|info| info.driver_version).map(dotted);
    Findings { kernels, cuda, devices, cpu: cpu() }
}

fn kernels() -> Kernels {
    let compiler = build_info::DEVICE_COMPILER;
    match build_info::images() {
        Ok(images) => {
            let targets = images.iter().map(|image| image.arch).collect();
            let count = images[0].ptx.matches(".visible .entry ").count();
            Kernels { present: true, compiler, targets, count, advice: None }
        }
        Err(why) => Kernels { present: false, compiler, targets: Vec::new(), count: 0, advice: Some(why) },
    }
}

fn gpu(ordinal: u32) -> Gpu {
    let mut gpu = Gpu { ordinal, device: None, error: None, kernels: Vec::new(), self_test: None };
    if let Err(error) = fill(&mut gpu) {
        gpu.error = Some(error.to_string());
    }
    gpu
}

/// Fills in as much as works.
fn fill(gpu: &mut Gpu) -> Result<(), Error> {
    let device = Device::cuda(gpu.ordinal)?;
    let info = device.info()?;
    gpu.device = Some(DeviceRecord::from(&info));
    // Without kernels there is nothing to test. That is reported once, for all devices.
    let Ok(image) = build_info::image_for(info.compute_capability) else { return Ok(()) };
    let module = device.load_kernels(image.ptx, &LOOKED_AT)?;
    gpu.kernels = attributes(&module)?;
    gpu.self_test = Some(selftest::run(&device, &module));
    Ok(())
}

/// Kernels, including the self-test's, whose resources show the quality of the driver's compiler.
const LOOKED_AT: [&str; 6] = kernel_names![
    self_test,
    bench_bump_alloc,
    bench_freelist_alloc,
    bench_freelist_free,
    stress_bump,
    stress_freelist
];

fn attributes(module: &Module) -> Result<Vec<KernelRecord>, Error> {
    let record = |name, attributes: KernelAttributes| KernelRecord {
        name,
        registers: attributes.registers,
        local_bytes: attributes.local_bytes,
    };
    Ok(vec![
        record("self_test", module.attributes(self_test)?),
        record("bench_bump_alloc", module.attributes(bench_bump_alloc)?),
        record("bench_freelist_alloc", module.attributes(bench_freelist_alloc)?),
        record("bench_freelist_free", module.attributes(bench_freelist_free)?),
        record("stress_bump", module.attributes(stress_bump)?),
        record("stress_freelist", module.attributes(stress_freelist)?),
    ])
}

fn cpu() -> Cpu {
    let device = Device::cpu();
    let description = describe(&device, None).unwrap_or_else(|error| error.to_string());
    let record = device.info().ok().as_ref().map(DeviceRecord::from);
    let test = match device.native_kernels(&LOOKED_AT) {
        Ok(module) => selftest::run(&device, &module),
        Err(error) => SelfTest { passed: false, threads: 0, error: Some(error.to_string()) },
    };
    Cpu { description, device: record, self_test: test }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_looked_at_are_those_that_are_loaded() {
        let module = Device::cpu().native_kernels(&LOOKED_AT).unwrap();
        assert_eq!(
            attributes(&module).unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>(),
            LOOKED_AT
        );
        assert!(cpu().self_test.passed);
    }
}
