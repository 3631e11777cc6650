//! Kernels to launch. `kernels.ptx` is what rustc 1.96 makes of this file for sm_70, without comments.

use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU32;
use warpheap_device::thread;

/// How often a kernel looks before it gives up: minutes.
const PATIENCE: u32 = 1 << 28;

/// The first value, as a flag for kernels that run at the same time.
///
/// # Safety
/// There is one, and it lives while the flag is used.
unsafe fn flag<'a>(values: DeviceSlice<u32>) -> &'a AtomicU32 {
    // SAFETY: the caller's promise; an `AtomicU32` has the layout of a `u32`.
    unsafe { &*values.as_ptr().cast() }
}

kernel! {
    /// Doubles every value.
    ///
    /// # Safety
    /// `values` is live and no one else touches it.
    pub unsafe fn double(values: DeviceSlice<u32>) {
        let i = thread::index_1d().into();
        // SAFETY: each thread touches its own value.
        if let Some(v) = unsafe { values.get(i) } {
            // SAFETY: the same.
            unsafe { values.set(i, v.wrapping_mul(2)) };
        }
    }

    /// Makes every value `value`.
    ///
    /// # Safety
    /// `values` is live and no one else touches it.
    pub unsafe fn fill(values: DeviceSlice<u32>, value: u32) {
        // SAFETY: each thread touches its own value.
        unsafe { values.set(thread::index_1d().into(), value) };
    }

    /// Appends a decimal digit to the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live and no one else touches it.
    pub unsafe fn append(values: DeviceSlice<u32>, digit: u32) {
        // SAFETY: the only thread.
        if let Some(v) = unsafe { values.get(0) } {
            // SAFETY: the same.
            unsafe { values.set(0, v.wrapping_mul(10).wrapping_add(digit)) };
        }
    }

    /// Raises the flag in the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live, not empty, and touched by `raise` and `wait` alone.
    pub unsafe fn raise(values: DeviceSlice<u32>) {
        // SAFETY: the caller's promise.
        let flag = unsafe { flag(values) };
        flag.store_release(1);
    }

    /// Waits for the flag in the first value, then makes it 2. For one thread.
    ///
    /// # Safety
    /// `values` is live, not empty, and touched by `raise` and `wait` alone.
    pub unsafe fn wait(values: DeviceSlice<u32>) {
        // SAFETY: the caller's promise.
        let flag = unsafe { flag(values) };
        for _ in 0..PATIENCE {
            if flag.load_acquire() == 1 {
                flag.store_release(2);
                return;
            }
            thread::nanosleep(1000);
        }
    }

    /// Spends about `micros` microseconds, then writes 1 to the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live and no one else touches it.
    pub unsafe fn linger(values: DeviceSlice<u32>, micros: u32) {
        let start = thread::global_timer_nanos();
        while thread::global_timer_nanos().wrapping_sub(start) < u64::from(micros) * 1000 {
            thread::nanosleep(1000);
        }
        // SAFETY: the only thread.
        unsafe { values.set(0, 1) };
    }

    /// Fails.
    ///
    /// # Safety
    /// Nothing.
    pub unsafe fn fail(_values: DeviceSlice<u32>) {
        thread::trap()
    }

    /// Has a parameter of every size.
    ///
    /// # Safety
    /// `out` is live and no one else touches it.
    pub unsafe fn sum(out: DeviceSlice<u64>, a: u8, b: u16, c: u32, d: u64, e: i8) {
        let all = u64::from(a) + u64::from(b) + u64::from(c) + d;
        // SAFETY: the only thread.
        unsafe { out.set(0, all.wrapping_add(e as i64 as u64)) };
    }
}
