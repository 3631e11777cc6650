//! Arrays in memory of an allocator.

use super::error::DeallocateError;
use super::owned::{Owned, Parts};
use super::parts::PoolParts;
use crate::alloc::{DeviceAllocator, address_of, lock};
use crate::driver::{Device, Stream};
use crate::error::{Bytes, InvalidRequest, Result};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

/// `len` values of `T` in memory of an allocator, given back on their stream when this is dropped.
///
/// `A` is what it holds of the allocator: `&P` or `Arc<P>` of any, `dyn DeviceAllocator` among
/// them, or an allocator itself. It is `Send` and `Sync` as `T` is. With no values, or values of no
/// bytes, it takes nothing of the allocator.
///
/// Dropping it never waits on the host, unless it cannot be freed on its stream: then it waits for
/// the device and tries once more. What cannot be freed then is logged as a warning, and stays
/// allocated until its allocator goes.
#[must_use = "it gives its memory back when it is dropped"]
pub struct PoolBuffer<T: Copy, A: DeviceAllocator = Arc<dyn DeviceAllocator>> {
    pub(super) owned: Owned<A>,
    len: usize,
    _values: PhantomData<T>,
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<T, A> {
    /// `len` values that no one has written yet, for work that `stream` is given from now on.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`](crate::Error::InvalidRequest), and what
    /// [`DeviceAllocator::allocate`] answers.
    pub fn new_uninit(allocator: A, len: usize, stream: &Stream) -> Result<PoolBuffer<MaybeUninit<T>, A>> {
        let element = Bytes(size_of::<T>() as u64);
        let layout = Layout::array::<T>(len).map_err(|_| InvalidRequest::SizeOverflow { len, element })?;
        Ok(PoolBuffer::over(Owned::allocate(allocator, layout, stream)?, len))
    }

    /// It has `len` values of `T`.
    fn over(owned: Owned<A>, len: usize) -> PoolBuffer<T, A> {
        PoolBuffer { owned, len, _values: PhantomData }
    }

    fn parts(&self) -> &Parts<A> {
        self.owned.parts()
    }

    /// The device it is memory of.
    pub fn device(&self) -> &Device {
        self.parts().device()
    }

    /// What it is allocated from.
    pub fn allocator(&self) -> &A {
        &self.parts().allocator
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        // Fits: the memory is there.
        (self.len * size_of::<T>()) as u64
    }

    /// Its first address, a `CUdeviceptr`; 0 if there are no bytes.
    pub fn address(&self) -> u64 {
        address_of(self.parts().ptr)
    }

    /// All values, for a kernel's argument.
    ///
    /// Launching on another stream than this one's needs [`record_stream`](Self::record_stream) or
    /// [`move_to`](Self::move_to). A launch does not check that the block is still allocated: its
    /// caller promises that (P3 of [`Stream::launch`]).
    pub fn slice(&self) -> DeviceSlice<T> {
        // SAFETY: the whole buffer; the caller of a launch promises that it is still there (P3).
        unsafe { DeviceSlice::from_raw_parts(self.ptr().0, self.len as u64) }
    }

    /// The first value, for a kernel's argument, as [`slice`](Self::slice).
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr(self.parts().ptr.0.cast())
    }

    /// The stream whose work uses the values, and on which they are given back.
    pub fn stream(&self) -> &Stream {
        &self.parts().home
    }

    /// Says that work of `stream` uses the values, too. Whatever is done with the handle from then
    /// on waits on the device for all that `stream` was given until then: copies,
    /// [`move_to`](Self::move_to), the free.
    ///
    /// It orders nothing by itself: the other stream has to wait for whoever wrote the values
    /// ([`Stream::wait`]). The handle keeps the stream until then.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.parts().record(stream)
    }

    /// Passes the values on to `stream`: it waits on the device for all work that used them so far,
    /// and from now on it is the handle's stream. One that goes on using them has to be recorded
    /// again.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or what the driver answers. The handle is
    /// as it was then.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.owned.move_to(stream)
    }

    /// What dropping it does, and says if it failed.
    ///
    /// # Errors
    /// What [`DeviceAllocator::deallocate`] and the driver answer, with the handle, as it was.
    pub fn deallocate(self) -> Result<(), DeallocateError<Self>> {
        let len = self.len;
        self.owned.deallocate(None, |owned| PoolBuffer::over(owned, len))
    }

    /// Gives the memory back on `stream`, which waits on the device for the other streams that used
    /// it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), and what [`DeviceAllocator::deallocate`]
    /// and the driver answer, with the handle, as it was.
    pub fn deallocate_on(self, stream: &Stream) -> Result<(), DeallocateError<Self>> {
        let len = self.len;
        self.owned.deallocate(Some(stream), |owned| PoolBuffer::over(owned, len))
    }

    /// Its parts. Nothing is given back by itself any more.
    pub fn into_raw(self) -> PoolParts<T, A> {
        let Parts { ptr, layout, home, recorded, allocator } = self.owned.into_parts();
        let recorded = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        PoolParts { ptr: DevicePtr(ptr.0.cast()), len: self.len, layout, stream: home, recorded, allocator }
    }

    /// A handle of those parts. The values may be of another type than before.
    ///
    /// # Safety
    /// `ptr` is a live block that was allocated from `allocator` with `layout`, and nobody else
    /// gives it back; without bytes, it is null. `layout` has room for `len` values of `T`, is
    /// aligned for them, and they were written, unless `T` is a [`MaybeUninit`]. All work that may
    /// use them is work of `stream` or of the streams that are `recorded`, or one of them is
    /// ordered after it. All these are of the allocator's device.
    pub unsafe fn from_raw(parts: PoolParts<T, A>) -> PoolBuffer<T, A> {
        let PoolParts { ptr, len, layout, stream, recorded, allocator } = parts;
        let (ptr, recorded) = (DevicePtr(ptr.0.cast()), Mutex::new(recorded));
        debug_assert!(Layout::array::<T>(len).is_ok_and(|of| of.size() <= layout.size()));
        debug_assert!(address_of(ptr).is_multiple_of(align_of::<T>() as u64));
        PoolBuffer::over(Owned::from_parts(Parts { ptr, layout, home: stream, recorded, allocator }), len)
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<MaybeUninit<T>, A> {
    /// All values, for the argument of a kernel that writes them.
    pub fn slice_to_init(&self) -> DeviceSlice<T> {
        // SAFETY: the whole buffer, of the same layout; the caller of a launch promises that it is
        // still there (P3). To read a value is `unsafe` and needs that it was written.
        unsafe { DeviceSlice::from_raw_parts(self.ptr_to_init().0, self.len as u64) }
    }

    /// The first value, for the argument of a kernel that writes it.
    pub fn ptr_to_init(&self) -> DevicePtr<T> {
        DevicePtr(self.parts().ptr.0.cast())
    }

    /// The same buffer, of values that were written.
    ///
    /// # Safety
    /// Each of them is a value of `T`, written by work that its stream or a recorded one was given,
    /// or was ordered after.
    pub unsafe fn assume_init(self) -> PoolBuffer<T, A> {
        PoolBuffer::over(self.owned, self.len)
    }
}

impl<T: Copy, A: DeviceAllocator> fmt::Debug for PoolBuffer<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, of) = (Bytes(self.bytes()), std::any::type_name::<T>());
        write!(f, "{} × {of}: {bytes} at {:#x} of {}", self.len, self.address(), self.device())?;
        let others = lock(&self.parts().recorded).len();
        write!(f, ", of stream {} and {others} others", self.stream().id())
    }
}
