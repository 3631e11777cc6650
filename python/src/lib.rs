//! The extension module of the Python package `warpheap`: heaps for kernels, and pools of device
//! memory.
//!
//! The package's Python modules build on it: `warpheap.numba`, `.cupy`, `.torch` and `.rmm`.
//! Calls that may wait for a device run without the GIL. Python cannot use an object after it was
//! closed ([`slot`]), so no call reaches freed memory of the library.

mod allocation;
mod backing;
mod block_pool;
mod bump;
mod caching_pool;
mod convert;
mod device;
mod failure;
mod free_list;
mod heap;
mod logs;
mod pools;
mod report;
mod slot;
mod stream_uses;
mod streams;
mod torch;

use pyo3::prelude::*;

/// Heaps for kernels, pools of device memory, and replays of logs.
#[pymodule]
mod _warpheap {
    #[pymodule_export]
    use crate::allocation::Allocation;
    #[pymodule_export]
    use crate::block_pool::BlockPool;
    #[pymodule_export]
    use crate::bump::Bump;
    #[pymodule_export]
    use crate::caching_pool::CachingPool;
    #[pymodule_export]
    use crate::device::{Device, default_device, device_library, inline_header};
    #[pymodule_export]
    use crate::free_list::FreeList;
    #[pymodule_export]
    use crate::heap::Heap;
    #[pymodule_export]
    use crate::logs::{read_log, read_snapshot, replay};
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::torch::{torch_check_pools, torch_pool, torch_use_pools};
}
