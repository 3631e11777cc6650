//! Provenance of results: everything that is needed to reproduce them.

use serde::{Deserialize, Serialize};
use std::env;
use warpheap::DeviceInfo;
use warpheap::KernelImage;
use warpheap_harness::build_info;

/// Version of the layout of a results file.
pub const SCHEMA: &str = "warpheap-result/1";

/// How results were made. Results of another program need not have all of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The layout of the file.
    pub schema: String,
    /// Kind of the data: `stress`, `bench`, `doctor`, `pool-replay`, `pool-bench` or
    /// `pool-show`.
    pub kind: String,
    /// The title of results that another program measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The program's version.
    pub version: String,
    /// The commit it was built from, with `-dirty` if the sources differed.
    pub commit: String,
    /// UTC date and time, in the format of RFC 3339.
    pub date: String,
    /// The command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// The compilers.
    pub compiler: Option<Compilers>,
    /// The machine.
    pub host: Option<Host>,
    /// The device that ran the kernels; null if there were several.
    pub device: Option<DeviceRecord>,
    /// The CUDA version of the driver; null on the CPU.
    pub driver: Option<String>,
    /// The kernel image that ran, as `sm_80`; null on the CPU.
    pub kernels: Option<String>,
}

/// The compilers of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compilers {
    /// Compiler of the host code.
    pub host: String,
    /// Compiler of the kernels; `none` if there are no GPU kernels.
    pub device: String,
}

/// The machine that the program runs on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Rust's target triple: `x86_64-unknown-linux-gnu`.
    #[serde(default)]
    pub target: String,
    /// The processor, if known.
    pub cpu: Option<String>,
    /// Number of concurrent threads; 0 if unknown.
    #[serde(default)]
    pub cpu_threads: usize,
}

/// The device that ran the kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cuda` or `cpu`.
    pub backend: String,
    /// Product name.
    pub name: String,
    /// As `9.0`.
    pub compute_capability: Option<String>,
    /// Number of SMs; 0 if unknown.
    #[serde(default)]
    pub multiprocessors: u32,
    /// Total memory; 0 if unknown.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Free memory when the result was written; 0 if unknown.
    #[serde(default)]
    pub memory_free_bytes: u64,
    /// Size of the L2; 0 if unknown.
    #[serde(default)]
    pub l2_bytes: u64,
}

impl From<&DeviceInfo> for DeviceRecord {
    fn from(info: &DeviceInfo) -> DeviceRecord {
        DeviceRecord {
            backend: info.backend.name().into(),
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

impl Origin {
    /// The origin of results of this process.
    pub fn new(kind: &str, device: Option<&DeviceInfo>, kernels: Option<&KernelImage>) -> Origin {
        Origin {
            schema: SCHEMA.into(),
            kind: kind.into(),
            title: None,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: build_info::COMMIT.into(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: command_line(),
            compiler: Some(Compilers {
                host: build_info::HOST_COMPILER.into(),
                device: build_info::DEVICE_COMPILER.into(),
            }),
            host: Some(Host::this()),
            device: device.map(DeviceRecord::from),
            driver: device.and_then(|info| info.driver_version).map(dotted),
            kernels: kernels.map(|image| image.arch.into()),
        }
    }
}

impl Host {
    fn this() -> Host {
        Host {
            target: build_info::TARGET.into(),
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
