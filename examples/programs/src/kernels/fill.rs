//! Kernels that allocate nothing: they fill memory of the host's pools, and check it.

use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::AtomicU64;
use warpheap_device::{kernel, thread};

/// The indices of this thread: every n-th of `len`, with n threads in all.
fn indices(len: u64) -> impl Iterator<Item = u64> {
    (u64::from(thread::index_1d())..len).step_by(thread::threads_1d() as usize)
}

kernel! {
    /// Sets all integers to `value`.
    ///
    /// # Safety
    /// The integers are live, and nothing else accesses them.
    pub unsafe fn fill_integers(integers: DeviceSlice<u32>, value: u32) {
        for i in indices(integers.len()) {
            // SAFETY: only this thread writes element `i`.
            unsafe { integers.set(i, value) };
        }
    }

    /// Sets all floats to `value`.
    ///
    /// # Safety
    /// The floats are live, and nothing else accesses them.
    pub unsafe fn fill_floats(floats: DeviceSlice<f32>, value: f32) {
        for i in indices(floats.len()) {
            // SAFETY: only this thread writes element `i`.
            unsafe { floats.set(i, value) };
        }
    }

    /// Adds the number of floats that differ from `value` to `count`.
    ///
    /// # Safety
    /// The floats and the count are live. The floats were written, and no thread writes them. Other
    /// kernels may add to the count.
    pub unsafe fn count_others(floats: DeviceSlice<f32>, value: f32, count: DevicePtr<u64>) {
        let mut others = 0;
        for i in indices(floats.len()) {
            // SAFETY: the floats were written, and are only read.
            others += u64::from(unsafe { floats.get(i) } != Some(value));
        }
        // SAFETY: the count is live, and an atomic has the layout of its integer.
        let count = unsafe { &*count.0.cast::<AtomicU64>() };
        // Relaxed: the host reads the count after the kernel has ended.
        count.add_relaxed(others);
    }
}
