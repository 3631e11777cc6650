//! The extension module of the Python package `warpheap`: heaps for kernels, and pools of device
//! memory.
//!
//! The package's Python modules build on it: `warpheap.numba`, `.cupy`, `.torch` and `.rmm`.
//! Calls that may wait for a device run without the GIL. Python cannot use an object after it was
//! closed ([`slot`]), so no call reaches freed memory of the library.

mod allocation;
mod convert;
mod device;
mod device_pools;
mod host_pools;
mod logs;
mod report;
mod slot;
mod streams;
mod torch;

use pyo3::prelude::*;

/// Heaps for kernels, pools of device memory, and replays of logs.
#[pymodule]
mod _warpheap {
    #[pymodule_export]
    use crate::allocation::Allocation;
    #[pymodule_export]
    use crate::device::{Device, default_device, device_library, inline_header};
    #[pymodule_export]
    use crate::device_pools::{Bump, FreeList, Heap};
    #[pymodule_export]
    use crate::host_pools::{BlockPool, CachingPool};
    #[pymodule_export]
    use crate::logs::{read_log, read_snapshot, replay};
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::torch::{torch_check_pools, torch_pool, torch_use_pools};
}
