//! A kernel that allocates nothing.

use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

kernel! {
    /// Writes the square of each value, times `factor`. Each thread computes every n-th value, with
    /// n threads in all.
    ///
    /// # Safety
    /// Both slices are live. The values were written, and no thread writes them. Nothing else
    /// accesses `squares`.
    pub unsafe fn square(values: DeviceSlice<f32>, factor: f32, squares: DeviceSlice<f32>) {
        let (first, threads) = (thread::index_1d(), thread::threads_1d());
        for i in (u64::from(first)..squares.len()).step_by(threads as usize) {
            // SAFETY: the values were written, and are only read.
            let Some(value) = (unsafe { values.get(i) }) else { return };
            // SAFETY: only this thread writes element `i`.
            unsafe { squares.set(i, factor * value * value) };
        }
    }
}
