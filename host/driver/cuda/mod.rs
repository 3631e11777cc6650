//! NVIDIA GPUs, through the driver API. No cudarc type is used outside this folder.

mod context;
mod device;
mod memory;
mod module;
mod panics;
mod stack;
mod stream;
mod sys;

pub(super) use device::{CudaDevice, count, current_context};
