//! Copies and fills of device memory that block: they wait for all work submitted to the device
//! before.

use super::backend::Transfer;
use super::memory::DeviceMemory;
use crate::error::Result;
use warpheap_device::kernel::{Arg, DeviceData, DeviceHandle};

impl DeviceMemory {
    /// Sets every byte, after all work submitted to the device before.
    ///
    /// # Errors
    /// A failure of the call, or of work submitted before.
    pub fn fill(&mut self, byte: u8) -> Result<()> {
        self.fill_part(0, self.bytes(), byte)
    }

    /// Sets `bytes` bytes from byte `offset` on, after all work submitted to the device before.
    /// Launches that name the memory wait meanwhile.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), or a failure of the call or of earlier work.
    pub fn fill_part(&mut self, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        let range = self.part(offset, bytes)?;
        // SAFETY: `part` checked that the range is inside this memory.
        unsafe { self.change(Transfer::Fill { range, byte }) }
    }

    /// Copies `from` to byte `offset`, after all work submitted to the device before. Launches that
    /// name the memory wait meanwhile.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), or a failure of the call or of earlier work.
    pub fn write<T: DeviceData>(&mut self, offset: u64, from: &[T]) -> Result<()> {
        let bytes = size_of_val(from);
        let to = self.part(offset, bytes as u64)?.address;
        // SAFETY: in bounds, and `from` has `bytes` bytes.
        unsafe { self.change(Transfer::Write { to, from: from.as_ptr().cast(), bytes }) }
    }

    /// Changes this memory, after all work submitted to the device before. Launches that name the
    /// memory wait meanwhile.
    ///
    /// # Safety
    /// The transfer changes only this memory. If it reads memory of the host, that is valid.
    unsafe fn change(&mut self, transfer: Transfer) -> Result<()> {
        if transfer.is_empty() {
            return Ok(());
        }
        let _held = self.block_launches()?;
        // SAFETY: the caller's promise. `&mut self` excludes other host threads. The device is
        // idle, launches that name the memory wait, and the backend excludes other kernels.
        unsafe { self.device().driver().transfer(transfer) }
    }

    /// Copies the handle inside `handle` to byte `offset`, after all work submitted to the device
    /// before.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), or a failure of the call or of earlier work.
    pub(crate) fn write_handle<H: DeviceHandle>(&mut self, offset: u64, handle: &Arg<H>) -> Result<()> {
        let bytes = size_of::<H>();
        let to = self.part(offset, bytes as u64)?.address;
        self.device().driver().synchronize()?;
        let write = Transfer::Write { to, from: (&raw const *handle).cast(), bytes };
        // SAFETY: in bounds; the device is idle, and `&mut self` excludes other host threads.
        unsafe { self.device().driver().transfer(write) }
    }

    /// Copies from byte `offset` to `to`, after all work submitted to the device before. On a GPU
    /// the copy may show partial results of a kernel that another thread launches meanwhile.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds), or a failure of the call or of earlier work.
    /// Also panics of threads, as for [`Device::synchronize`](super::Device::synchronize): `to` has
    /// been written then.
    pub fn read<T: DeviceData>(&self, offset: u64, to: &mut [T]) -> Result<()> {
        self.fetch(offset, to)?;
        if to.is_empty() { Ok(()) } else { self.device().driver().report_panics() }
    }

    /// Reads without reporting panics: the next wait of the program reports them.
    pub(crate) fn fetch<T: DeviceData>(&self, offset: u64, to: &mut [T]) -> Result<()> {
        let bytes = size_of_val(to);
        self.part(offset, bytes as u64)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: in bounds; `to` has `bytes` writable bytes, and any bytes are values of `T`
        // (`DeviceData`).
        unsafe { self.read_raw(offset, to.as_mut_ptr().cast(), bytes) }
    }

    /// Copies from byte `offset` to `to`, after all work submitted to the device before. Leaves
    /// panics to the next wait of the program.
    ///
    /// # Safety
    /// `offset + bytes` is in bounds, and `bytes` bytes at `to` are writable.
    pub(super) unsafe fn read_raw(&self, offset: u64, to: *mut u8, bytes: usize) -> Result<()> {
        self.device().driver().synchronize()?;
        let read = Transfer::Read { to, from: self.address() + offset, bytes };
        // SAFETY: `&self` excludes writes by host threads, and the backend excludes kernels that
        // were launched since the wait. The caller promises that the range is in bounds and that
        // `to` is writable.
        unsafe { self.device().driver().transfer(read) }
    }
}
