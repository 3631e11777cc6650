//! What a GPU and the CPU implement, each in its own way, from plain data upwards:
//! `info → stream → queue → memory → device`.

mod device;
mod info;
mod memory;
mod queue;
mod stream;

pub(crate) use device::{DeviceBackend, Image, ModuleBackend};
pub use info::{Backend, DeviceInfo, KernelAttributes};
pub(crate) use info::{Limits, Range, RawDeviceInfo};
pub(crate) use memory::{Pages, PoolAttribute, PoolBackend, PoolOrigin, VirtualMemory};
pub use queue::StreamId;
pub(crate) use queue::{Queue, StreamWatcher};
pub(crate) use stream::{
    CpuJob, EventBackend, Function, Launch, StreamBackend, Transfer, Transfers, own_event,
};
