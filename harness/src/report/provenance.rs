//! Provenance of a result: everything that is needed to reproduce it.

use serde::Serialize;
use std::env;
use warpheap::DeviceInfo;
use warpheap::KernelImage;
use warpheap_harness::build_info;

/// Version of the layout of a results file.
pub const SCHEMA: &str = "warpheap-result/1";

/// A results file.
#[derive(Debug, Serialize)]
pub struct ResultFile<T> {
    /// The layout of this file.
    pub schema: &'static str,
    /// Kind of `data`: `stress`, `bench`, `doctor`, `pool-replay`, `pool-bench` or
    /// `pool-show`.
    pub kind: &'static str,
    /// This program's version.
    pub version: &'static str,
    /// The commit it was built from, with `-dirty` if the sources differed.
    pub commit: &'static str,
    /// UTC date and time, in the format of RFC 3339.
    pub date: String,
    /// The command line.
    pub command: Vec<String>,
    /// The compilers.
    pub compiler: Compilers,
    /// The machine.
    pub host: Host,
    /// The device that ran the kernels; null if there were several.
    pub device: Option<DeviceRecord>,
    /// The CUDA version of the driver; null on the CPU.
    pub driver: Option<String>,
    /// The kernel image that ran, as `sm_80`; null on the CPU.
    pub kernels: Option<&'static str>,
    /// The results.
    pub data: T,
}

/// The compilers of the program.
#[derive(Debug, Serialize)]
pub struct Compilers {
    /// Compiler of the host code.
    pub host: &'static str,
    /// Compiler of the kernels; `none` if there are no GPU kernels.
    pub device: &'static str,
}

/// The machine that the program runs on.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Rust's target triple: `x86_64-unknown-linux-gnu`.
    pub target: &'static str,
    /// The processor, if known.
    pub cpu: Option<String>,
    /// Number of concurrent threads.
    pub cpu_threads: usize,
}

/// The device that ran the kernels.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceRecord {
    /// `cuda` or `cpu`.
    pub backend: &'static str,
    /// Product name.
    pub name: String,
    /// As `9.0`.
    pub compute_capability: Option<String>,
    /// Number of SMs.
    pub multiprocessors: u32,
    /// Total memory.
    pub memory_bytes: u64,
    /// Free memory when the result was written.
    pub memory_free_bytes: u64,
    /// Size of the L2; 0 if unknown.
    pub l2_bytes: u64,
}

impl From<&DeviceInfo> for DeviceRecord {
    fn from(info: &DeviceInfo) -> DeviceRecord {
        DeviceRecord {
            backend: info.backend.name(),
            name: info.name.clone(),
            compute_capability: info.compute_capability.map(dotted),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.memory_total,
            memory_free_bytes: info.memory_free,
            l2_bytes: info.l2_bytes,
        }
    }
}

/// A version as `13.0`.
pub fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

impl<T> ResultFile<T> {
    /// `data`, with its provenance.
    pub fn new(
        kind: &'static str,
        device: Option<&DeviceInfo>,
        kernels: Option<&KernelImage>,
        data: T,
    ) -> ResultFile<T> {
        ResultFile {
            schema: SCHEMA,
            kind,
            version: env!("CARGO_PKG_VERSION"),
            commit: build_info::COMMIT,
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: command_line(),
            compiler: Compilers { host: build_info::HOST_COMPILER, device: build_info::DEVICE_COMPILER },
            host: Host::this(),
            device: device.map(DeviceRecord::from),
            driver: device.and_then(|info| info.driver_version).map(dotted),
            kernels: kernels.map(|image| image.arch),
            data,
        }
    }
}

impl Host {
    fn this() -> Host {
        Host {
            target: build_info::TARGET,
            cpu: cpu_model(),
            cpu_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// The command line, with the program's name instead of its path.
fn command_line() -> Vec<String> {
    let args = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    ["warpheap".to_owned()].into_iter().chain(args).collect()
}

fn cpu_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
