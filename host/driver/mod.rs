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
mod code;
mod cpu;
mod cuda;
#[cfg(feature = "delays")]
mod delays;
mod device;
mod event;
#[cfg(test)]
pub(crate) mod fault_injection;
mod fork;
mod growable;
mod image;
mod launch;
mod memory;
mod module;
mod panics;
pub(crate) mod ptx;
mod registry;
mod reservation;
mod stream;
mod watchdog;

pub use backend::{Backend, DeviceInfo, KernelAttributes, StreamId};
pub(crate) use backend::{
    EventBackend, PoolAttribute, PoolBackend, PoolOrigin, Range, StreamWatcher, Transfer,
};
pub use buffer::DeviceBuffer;
#[cfg(feature = "delays")]
pub use delays::ActiveDelays;
pub use device::Device;
pub use event::Event;
pub use fork::check_process;
pub use growable::GrowableBuffer;
pub use image::KernelImage;
pub use launch::LaunchConfig;
pub use memory::DeviceMemory;
pub use module::Module;
pub use ptx::link_inputs;
pub use stream::Stream;
pub(crate) use stream::WeakStream;
pub use warpheap_device::kernel::Kernel;
pub use watchdog::Watchdog;
