//! NVIDIA GPUs, through the driver API. No cudarc type is used outside this folder.

mod attributes;
mod context;
mod cubin;
mod device;
mod link;
mod memory;
mod module;
mod panics;
mod pool;
mod stack;
mod stream;
mod sys;
mod virtual_memory;

pub(super) use device::{CudaDevice, count, current_context};
