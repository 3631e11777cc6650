//! Copies and fills as work of a stream.

use super::backend::Transfer;
use super::buffer::DeviceBuffer;
use super::memory::{DeviceMemory, check_range};
use super::stream::Stream;
use crate::error::Result;
use warpheap_device::kernel::{Arg, DeviceData, DeviceHandle};

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

    /// Repeats the `pattern` bytes at `address` until `bytes` bytes are written. Each copy doubles
    /// the number of bytes written.
    ///
    /// # Safety
    /// The bytes are live memory of this stream's device, and nothing else accesses them until the
    /// stream has completed the copies.
    pub(crate) unsafe fn repeat(&self, address: u64, pattern: u64, bytes: u64) -> Result<()> {
        let mut done = pattern;
        // At most 64 rounds: each doubles `done`.
        while 0 < done && done < bytes {
            let more = done.min(bytes - done);
            // SAFETY: inside `bytes`, and source and target do not overlap. The caller promises
            // live memory that nothing else accesses.
            unsafe { self.driver().copy(address + done, address, more as usize) }?;
            done += more;
        }
        Ok(())
    }

    /// Submits a transfer, unless it has no bytes.
    ///
    /// # Safety
    /// The memory is valid, and nothing conflicts with the transfer until it is done.
    unsafe fn submit(&self, transfer: Transfer) -> Result<()> {
        // SAFETY: the caller's promise.
        if transfer.is_empty() { Ok(()) } else { unsafe { self.driver().transfer(transfer) } }
    }
}

impl DeviceMemory {
    /// Sets `bytes` bytes from byte `offset` on, as work of a stream of the same device.
    ///
    /// # Safety
    /// Nothing else accesses these bytes until the stream has set them.
    pub(crate) unsafe fn fill_on(&self, stream: &Stream, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        let range = self.part(offset, bytes)?;
        // SAFETY: in bounds. The caller promises that nothing else accesses the bytes until the
        // stream has set them.
        unsafe { stream.submit(Transfer::Fill { range, byte }) }
    }

    /// Copies `from` to byte `offset`, as work of a stream of the same device.
    ///
    /// # Safety
    /// Until the stream has completed the copy, nothing else accesses the destination, and `from`
    /// is live and unchanged.
    pub(crate) unsafe fn write_on<T: DeviceData>(
        &self,
        stream: &Stream,
        offset: u64,
        from: &[T],
    ) -> Result<()> {
        // SAFETY: the caller's promises.
        unsafe { self.write_bytes_on(stream, offset, from.as_ptr().cast(), size_of_val(from)) }
    }

    /// Copies the handle inside `handle` to byte `offset`, as work of a stream of the same device.
    ///
    /// # Safety
    /// As for [`write_on`](Self::write_on).
    pub(crate) unsafe fn write_handle_on<H: DeviceHandle>(
        &self,
        stream: &Stream,
        offset: u64,
        handle: &Arg<H>,
    ) -> Result<()> {
        // SAFETY: the caller's promises.
        unsafe { self.write_bytes_on(stream, offset, (&raw const *handle).cast(), size_of::<H>()) }
    }

    /// # Safety
    /// As for [`write_on`](Self::write_on).
    unsafe fn write_bytes_on(
        &self,
        stream: &Stream,
        offset: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        let to = self.part(offset, bytes as u64)?.address;
        // SAFETY: in bounds. The caller promises that, until the stream has completed the copy,
        // nothing else accesses the destination and `from` is live and unchanged.
        unsafe { stream.submit(Transfer::Write { to, from, bytes }) }
    }

    /// Repeats the `pattern` bytes at byte `offset` until `bytes` bytes are written, as work of a
    /// stream of the same device.
    ///
    /// # Safety
    /// Nothing else accesses these bytes until the stream has completed the copies.
    pub(crate) unsafe fn repeat_on(
        &self,
        stream: &Stream,
        offset: u64,
        pattern: u64,
        bytes: u64,
    ) -> Result<()> {
        let part = self.part(offset, bytes)?;
        // SAFETY: in bounds of live memory. The caller promises that nothing else accesses these
        // bytes until the stream has completed the copies.
        unsafe { stream.repeat(part.address, pattern, bytes) }
    }
}
