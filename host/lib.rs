//! The host side of warpheap: devices, memory, and launches of kernels written in Rust.
//!
//! The same program runs its kernels on an NVIDIA GPU or on the CPU. [`Device::cuda`] loads the PTX
//! that the kernels were compiled to. [`Device::cpu`] calls the same functions natively. The rest
//! of the program does not change:
//!
//! ```
//! use warpheap::{Device, LaunchConfig};
//! use warpheap_device::{kernel, kernel::DeviceSlice, thread};
//!
//! kernel! {
//!     /// Doubles every value.
//!     ///
//!     /// # Safety
//!     /// `values` is live and nothing else accesses it.
//!     pub unsafe fn double(values: DeviceSlice<u32>) {
//!         let i = thread::index_1d().into();
//!         // SAFETY: `values` is live, and each thread accesses its own value.
//!         if let Some(v) = unsafe { values.get(i) } {
//!             // SAFETY: `values` is live, and each thread accesses its own value.
//!             unsafe { values.set(i, 2 * v) };
//!         }
//!     }
//! }
//!
//! # fn main() -> warpheap::Result<()> {
//! let device = Device::cpu();
//! let module = device.native_module()?;
//! let stream = device.stream()?;
//! let values = device.from_slice(&[1_u32, 2, 3])?;
//! // SAFETY: the buffer lives until the stream is done, and nothing else accesses it.
//! unsafe { stream.launch(&module, double, &LaunchConfig::linear(3, 256), (values.slice(),))? };
//! stream.synchronize()?;
//! assert_eq!(values.copy_to_vec()?, [2, 4, 6]);
//! # Ok(())
//! # }
//! ```
//!
//! Layers, each using only those before it: [`simt`] → [`driver`] → [`device_pools`] and
//! [`host_pools`], which do not use each other. All of them return [`Error`]; all pools report
//! their [`Usage`], and heaps and host pools a [`MemoryReport`].
#![cfg(not(loom))]

pub mod build_info;
mod bytes;
pub mod device_pools;
pub mod driver;
pub mod error;
#[cfg(test)]
mod faults;
pub mod host_pools;
mod kernel_test;
mod kernels;
mod lock;
pub mod nvtx;
mod report;
pub mod simt;
mod usage;

/// What macros of `warpheap-device` call.
#[doc(hidden)]
pub mod __private {
    pub use crate::kernel_test::{HeapAudit, launch_test, run_test};

    /// Whether a handle of the stream still exists, for tests of the bindings.
    pub fn lives(stream: &crate::Stream) -> impl Fn() -> bool + use<> {
        let (weak, device) = (stream.downgrade(), stream.device().clone());
        move || weak.upgrade(&device).is_some()
    }
}

pub use bytes::Bytes;
pub use driver::{
    Backend, Device, DeviceBuffer, DeviceInfo, DeviceMemory, Event, GrowableBuffer, KernelAttributes,
    KernelImage, LaunchConfig, Module, Stream, StreamId, Watchdog,
};
pub use error::{Error, Result};
pub use report::{Cell, FailedRequest, HeldBy, Holder, MemoryReport, report_out_of_memory};
pub use simt::OnPanic;
pub use usage::Usage;
pub use warpheap_device::device_data;
pub use warpheap_device::kernel::{Arg, DeviceData};
