//! Device memory as a kernel argument.

use super::arg::{KernelArg, itself};

/// An address in device memory, for kernels to read and write. On the host it is only a number.
#[derive(Debug)]
#[repr(transparent)]
pub struct DevicePtr<T>(pub *mut T);

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
// SAFETY: an address alone gives no access. Every use of it is `unsafe` and states its
// requirements.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: as for `Send`: an address alone gives no access.
unsafe impl<T> Sync for DevicePtr<T> {}

impl<T> DevicePtr<T> {
    /// The null address.
    pub const fn null() -> Self {
        DevicePtr(core::ptr::null_mut())
    }
}

// SAFETY: an address of 64 bits on both sides. Raw pointers are not `Send`, so `DevicePtr` wraps
// them.
unsafe impl<T: 'static> KernelArg for DevicePtr<T> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        if !self.0.is_null() {
            found(self.0 as u64, size_of::<T>() as u64);
        }
    }
}
itself! { [T: 'static] DevicePtr<T> }

/// An array in device memory: an address and a length, neither of which is checked. Reading or
/// writing it is `unsafe`.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceSlice<T> {
    ptr: *mut T,
    len: u64,
}

impl<T> Clone for DeviceSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DeviceSlice<T> {}
// SAFETY: as for `DevicePtr`: an address alone gives no access.
unsafe impl<T> Send for DeviceSlice<T> {}
// SAFETY: as for `DevicePtr`: an address alone gives no access.
unsafe impl<T> Sync for DeviceSlice<T> {}

const _: () = assert!(size_of::<DeviceSlice<u8>>() == 16 && align_of::<DeviceSlice<u8>>() == 8);

// SAFETY: an address and a length, the same on both sides.
unsafe impl<T: 'static> KernelArg for DeviceSlice<T> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        if self.len > 0 {
            found(self.ptr as u64, self.len.saturating_mul(size_of::<T>() as u64));
        }
    }
}
itself! { [T: 'static] DeviceSlice<T> }

impl<T: Copy> DeviceSlice<T> {
    /// `len` values that start at `ptr`.
    ///
    /// # Safety
    /// The memory holds `len` values in one allocation, is aligned for `T`, and stays valid while
    /// kernels use the slice.
    pub const unsafe fn from_raw_parts(ptr: *mut T, len: u64) -> Self {
        DeviceSlice { ptr, len }
    }

    /// The number of values.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the slice has no values.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first value.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The value at `i`, or `None` past the end.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread: a slice
    /// can hold any address, and the host cannot access a GPU's memory. The value was written, and
    /// no other thread writes it at the same time.
    #[inline(always)]
    pub unsafe fn get(&self, i: u64) -> Option<T> {
        if i >= self.len {
            return None;
        }
        // SAFETY: in bounds; the caller's first promise: live memory.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promises: live, aligned, accessible memory, and no race.
        Some(unsafe { place.read() })
    }

    /// Writes `value` at `i`. Returns whether `i` is in bounds.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread, as for
    /// [`get`](Self::get). No other thread reads or writes the value at `i` at the same time.
    #[inline(always)]
    pub unsafe fn set(&self, i: u64, value: T) -> bool {
        if i >= self.len {
            return false;
        }
        // SAFETY: in bounds; the caller's first promise: live memory.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promises: live, aligned, accessible memory, and no race.
        unsafe { place.write(value) };
        true
    }
}
