//! Errors of modules, launches and running kernels.

use super::Bytes;
use crate::simt::{Panic, SimtError};

/// Details of [`Error::KernelFault`](super::Error::KernelFault): how a kernel failed.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum KernelFault {
    /// A kernel failed on the GPU, which makes its context unusable. End the process.
    #[error(
        "a kernel failed on the GPU before {call} returned: {name} ({code}): {detail}; every later call on \
         this device fails too, so end the process; `compute-sanitizer --tool memcheck` names the access"
    )]
    Cuda {
        /// The call that reported it, often long after the kernel was launched.
        call: &'static str,
        /// The driver's status.
        code: u32,
        /// The name of the status.
        name: String,
        /// The driver's explanation.
        detail: String,
    },

    /// A kernel failed on the CPU. Its stream runs nothing more; other streams continue.
    #[error("kernel `{kernel}` failed on the CPU: {source}; this stream runs nothing more")]
    Simt {
        /// The kernel's name.
        kernel: &'static str,
        /// How it failed.
        source: SimtError,
    },

    /// Threads of a kernel panicked. Unless [`Panic::ended_grid`] is set, only they ended: the
    /// device and its streams work as before, and the error is returned once.
    #[error("{kernels} {panic}; {advice}")]
    Panicked {
        /// The kernel. On a GPU the kernels that were launched from its module since it was
        /// loaded, one of which it is.
        kernels: String,
        /// One of the panics, and the number of the others.
        panic: Box<Panic>,
        /// What to do.
        advice: &'static str,
    },

    /// The executor of a CPU stream panicked outside a kernel's lanes. Its stream runs nothing
    /// more.
    #[error("the CPU stream panicked: {message}; this is a defect of warpheap, please report it")]
    CpuStream {
        /// The message of the panic.
        message: String,
    },
}

/// Details of [`Error::InvalidModule`](super::Error::InvalidModule): how module and program differ.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidModule {
    /// The module does not contain the kernel.
    #[error(
        "the module has no kernel `{kernel}` (it has {known}); if it was loaded with a list of kernels, add this one; \
         otherwise the PTX is older than the program, or has other kernels: rebuild the PTX"
    )]
    UnknownKernel {
        /// The requested kernel.
        kernel: &'static str,
        /// The kernels of the module.
        known: String,
    },

    /// Program and PTX disagree about a kernel's parameters.
    #[error(
        "kernel `{kernel}` takes {program} in the program but {ptx} in the PTX; the PTX is older than the \
         program, or only one of them was built with the feature `debug`: rebuild the PTX"
    )]
    KernelSignature {
        /// The kernel's name.
        kernel: &'static str,
        /// The program's parameters.
        program: String,
        /// The PTX's parameters.
        ptx: String,
    },

    /// The module has no global allocator, so no heap can be set.
    #[error(
        "the PTX has no `{symbol}`, so there is no global allocator to set a heap for; write \
         `warpheap_device::global_heap!();` in the kernel crate and rebuild the PTX"
    )]
    NoGlobalHeap {
        /// The missing variable.
        symbol: &'static str,
    },

    /// The kernels were built without delays.
    #[error(
        "the PTX has no `{symbol}`, so its threads cannot be delayed; build the kernels with the feature `delays` of \
         warpheap-device"
    )]
    NoDelays {
        /// The missing variable.
        symbol: &'static str,
    },

    /// The module does not have the panic handler of `warpheap-device`, so a panic traps.
    #[error(
        "the PTX has no `{symbol}`, so what a panic ends cannot be set; build the kernels with the feature \
         `panic-handler` of warpheap-device"
    )]
    NoPanicHandler {
        /// The missing variable.
        symbol: &'static str,
    },

    /// Program and PTX disagree about the layout of a variable: the global allocator, delays, or
    /// panics.
    #[error(
        "`{symbol}` has {ptx} in the PTX but {program} in the program; the PTX was built with another version or \
         other features of warpheap-device: rebuild the PTX"
    )]
    VariableLayout {
        /// The variable.
        symbol: &'static str,
        /// Its size in the PTX.
        ptx: Bytes,
        /// Its size in the program.
        program: Bytes,
    },

    /// A cubin was compiled from other PTX.
    #[error(
        "the cubin for {arch} was compiled from other PTX than the module's: rebuild both with one call of \
         warpheap_build::Builder, and load the PTX of the newest architecture that runs there"
    )]
    CubinOfOtherPtx {
        /// Its architecture.
        arch: String,
    },

    /// Bytes that are no cubin of `warpheap-build`.
    #[error(
        "cubin {position} is no cubin of warpheap-build, or is incomplete: make it with \
         warpheap_build::Builder::cubin, which records the PTX that it was compiled from"
    )]
    NoCubin {
        /// Its position among the cubins, from 0.
        position: usize,
    },
}

/// Details of [`Error::Dangling`](super::Error::Dangling): what refers to freed memory.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum Dangling {
    /// An argument refers to memory outside every live allocation of the device.
    #[error(
        "argument {position} of `{kernel}` names {bytes} at {address:#x}, which lies in no live allocation \
         of {device}; {nearest}; keep the buffer alive until the launch, and launch on its device"
    )]
    Argument {
        /// The kernel's name.
        kernel: &'static str,
        /// The position of the argument, from 0.
        position: usize,
        /// The start of the memory.
        address: u64,
        /// Its length.
        bytes: Bytes,
        /// The device of the launch.
        device: String,
        /// The nearest allocation.
        nearest: String,
    },

    /// The heap of the module's global allocator was dropped. Set another before the launch.
    #[error(
        "`{kernel}` would allocate from the heap of {bytes} at {address:#x} of {device}, which was dropped after \
         Module::set_global_heap; keep the heap alive until the launch, or set another"
    )]
    GlobalHeap {
        /// The kernel's name.
        kernel: &'static str,
        /// The start of the heap.
        address: u64,
        /// Its length.
        bytes: Bytes,
        /// The device of the launch.
        device: String,
    },

    /// Setting or clearing the heap of the module's global allocator failed. Set or clear it again.
    #[error(
        "the global heap of `{kernel}` is unknown: the last Module::set_global_heap or clear_global_heap of its module failed; \
         call one of them again before the launch"
    )]
    UnknownGlobalHeap {
        /// The kernel's name.
        kernel: &'static str,
    },
}
