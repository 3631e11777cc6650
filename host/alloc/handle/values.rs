//! What the host puts into a buffer and gets out of it.

use super::buffer::PoolBuffer;
use crate::alloc::DeviceAllocator;
use crate::driver::Stream;
use crate::error::{Bytes, Error, Result};
use std::mem::MaybeUninit;
use warpheap_device::kernel::DeviceData;

impl<T: DeviceData, A: DeviceAllocator> PoolBuffer<T, A> {
    /// `len` values of zero bytes, for work that `stream` is given from now on. Nothing waits on the host.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`], and what [`DeviceAllocator::allocate`] and the driver answer.
    pub fn zeroed(allocator: A, len: usize, stream: &Stream) -> Result<PoolBuffer<T, A>> {
        let buffer = PoolBuffer::<T, A>::new_uninit(allocator, len, stream)?;
        // SAFETY: all of it, and it is new.
        unsafe { buffer.owned.fill(buffer.bytes(), 0) }?;
        // SAFETY: any bytes are values, and these were written, as work of its stream.
        Ok(unsafe { buffer.assume_init() })
    }

    /// A copy of `values`, for work that `stream` is given from now on. Waits for the work that it was given before.
    ///
    /// # Errors
    /// What [`DeviceAllocator::allocate`] answers, or what failed since on the stream.
    pub fn from_slice(allocator: A, values: &[T], stream: &Stream) -> Result<PoolBuffer<T, A>> {
        let buffer = PoolBuffer::<T, A>::new_uninit(allocator, values.len(), stream)?;
        // SAFETY: it is to be written before anyone reads it: here.
        let mut buffer = unsafe { buffer.assume_init() };
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// A copy of all values, after the work that uses them so far, which it waits for.
    ///
    /// # Errors
    /// What failed since on the stream.
    pub fn copy_to_vec(&self) -> Result<Vec<T>> {
        let mut values: Vec<T> = Vec::with_capacity(self.len());
        self.read_into(&mut values.spare_capacity_mut()[..self.len()])?;
        // SAFETY: all of them were just written, and any bytes are values.
        unsafe { values.set_len(self.len()) };
        Ok(values)
    }

    /// Writes the first values to all of `to`, which are no more.
    pub(super) fn read_into(&self, to: &mut [MaybeUninit<T>]) -> Result<()> {
        // SAFETY: `to` is borrowed until the next call has returned: then the stream has written it, or does nothing more.
        unsafe { self.owned.read(self.offset(0, to.len())?, to.as_mut_ptr().cast(), size_of_val(to)) }?;
        self.wait_for(size_of_val(to))
    }

    /// Waits for a copy of `bytes` bytes. It is over also after a failure: what it copies may be the caller's no longer.
    fn wait_for(&self, bytes: usize) -> Result<()> {
        let wait = || self.stream().synchronize().inspect_err(|_| self.device().driver().drain());
        if bytes > 0 { wait() } else { Ok(()) }
    }

    /// Replaces all values, after the work that uses them so far, which it waits for.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] unless there are as many in `values`, or what failed since on the stream.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len() {
            return Err(self.out_of_range(0, values.len(), "the buffer, exactly,"));
        }
        self.write(0, values)
    }

    /// Replaces the values from number `first` on, after the work that uses them so far, which it waits for.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if there are fewer, or what failed since on the stream.
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<()> {
        // SAFETY: `values` is borrowed until the next call has returned: then the stream has read it, or does nothing more.
        unsafe { self.write_async(first, values) }?;
        self.wait_for(size_of_val(values))
    }

    /// Copies the values from number `first` on, after the work that uses them so far, which it waits for.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if there are fewer, or what failed since on the stream.
    pub fn read(&self, first: usize, to: &mut [T]) -> Result<()> {
        // SAFETY: `to` is borrowed until the next call has returned: then the stream has written it, or does nothing more.
        unsafe { self.read_async(first, to) }?;
        self.wait_for(size_of_val(to))
    }

    /// As [`write`](Self::write), without waiting.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what the driver answers.
    ///
    /// # Safety
    /// Until the buffer's stream has done it, `values` lives and is not written.
    pub unsafe fn write_async(&mut self, first: usize, values: &[T]) -> Result<()> {
        let offset = self.offset(first, values.len())?;
        // SAFETY: in bounds, and `&mut self` keeps other host threads away; the rest is the caller's promise.
        unsafe { self.owned.write(offset, values.as_ptr().cast(), size_of_val(values)) }
    }

    /// As [`read`](Self::read), without waiting.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what the driver answers.
    ///
    /// # Safety
    /// Until the buffer's stream has done it, `to` lives and no one else touches it, and no one writes these values.
    pub unsafe fn read_async(&self, first: usize, to: &mut [T]) -> Result<()> {
        let offset = self.offset(first, to.len())?;
        // SAFETY: in bounds, and any bytes are values; the rest is the caller's promise.
        unsafe { self.owned.read(offset, to.as_mut_ptr().cast(), size_of_val(to)) }
    }

    /// Sets every value, after the work that uses them so far, which it waits for.
    ///
    /// # Errors
    /// What failed since on the stream.
    pub fn fill(&mut self, value: T) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.write(0, &[value])?;
        // SAFETY: the whole buffer, of which the first value is written, and `&mut self` keeps other host threads away.
        unsafe { self.owned.repeat(size_of::<T>() as u64, self.bytes()) }
    }

    /// Sets every byte, after the work that uses them so far. Nothing waits on the host.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        // SAFETY: the whole buffer, any bytes are values, and `&mut self` keeps other host threads away.
        unsafe { self.owned.fill(self.bytes(), byte) }
    }

    fn offset(&self, first: usize, count: usize) -> Result<u64> {
        match first.checked_add(count) {
            Some(end) if end <= self.len() => Ok((first * size_of::<T>()) as u64),
            _ => Err(self.out_of_range(first, count, "the buffer")),
        }
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<T, A> {
    /// Replaces all values by those of another buffer, as work of this one's stream, after the work that uses both so far. Nothing waits
    /// on the host. `from` records the stream.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] unless there are as many, [`Error::WrongDevice`], or what the driver answers.
    pub fn copy_from<B: DeviceAllocator>(&mut self, from: &PoolBuffer<T, B>) -> Result<()> {
        self.device().same_as(from.device(), "the buffer to copy from")?;
        if from.len() != self.len() {
            return Err(self.out_of_range(0, from.len(), "the buffer, exactly,"));
        }
        // SAFETY: all of both; `&mut self` and `&from` keep other host threads away.
        unsafe { self.owned.copy(&from.owned, self.bytes() as usize) }
    }

    fn out_of_range(&self, first: usize, count: usize, what: &'static str) -> Error {
        let bytes = |values: usize| Bytes((values as u64).saturating_mul(size_of::<T>() as u64));
        Error::OutOfBounds { offset: bytes(first), asked: bytes(count), what, there: Bytes(self.bytes()) }
    }
}
