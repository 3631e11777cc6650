//! Copies between the host and a buffer.

use super::buffer::PoolBuffer;
use crate::driver::{Range, Stream, Transfer};
use crate::error::{Bytes, Error, Result};
use crate::host_pools::allocator::DeviceAllocator;
use std::mem::MaybeUninit;
use warpheap_device::kernel::DeviceData;

impl<T: DeviceData, A: DeviceAllocator> PoolBuffer<T, A> {
    /// Allocates `len` values of zero bytes for work that is submitted to `stream` from now on.
    /// Nothing waits on the host.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`], and the errors of [`DeviceAllocator::allocate`] and of the
    /// driver.
    pub fn zeroed(allocator: A, len: usize, stream: &Stream) -> Result<PoolBuffer<T, A>> {
        let buffer = PoolBuffer::<T, A>::new_uninit(allocator, len, stream)?;
        // SAFETY: the next statement writes all values before anything reads them, and every bit
        // pattern is a value (`DeviceData`).
        let mut buffer = unsafe { buffer.assume_init() };
        buffer.fill_bytes(0)?;
        Ok(buffer)
    }

    /// Allocates a copy of `values` for work that is submitted to `stream` from now on. Waits on
    /// the host for the work submitted before.
    ///
    /// # Errors
    /// The errors of [`DeviceAllocator::allocate`], or a failure on the stream since the last
    /// check.
    pub fn from_slice(allocator: A, values: &[T], stream: &Stream) -> Result<PoolBuffer<T, A>> {
        let buffer = PoolBuffer::<T, A>::new_uninit(allocator, values.len(), stream)?;
        // SAFETY: the next statement writes all values before anything reads them.
        let mut buffer = unsafe { buffer.assume_init() };
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// Copies all values to the host. Waits on the host for the work submitted so far that uses
    /// them.
    ///
    /// # Errors
    /// A failure on the stream since the last check.
    pub fn copy_to_vec(&self) -> Result<Vec<T>> {
        let mut values: Vec<T> = Vec::with_capacity(self.len());
        self.read_into(&mut values.spare_capacity_mut()[..self.len()])?;
        // SAFETY: `read_into` has written all of them, and every bit pattern is a value
        // (`DeviceData`).
        unsafe { values.set_len(self.len()) };
        Ok(values)
    }

    /// Copies the first values to `to` and fills all of it. `to` must not be longer than the
    /// buffer.
    pub(super) fn read_into(&self, to: &mut [MaybeUninit<T>]) -> Result<()> {
        // SAFETY: `to` is borrowed until `wait_to_read` returns; by then the stream has written it,
        // or never will. `&self` excludes host writes of the values (P1).
        unsafe { self.submit_read(0, to.as_mut_ptr().cast(), to.len()) }?;
        self.wait_to_read(size_of_val(to))
    }

    /// Waits for a copy of `bytes` bytes. The copy has ended even after a failure: the caller may
    /// free the host memory afterwards.
    fn wait_for(&self, bytes: usize) -> Result<()> {
        let wait = || self.stream().settle().inspect_err(|_| self.device().driver().drain());
        if bytes > 0 { wait() } else { Ok(()) }
    }

    /// Waits for a copy of `bytes` bytes to the host, then reports panics of threads.
    fn wait_to_read(&self, bytes: usize) -> Result<()> {
        self.wait_for(bytes)?;
        if bytes > 0 { self.device().driver().report_panics() } else { Ok(()) }
    }

    /// Replaces all values. Waits on the host for the work submitted so far that uses them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] unless `values` has the same length, or a failure on the stream since
    /// the last check.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len() {
            return Err(self.out_of_range(0, values.len(), "the buffer, exactly,"));
        }
        self.write(0, values)
    }

    /// Replaces the values from index `first` on. Waits on the host for the work submitted so far
    /// that uses them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the buffer has too few values, or a failure on the stream since
    /// the last check.
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<()> {
        // SAFETY: `values` is borrowed until `wait_for` returns; by then the stream has read it, or
        // never will (P1).
        unsafe { self.write_async(first, values) }?;
        self.wait_for(size_of_val(values))
    }

    /// Copies the values from index `first` on to the host. Waits on the host for the work
    /// submitted so far that uses them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the buffer has too few values, or a failure on the stream since
    /// the last check.
    pub fn read(&self, first: usize, to: &mut [T]) -> Result<()> {
        // SAFETY: `to` is borrowed until `wait_to_read` returns; by then the stream has written it,
        // or never will. `&self` excludes host writes of the values (P1).
        unsafe { self.read_async(first, to) }?;
        self.wait_to_read(size_of_val(to))
    }

    /// Replaces the values from index `first` on, like [`write`](Self::write), without waiting.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or an error of the driver.
    ///
    /// # Safety
    /// P1: `values` stays alive and is not written until the buffer's stream has completed the
    /// copy.
    pub unsafe fn write_async(&mut self, first: usize, values: &[T]) -> Result<()> {
        let to = self.address_from(first, values.len())?;
        let (from, bytes) = (values.as_ptr().cast(), size_of_val(values));
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.parts().ordered()?;
        // SAFETY: in bounds, and `&mut self` excludes other host threads. The caller's promise P1.
        // The copy is ordered after the other streams (I2 of `owned`).
        unsafe { stream.driver().transfer(Transfer::Write { to, from, bytes }) }
    }

    /// Copies the values from index `first` on to the host, like [`read`](Self::read), without
    /// waiting.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or an error of the driver.
    ///
    /// # Safety
    /// P1: until the buffer's stream has completed the copy, `to` stays alive and no other code
    /// uses it, and no code writes these values.
    pub unsafe fn read_async(&self, first: usize, to: &mut [T]) -> Result<()> {
        // SAFETY: the caller's promise P1.
        unsafe { self.submit_read(first, to.as_mut_ptr(), to.len()) }
    }

    /// Submits a copy of `count` values from index `first` on to the host.
    ///
    /// # Safety
    /// P1: until the buffer's stream has completed the copy, `to` has room for the values and no
    /// other code uses it, and no code writes these values.
    unsafe fn submit_read(&self, first: usize, to: *mut T, count: usize) -> Result<()> {
        let from = self.address_from(first, count)?;
        let bytes = count * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.parts().ordered()?;
        // SAFETY: in bounds, every bit pattern is a value (`DeviceData`), and the caller's promise
        // P1. The copy is ordered after the other streams (I2 of `owned`).
        unsafe { stream.driver().transfer(Transfer::Read { to: to.cast(), from, bytes }) }
    }

    /// Sets every value. Waits on the host for the work submitted so far that uses them.
    ///
    /// # Errors
    /// A failure on the stream since the last check.
    pub fn fill(&mut self, value: T) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.write(0, &[value])?;
        let stream = self.parts().ordered()?;
        // SAFETY: the entire buffer, whose first value is written; `&mut self` excludes other host
        // threads. The copies are ordered after the other streams (I2 of `owned`).
        unsafe { stream.repeat(self.address(), size_of::<T>() as u64, self.bytes()) }
    }

    /// Sets every byte, after the work submitted so far that uses them. Nothing waits on the host.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        let range = Range { address: self.address(), bytes: self.bytes() };
        if range.bytes == 0 {
            return Ok(());
        }
        let stream = self.parts().ordered()?;
        // SAFETY: the entire buffer, and every bit pattern is a value (`DeviceData`); `&mut self`
        // excludes other host threads. The fill is ordered after the other streams (I2 of `owned`).
        unsafe { stream.driver().transfer(Transfer::Fill { range, byte }) }
    }

    /// Address of `count` values from index `first` on.
    fn address_from(&self, first: usize, count: usize) -> Result<u64> {
        match first.checked_add(count) {
            Some(end) if end <= self.len() => Ok(self.address() + (first * size_of::<T>()) as u64),
            _ => Err(self.out_of_range(first, count, "the buffer")),
        }
    }
}

