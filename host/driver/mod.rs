//! Devices, streams, events, memory, modules and launches. One API for the GPU and the CPU.
//!
//! ```text
//!   Device ─┬─ DeviceBuffer ── DeviceMemory ─┐
//!           ├─ Module                        ├─ Stream::launch ── checks ── backend
//!           └─ Stream ── Event ──────────────┘
//! ```
//!
//! The public types check arguments and keep resources alive. The differences between the GPU and
//! the CPU are behind the traits of `backend`, which `cuda` and `cpu` implement. Calls that block
//! (copies of a [`DeviceBuffer`], [`Device::synchronize`]) first wait for all work submitted to the
//! device so far.

mod backend;
mod buffer;
mod cpu;
mod cuda;
mod device;
mod event;
#[cfg(test)]
pub(crate) mod fault_injection;
mod image;
mod launch;
mod memory;
mod module;
pub(crate) mod ptx;
#[cfg(test)]
mod races;
mod registry;
mod reservation;
mod stream;
mod watchdog;

pub use backend::{Backend, KernelAttributes};
pub(crate) use backend::{EventBackend, PoolAttribute, PoolBackend, Range, VirtualMemory};
pub use buffer::DeviceBuffer;
pub use device::{Device, DeviceInfo};
pub use event::Event;
pub use image::KernelImage;
pub use launch::LaunchConfig;
pub use memory::DeviceMemory;
pub use module::Module;
pub(crate) use reservation::Reservation;
pub use stream::{Stream, StreamId};
pub(crate) use stream::{StreamWatcher, WeakStream};
pub use warpheap_device::kernel::Kernel;
pub use watchdog::Watchdog;
