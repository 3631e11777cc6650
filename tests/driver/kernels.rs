//! Kernels that the tests launch. `kernels.ptx` is the output of rustc 1.96 for this file and
//! sm_70, without comments. It is not compared with this file: a launch on a GPU compares the
//! parameters, and `tests/ptx/modules.rs` passes the PTX to ptxas.

use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU32;
use warpheap_device::thread;

/// Maximum number of polls before a kernel gives up: minutes.
const PATIENCE: u32 = 1 << 28;

/// The first value, as a flag shared by concurrent kernels.
///
/// # Safety
/// `values` is not empty and stays live while the flag is used.
unsafe fn flag<'a>(values: DeviceSlice<u32>) -> &'a AtomicU32 {
    // SAFETY: `values` is not empty and live, as `flag` requires; an `AtomicU32` has the layout of
    // a `u32`.
    unsafe { &*values.as_ptr().cast() }
}

kernel! {
    /// Doubles every value.
    ///
    /// # Safety
    /// `values` is live and nothing else accesses it.
    pub unsafe fn double(values: DeviceSlice<u32>) {
        let i = thread::index_1d().into();
        // SAFETY: each thread accesses its own value only.
        if let Some(v) = unsafe { values.get(i) } {
            // SAFETY: each thread accesses its own value only.
            unsafe { values.set(i, v.wrapping_mul(2)) };
        }
    }

    /// Sets every value to `value`.
    ///
    /// # Safety
    /// `values` is live and nothing else accesses it.
    pub unsafe fn fill(values: DeviceSlice<u32>, value: u32) {
        // SAFETY: each thread accesses its own value only.
        unsafe { values.set(thread::index_1d().into(), value) };
    }

    /// Appends a decimal digit to the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live and nothing else accesses it.
    pub unsafe fn append(values: DeviceSlice<u32>, digit: u32) {
        // SAFETY: this is the only thread.
        if let Some(v) = unsafe { values.get(0) } {
            // SAFETY: this is the only thread.
            unsafe { values.set(0, v.wrapping_mul(10).wrapping_add(digit)) };
        }
    }

    /// Raises the flag in the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live, not empty, and accessed by `raise` and `wait` only.
    pub unsafe fn raise(values: DeviceSlice<u32>) {
        // SAFETY: `raise` requires that `values` is live and not empty.
        let flag = unsafe { flag(values) };
        flag.store_release(1);
    }

    /// Waits for the flag in the first value, then sets it to 2. For one thread.
    ///
    /// # Safety
    /// `values` is live, not empty, and accessed by `raise` and `wait` only.
    pub unsafe fn wait(values: DeviceSlice<u32>) {
        // SAFETY: `wait` requires that `values` is live and not empty.
        let flag = unsafe { flag(values) };
        for _ in 0..PATIENCE {
            if flag.load_acquire() == 1 {
                flag.store_release(2);
                return;
            }
            thread::nanosleep(1000);
        }
    }

    /// Runs for about `micros` microseconds, then writes 1 to the first value. For one thread.
    ///
    /// # Safety
    /// `values` is live and nothing else accesses it.
    pub unsafe fn linger(values: DeviceSlice<u32>, micros: u32) {
        let start = thread::global_timer_nanos();
        while thread::global_timer_nanos().wrapping_sub(start) < u64::from(micros) * 1000 {
            thread::nanosleep(1000);
        }
        // SAFETY: this is the only thread.
        unsafe { values.set(0, 1) };
    }

    /// Traps.
    ///
    /// # Safety
    /// No requirement.
    pub unsafe fn fail(_values: DeviceSlice<u32>) {
        thread::trap()
    }

    /// Takes a parameter of every size and stores their sum.
    ///
    /// # Safety
    /// `out` is live and nothing else accesses it.
    pub unsafe fn sum(out: DeviceSlice<u64>, a: u8, b: u16, c: u32, d: u64, e: i8) {
        let all = u64::from(a) + u64::from(b) + u64::from(c) + d;
        // SAFETY: this is the only thread.
        unsafe { out.set(0, all.wrapping_add(e as i64 as u64)) };
    }
}
