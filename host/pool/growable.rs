//! A buffer that grows where it lies.
//!
//! Addresses for the most that it may ever hold are reserved at once; they cost no memory. Memory is mapped to them as it
//! is needed, from the start on, so that nothing moves and nothing is copied: addresses that kernels have been given
//! stay right.

#[cfg(test)]
mod tests;

use super::refuse;
use crate::driver::{Device, DeviceMemory, Reservation, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use std::fmt;
use std::sync::Arc;
use warpheap_device::kernel::{DeviceData, DevicePtr, DeviceSlice};

/// Device memory of which only the addresses are there from the start.
///
/// The copies are those of [`DeviceMemory`]: they wait for the work that the device was given before, and reach as far as
/// there is memory. So do the arguments of launches. Dropping it waits for that work, too.
#[must_use = "its memory is freed when it is dropped"]
pub struct GrowableBuffer {
    /// What has memory. Before the reservation: no launch may name it when that goes.
    memory: DeviceMemory,
    reservation: Reservation,
}

impl GrowableBuffer {
    /// Reserves `bytes` of addresses on the device, rounded up to its [granularity](Self::granularity). None of them has
    /// memory yet.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where there is no virtual memory management,
    /// [`Error::OutOfMemory`] if there are not as many, [`Error::InvalidConfig`] for no bytes.
    pub fn reserve(device: &Device, bytes: u64) -> Result<GrowableBuffer> {
        GrowableBuffer::over(device, device.driver().virtual_memory()?, bytes, None)
    }

    /// The same for a pool, whose handle names all of the addresses and knows by itself where there
    /// is memory: at a multiple of `align`, a power of two.
    pub(super) fn for_pool(device: &Device, bytes: u64, align: u64) -> Result<GrowableBuffer> {
        GrowableBuffer::over(device, device.driver().virtual_memory()?, bytes, Some(align))
    }

    fn over(
        device: &Device,
        driver: Arc<dyn VirtualMemory>,
        bytes: u64,
        of_pool: Option<u64>,
    ) -> Result<GrowableBuffer> {
        let rounded = bytes.checked_next_multiple_of(driver.granularity());
        let Some(rounded) = rounded.filter(|rounded| *rounded > 0) else {
            return refuse("bytes", Bytes(bytes), "a growable buffer reserves from 1 B to less than 16 EiB");
        };
        let reservation = Reservation::new(device, driver, rounded, of_pool.unwrap_or(1))?;
        let address = reservation.range().address;
        let memory = DeviceMemory::of_reservation(device, address, bytes, of_pool.is_some());
        Ok(GrowableBuffer { memory, reservation })
    }

    /// The device it is memory of.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Its first address, a `CUdeviceptr`, which never changes.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes from the start on that have memory.
    pub fn size(&self) -> u64 {
        self.memory.bytes()
    }

    /// Bytes of addresses: how far it can grow.
    pub fn reserved(&self) -> u64 {
        self.reservation.range().bytes
    }

    /// What sizes are rounded up to, in bytes: a power of two, 2 MiB on most GPUs.
    pub fn granularity(&self) -> u64 {
        self.reservation.granularity()
    }

    /// Gives it memory for `bytes`, rounded up to the granularity, and returns its size. What it holds stays where and as it
    /// is; what is new has any content. It asks for no wait, and kernels may use the buffer meanwhile: launches from
    /// now on reach all of it. A buffer that has as much already stays as it is.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], of the device or of the reservation, or what the driver answers.
    /// Nothing changes then.
    pub fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        if bytes > self.reserved() {
            return Err(Error::OutOfMemory(OutOfMemory::Reservation {
                what: "a buffer",
                asked: Bytes(bytes),
                reserved: Bytes(self.reserved()),
                advice: "reserve more when it is made: addresses alone take no memory",
            }));
        }
        let size = bytes.next_multiple_of(self.granularity());
        if size > self.size() {
            self.reservation.map_to(size)?;
            self.memory.resize(size);
        }
        Ok(self.size())
    }

    /// Waits for the work that the device was given before, gives back memory beyond `bytes`, and returns the size. What
    /// one growth has added goes as a whole or stays as a whole, so the size may be more than `bytes`. A buffer that has no
    /// more stays as it is.
    ///
    /// # Errors
    /// What failed since, a kernel for instance; all is as before then. What the driver answers: then what it did not take
    /// back is still there, or if it has no addresses any more, is tried again by whatever grows or shrinks the buffer next.
    pub fn shrink_to(&mut self, bytes: u64) -> Result<u64> {
        self.shrink_behind(bytes, Device::synchronize)
    }

    /// The same for who has nothing to do with what failed: nobody is told of it.
    pub(crate) fn shrink_quietly(&mut self, bytes: u64) -> Result<u64> {
        self.shrink_behind(bytes, |device| {
            device.driver().drain();
            Ok(())
        })
    }

    fn shrink_behind(&mut self, bytes: u64, wait: fn(&Device) -> Result<()>) -> Result<u64> {
        let rest = self.reservation.cut(bytes);
        if rest < self.size() {
            // First: from here on no launch names what goes, and each that did is given to the
            // device.
            self.memory.resize(rest);
            let idle = wait(self.device());
            // SAFETY: the device has done its work, and launches are refused what lies there.
            let done = idle.and_then(|()| unsafe { self.reservation.unmap_from(rest) });
            self.memory.resize(self.reservation.mapped());
            done?;
        } else {
            self.reservation.clear()?;
        }
        Ok(self.size())
    }

    /// As [`DeviceMemory::ptr`].
    pub fn ptr(&self) -> DevicePtr<u8> {
        self.memory.ptr()
    }

    /// As [`DeviceMemory::slice_at`], of what has memory.
    ///
    /// # Errors
    /// The same.
    pub fn slice_at<T: Copy>(&self, offset: u64, len: u64) -> Result<DeviceSlice<T>> {
        self.memory.slice_at(offset, len)
    }

    /// As [`DeviceMemory::read`], of what has memory.
    ///
    /// # Errors
    /// The same.
    pub fn read<T: DeviceData>(&self, offset: u64, to: &mut [T]) -> Result<()> {
        self.memory.read(offset, to)
    }

    /// As [`DeviceMemory::write`], to what has memory.
    ///
    /// # Errors
    /// The same.
    pub fn write<T: DeviceData>(&mut self, offset: u64, from: &[T]) -> Result<()> {
        self.memory.write(offset, from)
    }

    /// As [`DeviceMemory::fill_part`], of what has memory.
    ///
    /// # Errors
    /// The same.
    pub fn fill_part(&mut self, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        self.memory.fill_part(offset, bytes, byte)
    }

    /// What has memory at the moment.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }
}

impl fmt::Debug for GrowableBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, of {} reserved", self.memory, Bytes(self.reserved()))
    }
}
