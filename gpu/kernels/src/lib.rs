//! The kernels of the stress harness, the benchmarks and the self-tests: entry points, no logic.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

pub mod selftest;

use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

kernel! {
    /// Every thread stores its index: the least that a kernel can do, and whether the device works at all.
    ///
    /// # Safety
    /// `to` is live and no one else touches it.
    pub unsafe fn store_index(to: DeviceSlice<u32>) {
        let i = thread::index_1d();
        // SAFETY: each thread writes its own word.
        unsafe { to.set(i.into(), i) };
    }
}
