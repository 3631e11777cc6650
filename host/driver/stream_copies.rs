//! Copies and fills of buffers as work of a stream.

use super::backend::Transfer;
use super::buffer::DeviceBuffer;
use super::memory::check_range;
use super::stream::Stream;
use crate::error::Result;
use warpheap_device::kernel::DeviceData;

impl Stream {
    /// Copies `from` to the start of `to`.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), [`WrongDevice`](crate::Error::WrongDevice), or
    /// an error of the driver.
    ///
    /// # Safety
    /// Until the stream has completed the copy, `from` lives and is not written, and nothing else
    /// accesses `to`. As for a launch (P3), calls that block on the host are safe at any time. This
    /// also holds for the other copies and fills of a stream.
    pub unsafe fn copy_from_host<T: DeviceData>(&self, to: &DeviceBuffer<T>, from: &[T]) -> Result<()> {
        self.device().same_as(to.device(), "the buffer")?;
        let bytes = size_of_val(from);
        check_range("the buffer", 0, bytes as u64, to.bytes())?;
        let write = Transfer::Write { to: to.address(), from: from.as_ptr().cast(), bytes };
        // SAFETY: inside the buffer; the caller keeps `from` and `to` valid until the copy
        // completes.
        unsafe { self.submit(write) }
    }

    /// Fills all of `to` with a copy of the start of `from`.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), [`WrongDevice`](crate::Error::WrongDevice), or
    /// an error of the driver.
    ///
    /// # Safety
    /// Until the stream has completed the copy, `to` lives and nothing else accesses it, and
    /// nothing writes `from`.
    pub unsafe fn copy_to_host<T: DeviceData>(&self, to: &mut [T], from: &DeviceBuffer<T>) -> Result<()> {
        self.device().same_as(from.device(), "the buffer")?;
        let bytes = size_of_val(to);
        check_range("the buffer", 0, bytes as u64, from.bytes())?;
        let read = Transfer::Read { to: to.as_mut_ptr().cast(), from: from.address(), bytes };
        // SAFETY: inside the buffer; the caller keeps `to` and `from` valid until the copy
        // completes.
        unsafe { self.submit(read) }
    }

    /// Copies all of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), [`WrongDevice`](crate::Error::WrongDevice), or
    /// an error of the driver.
    ///
    /// # Safety
    /// Until the stream has completed the copy, nothing else accesses `to`, and nothing writes
    /// `from`.
    pub unsafe fn copy<T: DeviceData>(&self, to: &DeviceBuffer<T>, from: &DeviceBuffer<T>) -> Result<()> {
        self.device().same_as(from.device(), "the buffer to copy from")?;
        self.device().same_as(to.device(), "the buffer to copy to")?;
        check_range("the buffer", 0, from.bytes(), to.bytes())?;
        if from.address() == to.address() {
            return Ok(());
        }
        let (to, from, bytes) = (to.address(), from.address(), from.bytes() as usize);
        let copy = Transfer::Copy { to, from, bytes };
        // SAFETY: inside both buffers, which are distinct. The caller promises that nothing
        // conflicts with the copy until it completes.
        unsafe { self.submit(copy) }
    }

    /// Sets every byte of the buffer.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice), or an error of the driver.
    ///
    /// # Safety
    /// Until the stream has completed the fill, nothing else accesses the buffer.
    pub unsafe fn fill_bytes<T: DeviceData>(&self, buffer: &DeviceBuffer<T>, byte: u8) -> Result<()> {
        self.device().same_as(buffer.device(), "the buffer")?;
        // SAFETY: the range is the buffer; the caller promises that nothing else accesses it until
        // then.
        unsafe { self.submit(Transfer::Fill { range: buffer.range(), byte }) }
    }
}
