//! The CPU as a device: kernels are native functions of the program, which [`crate::simt`] runs
//! lane by lane.

mod copy_exclusion;
mod device;
mod memory;
#[cfg(unix)]
mod pool;
mod queue;
mod stream;

pub(crate) use device::CpuDevice;
pub(crate) use memory::default_memory_bytes;
