//! Device memory in kernels' arguments.

use super::arg::{KernelArg, itself};

/// An address in device memory. To be read and written by kernels; on the host it is only a number.
#[derive(Debug)]
#[repr(transparent)]
pub struct DevicePtr<T>(pub *mut T);

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
// SAFETY: an address alone gives no access; every use of it is `unsafe` and says what it needs.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for DevicePtr<T> {}

impl<T> DevicePtr<T> {
    /// No address.
    pub const fn null() -> Self {
        DevicePtr(core::ptr::null_mut())
    }
}

// SAFETY: an address, 64 bits on both sides. Raw pointers are not `Send`, so they travel in `DevicePtr`.
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

/// An array in device memory: an address and a length, which may be any. To read or write it is `unsafe`.
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
// SAFETY: as for `DevicePtr`.
unsafe impl<T> Send for DeviceSlice<T> {}
// SAFETY: the same.
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
    /// `len` values from `ptr` on.
    ///
    /// # Safety
    /// The memory is `len` values of one allocation, aligned for `T`, and there for as long as kernels use the slice.
    pub const unsafe fn from_raw_parts(ptr: *mut T, len: u64) -> Self {
        DeviceSlice { ptr, len }
    }

    /// How many values.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it starts.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The value at `i`, or `None` past the end.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread: a slice can hold any address, and one
    /// in a GPU's memory is out of the host's reach. The value was written, and no other thread writes it now.
    #[inline(always)]
    pub unsafe fn get(&self, i: u64) -> Option<T> {
        if i >= self.len {
            return None;
        }
        // SAFETY: in bounds, of memory that is live by the caller's promise.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promise: live, accessible memory, and no race.
        Some(unsafe { place.read() })
    }

    /// Writes `value` at `i`. Returns whether that is inside.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread, as for [`get`](Self::get). No other
    /// thread reads or writes the value at `i` now.
    #[inline(always)]
    pub unsafe fn set(&self, i: u64, value: T) -> bool {
        if i >= self.len {
            return false;
        }
        // SAFETY: in bounds, of memory that is live by the caller's promise.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promise: live, accessible memory, and no race.
        unsafe { place.write(value) };
        true
    }
}
