//! Plain data: where kernels run, the properties of devices and kernels, and memory ranges.

use std::fmt;

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// An NVIDIA GPU, through its driver.
    Cuda,
    /// This machine's CPU, which runs the same kernel functions.
    Cpu,
}

impl Backend {
    /// `cuda` or `cpu`, the spelling of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Properties of a device. Sizes are in bytes. A property that a backend does not know is 0 or
/// `None`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The product name.
    pub name: String,
    /// Where kernels run.
    pub backend: Backend,
    /// Major and minor compute capability: (9, 0) for sm_90.
    pub compute_capability: Option<(u32, u32)>,
    /// Major and minor CUDA version that the driver supports.
    pub driver_version: Option<(u32, u32)>,
    /// Number of SMs. On the CPU, the number that the executor simulates.
    pub multiprocessors: u32,
    /// Lanes per warp.
    pub warp_size: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// Maximum resident threads per SM.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum resident warps of the device. On the CPU, those of one kernel.
    pub resident_warps: u64,
    /// Maximum shared memory per block.
    pub shared_bytes_per_block: u32,
    /// Total device memory. On the CPU, the limit that the device was made with.
    pub memory_total: u64,
    /// Device memory that is free at the moment.
    pub memory_free: u64,
    /// Size of the L2 cache.
    pub l2_bytes: u64,
    /// Whether addresses can be reserved first and mapped later.
    pub virtual_memory: bool,
    /// Whether kernels run deterministically: the CPU in replay mode.
    pub replays: bool,
}

/// Properties of a compiled kernel. On the CPU only the maximum block size is known; the rest is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread: stack and spilled registers.
    pub local_bytes: u32,
    /// Bytes of stack per thread that the kernel needs at least: the variables of its functions,
    /// along a chain of direct calls that enters none of them twice. Without saved registers, and
    /// without functions that are called through pointers.
    pub stack_bytes: u64,
    /// Whether the kernel can reach recursion or a call through a pointer. Then it may need more
    /// stack, and its threads have what [`Device::set_stack_bytes`](crate::Device::set_stack_bytes)
    /// sets. Otherwise the driver provides what it needs.
    pub has_open_stack: bool,
    /// Bytes of static shared memory per block.
    pub shared_bytes: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// PTX version of the kernel: ten times the major plus the minor, so 70 for 7.0.
    pub ptx_version: u32,
    /// Target architecture: ten times the major plus the minor, so 90 for sm_90.
    pub binary_version: u32,
}

/// The largest grid and block of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub threads_per_block: u32,
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub shared_bytes_per_block: u32,
}

/// What a backend knows of a device without a call to the driver: properties that never change.
#[derive(Clone, Debug)]
pub(crate) struct RawDeviceInfo {
    pub backend: Backend,
    /// A short name for messages.
    pub label: String,
    pub limits: Limits,
}

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub address: u64,
    pub bytes: u64,
}
