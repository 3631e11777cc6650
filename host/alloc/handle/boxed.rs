//! One value in memory of an allocator.

use super::buffer::PoolBuffer;
use super::error::DeallocateError;
use super::parts::PoolParts;
use crate::alloc::DeviceAllocator;
use crate::driver::{Device, Stream};
use crate::error::Result;
use std::fmt;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;
use warpheap_device::kernel::{DeviceData, DevicePtr, DeviceSlice};

/// One value of `T` in memory of an allocator, given back on its stream when this is dropped. In everything else, too, it is a
/// [`PoolBuffer`] of one value.
#[must_use = "it gives its memory back when it is dropped"]
pub struct PoolBox<T: Copy, A: DeviceAllocator = Arc<dyn DeviceAllocator>> {
    /// It has one value.
    values: PoolBuffer<T, A>,
}

impl<T: Copy, A: DeviceAllocator> PoolBox<T, A> {
    /// A value that no one has written yet, for work that `stream` is given from now on.
    ///
    /// # Errors
    /// What [`DeviceAllocator::allocate`] answers.
    pub fn new_uninit(allocator: A, stream: &Stream) -> Result<PoolBox<MaybeUninit<T>, A>> {
        Ok(PoolBox { values: PoolBuffer::<T, A>::new_uninit(allocator, 1, stream)? })
    }

    /// The device it is memory of.
    pub fn device(&self) -> &Device {
        self.values.device()
    }

    /// What it is allocated from.
    pub fn allocator(&self) -> &A {
        self.values.allocator()
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.values.bytes()
    }

    /// Its address, a `CUdeviceptr`; 0 if there are no bytes.
    pub fn address(&self) -> u64 {
        self.values.address()
    }

    /// The value, for a kernel's argument, as [`PoolBuffer::slice`].
    pub fn ptr(&self) -> DevicePtr<T> {
        self.values.ptr()
    }

    /// The value as an array of one, for a kernel's argument, as [`PoolBuffer::slice`].
    pub fn slice(&self) -> DeviceSlice<T> {
        self.values.slice()
    }

    /// The stream whose work uses the value, and on which it is given back.
    pub fn stream(&self) -> &Stream {
        self.values.stream()
    }

    /// As [`PoolBuffer::record_stream`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.values.record_stream(stream)
    }

    /// As [`PoolBuffer::move_to`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or what the driver answers. The handle is as it was then.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.values.move_to(stream)
    }

    /// What dropping it does, and says if it failed.
    ///
    /// # Errors
    /// As for [`PoolBuffer::deallocate`].
    pub fn deallocate(self) -> Result<(), DeallocateError<Self>> {
        self.values.deallocate().map_err(PoolBox::whole)
    }

    /// Gives the memory back on `stream`, which waits on the device for the other streams that used it.
    ///
    /// # Errors
    /// As for [`PoolBuffer::deallocate_on`].
    pub fn deallocate_on(self, stream: &Stream) -> Result<(), DeallocateError<Self>> {
        self.values.deallocate_on(stream).map_err(PoolBox::whole)
    }

    fn whole(failed: DeallocateError<PoolBuffer<T, A>>) -> DeallocateError<Self> {
        let (error, values) = failed.into_parts();
        DeallocateError::new(error, PoolBox { values })
    }

    /// A buffer of this one value.
    pub fn into_buffer(self) -> PoolBuffer<T, A> {
        self.values
    }

    /// Its parts, of which `len` is 1. Nothing is given back by itself any more.
    pub fn into_raw(self) -> PoolParts<T, A> {
        self.values.into_raw()
    }

    /// A handle of those parts, whatever their `len`.
    ///
    /// # Safety
    /// As for [`PoolBuffer::from_raw`], of one value.
    pub unsafe fn from_raw(parts: PoolParts<T, A>) -> PoolBox<T, A> {
        let one = PoolParts { len: 1, ..parts };
        // SAFETY: the caller's promise.
        PoolBox { values: unsafe { PoolBuffer::from_raw(one) } }
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBox<MaybeUninit<T>, A> {
    /// The value, for the argument of a kernel that writes it.
    pub fn ptr_to_init(&self) -> DevicePtr<T> {
        self.values.ptr_to_init()
    }

    /// The same handle, of a value that was written.
    ///
    /// # Safety
    /// As for [`PoolBuffer::assume_init`].
    pub unsafe fn assume_init(self) -> PoolBox<T, A> {
        // SAFETY: the caller's promise.
        PoolBox { values: unsafe { self.values.assume_init() } }
    }
}

impl<T: DeviceData, A: DeviceAllocator> PoolBox<T, A> {
    /// A copy of `value`, for work that `stream` is given from now on. Waits for the work that it was given before.
    ///
    /// # Errors
    /// As for [`PoolBuffer::from_slice`].
    pub fn new(allocator: A, value: T, stream: &Stream) -> Result<PoolBox<T, A>> {
        Ok(PoolBox { values: PoolBuffer::from_slice(allocator, &[value], stream)? })
    }

    /// A value of zero bytes, for work that `stream` is given from now on. Nothing waits on the host.
    ///
    /// # Errors
    /// As for [`PoolBuffer::zeroed`].
    pub fn zeroed(allocator: A, stream: &Stream) -> Result<PoolBox<T, A>> {
        Ok(PoolBox { values: PoolBuffer::zeroed(allocator, 1, stream)? })
    }

    /// The value, after the work that uses it so far, which it waits for.
    ///
    /// # Errors
    /// What failed since on the stream.
    pub fn get(&self) -> Result<T> {
        let mut value = MaybeUninit::<T>::uninit();
        self.values.read_into(slice::from_mut(&mut value))?;
        // SAFETY: it was just written, and any bytes are a value.
        Ok(unsafe { value.assume_init() })
    }

    /// Replaces the value, after the work that uses it so far, which it waits for.
    ///
    /// # Errors
    /// What failed since on the stream.
    pub fn set(&mut self, value: T) -> Result<()> {
        self.values.write(0, &[value])
    }
}

impl<T: Copy, A: DeviceAllocator> fmt::Debug for PoolBox<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}
