//! A buffer that grows in place.
//!
//! Addresses for the maximum size are reserved at once and cost no memory. Memory is mapped as
//! needed, from the start, so nothing moves and nothing is copied: addresses that were passed to
//! kernels stay valid.

use super::device::Device;
use super::memory::DeviceMemory;
use super::reservation::Reservation;
use crate::error::{Bytes, Error, InvalidConfig, OutOfMemory, Result};
use crate::nvtx::NamedRange;
use std::fmt;
use warpheap_device::kernel::{DeviceData, DevicePtr, DeviceSlice};

/// Device memory with a fixed range of addresses that is mapped as needed.
///
/// The copies are those of [`DeviceMemory`]: they wait for all work submitted to the device so far,
/// and are limited to the mapped part. So are the arguments of launches. Dropping it also waits for
/// that work.
#[must_use = "its memory is freed when it is dropped"]
pub struct GrowableBuffer {
    /// The mapped part. Dropped before the reservation, so that no launch can name freed memory.
    memory: DeviceMemory,
    reservation: Reservation,
}

impl GrowableBuffer {
    /// Reserves `bytes` of addresses on the device, rounded up to its
    /// [granularity](Self::granularity). No memory is mapped yet.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device has no virtual memory management,
    /// [`Error::OutOfMemory`] if the addresses are exhausted, [`Error::InvalidConfig`] for 0 bytes.
    pub fn reserve(device: &Device, bytes: u64) -> Result<GrowableBuffer> {
        GrowableBuffer::over(device, bytes, None)
    }

    /// Reserves addresses for a pool. Its handle names all of the addresses, and the pool knows
    /// which part is mapped. The start is aligned to `align`, a power of two.
    pub(crate) fn for_pool(device: &Device, bytes: u64, align: u64) -> Result<GrowableBuffer> {
        GrowableBuffer::over(device, bytes, Some(align))
    }

    fn over(device: &Device, bytes: u64, of_pool: Option<u64>) -> Result<GrowableBuffer> {
        let driver = device.driver().virtual_memory()?;
        let rounded = bytes.checked_next_multiple_of(driver.granularity());
        let Some(rounded) = rounded.filter(|rounded| *rounded > 0) else {
            return Err(InvalidConfig::GrowableBuffer { bytes: Bytes(bytes) }.into());
        };
        let reservation = Reservation::new(device, driver, rounded, of_pool.unwrap_or(1))?;
        let address = reservation.range().address;
        let memory = DeviceMemory::of_reservation(device, address, bytes, of_pool.is_some());
        Ok(GrowableBuffer { memory, reservation })
    }

    /// The device that owns the memory.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// The first address, a `CUdeviceptr`. It never changes.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Number of mapped bytes, counted from the start.
    pub fn size(&self) -> u64 {
        self.memory.bytes()
    }

    /// Number of reserved bytes: the maximum size.
    pub fn reserved(&self) -> u64 {
        self.reservation.range().bytes
    }

    /// The granularity of sizes in bytes: a power of two, 2 MiB on most GPUs.
    pub fn granularity(&self) -> u64 {
        self.reservation.granularity()
    }

    /// Grows the buffer to `bytes`, rounded up to the granularity, and returns its size. Existing
    /// contents do not move or change; new memory has arbitrary contents. Does not wait, and
    /// kernels may use the buffer during the call: later launches can access all of it. Does
    /// nothing if the buffer is already large enough.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory or the reservation is exceeded, or an
    /// error of the driver. Then nothing changes.
    pub fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        if bytes > self.reserved() {
            return Err(Error::OutOfMemory(OutOfMemory::Reservation {
                what: "a buffer",
                requested: Bytes(bytes),
                reserved: Bytes(self.reserved()),
                advice: "reserve more when it is made: addresses alone take no memory",
            }));
        }
        let size = bytes.next_multiple_of(self.granularity());
        if size > self.size() {
            let _range = NamedRange::new(c"map memory", size - self.size());
            self.reservation.map_to(size)?;
            self.memory.resize(size);
        }
        Ok(self.size())
    }

    /// Waits for all work submitted to the device so far, frees memory beyond `bytes`, and returns
    /// the size. The memory of one growth is freed entirely or not at all, so the size may exceed
    /// `bytes`. Does nothing if the buffer is already small enough.
    ///
    /// # Errors
    /// An earlier failure of the device, of a kernel for instance; then nothing changes. An error
    /// of the driver; then memory that it failed to unmap stays mapped, and memory that was
    /// unmapped but not freed is freed by the next growth or shrink.
    pub fn shrink_to(&mut self, bytes: u64) -> Result<u64> {
        self.shrink_behind(bytes, Device::synchronize)
    }

    /// Shrinks like [`shrink_to`](Self::shrink_to), for a caller that is unrelated to an earlier
    /// failure: the failure is not reported or consumed.
    pub(crate) fn shrink_quietly(&mut self, bytes: u64) -> Result<u64> {
        self.shrink_behind(bytes, |device| {
            device.driver().drain();
            Ok(())
        })
    }

    fn shrink_behind(&mut self, bytes: u64, wait: fn(&Device) -> Result<()>) -> Result<u64> {
        let rest = self.reservation.cut(bytes);
        if rest < self.size() {
            let _range = NamedRange::new(c"unmap memory", self.size() - rest);
            // First: from here on no launch names the freed part, and every launch that did is
            // submitted.
            self.memory.resize(rest);
            let idle = wait(self.device());
            // SAFETY: the device is idle, and launches that name the freed part fail.
            let done = idle.and_then(|()| unsafe { self.reservation.unmap_from(rest) });
            self.memory.resize(self.reservation.mapped());
            done?;
        } else {
            self.reservation.clear()?;
        }
        Ok(self.size())
    }

    /// The address, for kernels ([`DeviceMemory::ptr`]).
    pub fn ptr(&self) -> DevicePtr<u8> {
        self.memory.ptr()
    }

    /// Values of the mapped part, for kernels ([`DeviceMemory::slice_at`]).
    ///
    /// # Errors
    /// The errors of [`DeviceMemory::slice_at`].
    pub fn slice_at<T: Copy>(&self, offset: u64, len: u64) -> Result<DeviceSlice<T>> {
        self.memory.slice_at(offset, len)
    }

    /// Copies from the mapped part ([`DeviceMemory::read`]).
    ///
    /// # Errors
    /// The errors of [`DeviceMemory::read`].
    pub fn read<T: DeviceData>(&self, offset: u64, to: &mut [T]) -> Result<()> {
        self.memory.read(offset, to)
    }

    /// Copies to the mapped part ([`DeviceMemory::write`]).
    ///
    /// # Errors
    /// The errors of [`DeviceMemory::write`].
    pub fn write<T: DeviceData>(&mut self, offset: u64, from: &[T]) -> Result<()> {
        self.memory.write(offset, from)
    }

    /// Fills bytes of the mapped part ([`DeviceMemory::fill_part`]).
    ///
    /// # Errors
    /// The errors of [`DeviceMemory::fill_part`].
    pub fn fill_part(&mut self, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        self.memory.fill_part(offset, bytes, byte)
    }

    /// The mapped part.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }
}

impl fmt::Debug for GrowableBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, of {} reserved", self.memory, Bytes(self.reserved()))
    }
}
