//! One value in memory of an allocator.

use super::buffer::PoolBuffer;
use super::owned::{DeallocateError, PoolParts};
use crate::driver::Stream;
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, slice};
use warpheap_device::kernel::DeviceData;

/// One value of `T` in memory of an allocator, freed on its stream when this is dropped.
///
/// It dereferences to a [`PoolBuffer`] of one value.
#[must_use = "its memory is freed when it is dropped"]
pub struct PoolBox<T: Copy, A: DeviceAllocator = Arc<dyn DeviceAllocator>> {
    /// Contains exactly one value.
    values: PoolBuffer<T, A>,
}

impl<T: Copy, A: DeviceAllocator> PoolBox<T, A> {
    /// Allocates an uninitialised value for work that is submitted to `stream` from now on.
    ///
    /// # Errors
    /// The errors of [`DeviceAllocator::allocate`].
    pub fn new_uninit(allocator: A, stream: &Stream) -> Result<PoolBox<MaybeUninit<T>, A>> {
        Ok(PoolBox { values: PoolBuffer::<T, A>::new_uninit(allocator, 1, stream)? })
    }

    /// Moves the value to `stream`. See [`PoolBuffer::move_to`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or an error of the driver. The handle is
    /// unchanged then.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.values.move_to(stream)
    }

    /// Frees the memory as a drop does, and reports failures.
    ///
    /// # Errors
    /// The errors of [`PoolBuffer::deallocate`].
    pub fn deallocate(self) -> Result<(), DeallocateError<Self>> {
        self.values.deallocate().map_err(PoolBox::rewrap)
    }

    /// Frees the memory on `stream`, which waits on the device for the other streams that used it.
    ///
    /// # Errors
    /// The errors of [`PoolBuffer::deallocate_on`].
    pub fn deallocate_on(self, stream: &Stream) -> Result<(), DeallocateError<Self>> {
        self.values.deallocate_on(stream).map_err(PoolBox::rewrap)
    }

    fn rewrap(failed: DeallocateError<PoolBuffer<T, A>>) -> DeallocateError<Self> {
        let (error, values) = failed.into_parts();
        DeallocateError::new(error, PoolBox { values })
    }

    /// Converts this into a buffer of one value.
    pub fn into_buffer(self) -> PoolBuffer<T, A> {
        self.values
    }

    /// Decomposes the handle into its parts, with a `len` of 1. The memory is no longer freed
    /// automatically.
    pub fn into_raw(self) -> PoolParts<T, A> {
        self.values.into_raw()
    }

    /// Creates a handle from parts, whatever their `len`.
    ///
    /// # Safety
    /// P1 to P4 of [`PoolBuffer::from_raw`], for one value.
    pub unsafe fn from_raw(parts: PoolParts<T, A>) -> PoolBox<T, A> {
        let one = PoolParts { len: 1, ..parts };
        // SAFETY: the caller's promises P1 to P4, for `len == 1`.
        PoolBox { values: unsafe { PoolBuffer::from_raw(one) } }
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBox<MaybeUninit<T>, A> {
    /// Asserts that the value is initialised.
    ///
    /// # Safety
    /// The promise of [`PoolBuffer::assume_init`].
    pub unsafe fn assume_init(self) -> PoolBox<T, A> {
        // SAFETY: the caller's promise that the value is initialised.
        PoolBox { values: unsafe { self.values.assume_init() } }
    }
}

impl<T: DeviceData, A: DeviceAllocator> PoolBox<T, A> {
    /// Allocates a copy of `value` for work that is submitted to `stream` from now on. Waits on the
    /// host for the work submitted before.
    ///
    /// # Errors
    /// The errors of [`PoolBuffer::from_slice`].
    pub fn new(allocator: A, value: T, stream: &Stream) -> Result<PoolBox<T, A>> {
        Ok(PoolBox { values: PoolBuffer::from_slice(allocator, &[value], stream)? })
    }

    /// Allocates a value of zero bytes for work that is submitted to `stream` from now on. Nothing
    /// waits on the host.
    ///
    /// # Errors
    /// The errors of [`PoolBuffer::zeroed`].
    pub fn zeroed(allocator: A, stream: &Stream) -> Result<PoolBox<T, A>> {
        Ok(PoolBox { values: PoolBuffer::zeroed(allocator, 1, stream)? })
    }

    /// Copies the value to the host. Waits on the host for the work submitted so far that uses it.
    ///
    /// # Errors
    /// A failure on the stream since the last check.
    pub fn get(&self) -> Result<T> {
        let mut value = MaybeUninit::<T>::uninit();
        self.values.read_into(slice::from_mut(&mut value))?;
        // SAFETY: `read_into` has written it, and every bit pattern is a value (`DeviceData`).
        Ok(unsafe { value.assume_init() })
    }

    /// Replaces the value. Waits on the host for the work submitted so far that uses it.
    ///
    /// # Errors
    /// A failure on the stream since the last check.
    pub fn set(&mut self, value: T) -> Result<()> {
        self.values.write(0, &[value])
    }
}

impl<T: Copy, A: DeviceAllocator> Deref for PoolBox<T, A> {
    type Target = PoolBuffer<T, A>;

    fn deref(&self) -> &PoolBuffer<T, A> {
        &self.values
    }
}

impl<T: Copy, A: DeviceAllocator> fmt::Debug for PoolBox<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}
