//! Arrays in memory of an allocator.

use super::owned::{DeallocateError, OwnedParts, PoolParts};
use crate::driver::{Device, Stream};
use crate::error::{Bytes, InvalidRequest, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::lock::lock;
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::{Arc, Mutex, PoisonError};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

/// `len` values of `T` in memory of an allocator, freed on their stream when this is dropped.
///
/// `A` is the reference to the allocator: `&P` or `Arc<P>` of any allocator, including `dyn
/// DeviceAllocator`, or an allocator itself. The buffer is `Send` and `Sync` if `T` is. With no
/// values, or zero-sized values, it allocates nothing.
///
/// A drop does not wait on the host, unless the memory cannot be freed on its stream: then it waits
/// for the device and retries once. If that fails too, a warning is logged and the memory stays
/// allocated until its allocator is dropped.
#[must_use = "its memory is freed when it is dropped"]
pub struct PoolBuffer<T: Copy, A: DeviceAllocator = Arc<dyn DeviceAllocator>> {
    /// Taken out when the handle ends, and never used afterwards.
    parts: ManuallyDrop<OwnedParts<A>>,
    len: usize,
    _values: PhantomData<T>,
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<T, A> {
    /// Allocates `len` uninitialised values for work that is submitted to `stream` from now on.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`](crate::Error::InvalidRequest), and the errors of
    /// [`DeviceAllocator::allocate`].
    pub fn new_uninit(allocator: A, len: usize, stream: &Stream) -> Result<PoolBuffer<MaybeUninit<T>, A>> {
        let element = Bytes(size_of::<T>() as u64);
        let layout = Layout::array::<T>(len).map_err(|_| InvalidRequest::SizeOverflow { len, element })?;
        Ok(PoolBuffer::from_parts(OwnedParts::allocate(allocator, layout, stream)?, len))
    }

    /// Wraps memory that holds `len` values of `T`. Requires I1 and I2 of the parts.
    fn from_parts(parts: OwnedParts<A>, len: usize) -> PoolBuffer<T, A> {
        PoolBuffer { parts: ManuallyDrop::new(parts), len, _values: PhantomData }
    }

    /// Ends the handle without freeing the memory.
    fn into_parts(self) -> OwnedParts<A> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used again nor dropped, so the parts are taken once.
        unsafe { ManuallyDrop::take(&mut this.parts) }
    }

    pub(super) fn parts(&self) -> &OwnedParts<A> {
        &self.parts
    }

    /// The device that the memory belongs to.
    pub fn device(&self) -> &Device {
        self.parts().device()
    }

    /// The allocator of the memory.
    pub fn allocator(&self) -> &A {
        &self.parts().allocator
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        // Cannot overflow: the memory is allocated.
        (self.len * size_of::<T>()) as u64
    }

    /// Start address, a `CUdeviceptr`; 0 if the size is 0.
    pub fn address(&self) -> u64 {
        self.parts().address()
    }

    /// All values, as a kernel argument.
    ///
    /// A launch on a stream other than this buffer's needs [`record_stream`](Self::record_stream)
    /// or [`move_to`](Self::move_to). A launch does not check that the block is still allocated:
    /// its caller promises that (P3 of [`Stream::launch`]).
    pub fn slice(&self) -> DeviceSlice<T> {
        // SAFETY: the entire buffer. The caller of a launch promises that it is still allocated (P3
        // of `launch`).
        unsafe { DeviceSlice::from_raw_parts(self.ptr().0, self.len as u64) }
    }

    /// The first value, as a kernel argument. See [`slice`](Self::slice).
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr(self.parts().ptr.0.cast())
    }

    /// The handle's stream: its work uses the values, and they are freed on it.
    pub fn stream(&self) -> &Stream {
        &self.parts().alloc_stream
    }

    /// Records that work of `stream` uses the values too. Later operations on the handle (copies,
    /// [`move_to`](Self::move_to), the free) wait on the device for all work that was submitted to
    /// `stream` before them.
    ///
    /// This creates no other ordering: `stream` must wait for the work that writes the values
    /// ([`Stream::wait`]). The handle keeps a reference to the stream until the memory is freed or
    /// moved.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.parts().record(stream)
    }

    /// Moves the values to `stream`: it waits on the device for all work that used them so far, and
    /// becomes the handle's stream. A stream that continues to use the values must be recorded
    /// again.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or an error of the driver. The handle is
    /// unchanged then.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.parts.move_to(stream)
    }

    /// Frees the memory as a drop does, and reports failures.
    ///
    /// # Errors
    /// The errors of [`DeviceAllocator::deallocate`] and of the driver, with the unchanged handle.
    pub fn deallocate(self) -> Result<(), DeallocateError<Self>> {
        self.end(None)
    }

    /// Frees the memory on `stream`, which waits on the device for the other streams that used it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), and the errors of
    /// [`DeviceAllocator::deallocate`] and of the driver, with the unchanged handle.
    pub fn deallocate_on(self, stream: &Stream) -> Result<(), DeallocateError<Self>> {
        self.end(Some(stream))
    }

    /// Frees the memory on `stream`, or on its own stream.
    fn end(self, stream: Option<&Stream>) -> Result<(), DeallocateError<Self>> {
        // Not in a handle meanwhile: if the free panics, the drop of a handle would free again.
        let (len, parts) = (self.len, self.into_parts());
        match parts.free(stream.unwrap_or(&parts.alloc_stream)) {
            Ok(()) => Ok(()),
            Err(error) => Err(DeallocateError::new(error, PoolBuffer::from_parts(parts, len))),
        }
    }

    /// Decomposes the handle into its parts. The memory is no longer freed automatically.
    pub fn into_raw(self) -> PoolParts<T, A> {
        let len = self.len;
        let OwnedParts { ptr, layout, alloc_stream, recorded, allocator } = self.into_parts();
        let recorded = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        PoolParts { ptr: DevicePtr(ptr.0.cast()), len, layout, stream: alloc_stream, recorded, allocator }
    }

    /// Creates a handle from parts. The values may have another type than before.
    ///
    /// # Safety
    /// - P1: `ptr` is a live block that was allocated from `allocator` with `layout`, and no other
    ///   code frees it. It is null if `layout` has zero bytes.
    /// - P2: `layout` has room for `len` values of `T` and is aligned for them, and the values were
    ///   written, unless `T` is a [`MaybeUninit`].
    /// - P3: all work that may use the block belongs to `stream` or to a stream in `recorded`, or
    ///   one of these is ordered after it.
    /// - P4: all these streams belong to the allocator's device.
    pub unsafe fn from_raw(parts: PoolParts<T, A>) -> PoolBuffer<T, A> {
        let PoolParts { ptr, len, layout, stream, recorded, allocator } = parts;
        let (ptr, recorded) = (DevicePtr(ptr.0.cast()), Mutex::new(recorded));
        debug_assert!(Layout::array::<T>(len).is_ok_and(|of| of.size() <= layout.size()));
        debug_assert!(address_of(ptr).is_multiple_of(align_of::<T>() as u64));
        PoolBuffer::from_parts(OwnedParts { ptr, layout, alloc_stream: stream, recorded, allocator }, len)
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<MaybeUninit<T>, A> {
    /// All values, as an argument of a kernel that initialises them.
    pub fn slice_to_init(&self) -> DeviceSlice<T> {
        // SAFETY: the entire buffer, with the layout of `T`. The caller of a launch promises that
        // it is still allocated (P3 of `launch`). Reading a value is `unsafe` and requires that it
        // was written.
        unsafe { DeviceSlice::from_raw_parts(self.ptr_to_init().0, self.len as u64) }
    }

    /// The first value, as an argument of a kernel that initialises it.
    pub fn ptr_to_init(&self) -> DevicePtr<T> {
        DevicePtr(self.parts().ptr.0.cast())
    }

    /// Asserts that the values are initialised.
    ///
    /// # Safety
    /// Each value is a valid `T`, written by work that was submitted to the buffer's stream or a
    /// recorded one, or that one of these is ordered after.
    pub unsafe fn assume_init(self) -> PoolBuffer<T, A> {
        let len = self.len;
        PoolBuffer::from_parts(self.into_parts(), len)
    }
}

impl<T: Copy, A: DeviceAllocator> Drop for PoolBuffer<T, A> {
    fn drop(&mut self) {
        // SAFETY: `self` is not used after this, so the parts are taken once.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        parts.free_or_log();
    }
}

impl<T: Copy, A: DeviceAllocator> fmt::Debug for PoolBuffer<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, name) = (Bytes(self.bytes()), std::any::type_name::<T>());
        write!(f, "{} × {name}: {bytes} at {:#x} of {}", self.len, self.address(), self.device())?;
        let others = lock(&self.parts().recorded).len();
        write!(f, ", of stream {} and {others} others", self.stream().id())
    }
}