impl<T: Copy, A: DeviceAllocator> PoolBuffer<T, A> {
    /// Copies all values of another buffer into this one, as work of this buffer's stream, after
    /// the work submitted so far that uses either buffer. Nothing waits on the host. `from` records
    /// the stream.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] unless the lengths are equal, [`Error::WrongDevice`], or an error of
    /// the driver.
    pub fn copy_from<B: DeviceAllocator>(&mut self, from: &PoolBuffer<T, B>) -> Result<()> {
        self.device().same_as(from.device(), "the buffer to copy from")?;
        if from.len() != self.len() {
            return Err(self.out_of_range(0, from.len(), "the buffer, exactly,"));
        }
        if self.bytes() == 0 {
            return Ok(());
        }
        let stream = self.parts().ordered()?;
        from.parts().order(stream)?;
        // Before the copy, so that `from` knows of it in every case.
        from.parts().record(stream)?;
        let (to, from, bytes) = (self.address(), from.address(), self.bytes() as usize);
        // SAFETY: all of both buffers, of equal length; `&mut self` and `&from` exclude host
        // writes. The copy is ordered after the other streams of both (I2 of `owned`).
        unsafe { stream.driver().transfer(Transfer::Copy { to, from, bytes }) }
    }

    fn out_of_range(&self, first: usize, count: usize, what: &'static str) -> Error {
        let bytes = |values: usize| Bytes((values as u64).saturating_mul(size_of::<T>() as u64));
        Error::OutOfBounds { offset: bytes(first), requested: bytes(count), what, size: Bytes(self.bytes()) }
    }
}
