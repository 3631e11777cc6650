//! Untyped device memory that is freed on drop.

use super::backend::{Range, Transfer};
use super::device::Device;
use super::registry::Hold;
use crate::error::{Bytes, Error, InvalidRequest, Result};
use crate::nvtx::{memory_name, memory_tool};
use std::fmt;
use warpheap_device::kernel::{Arg, DeviceData, DeviceHandle, DevicePtr, DeviceSlice};

/// Alignment of every allocation, at least, in bytes.
pub(crate) const MIN_ALIGN: usize = 256;
/// Maximum alignment of an allocation: 1 GiB.
const MAX_ALIGN: usize = 1 << 30;

/// A range of untyped device memory. [`DeviceBuffer`](super::DeviceBuffer) is the typed version.
/// Pools are built over this type.
///
/// The drop waits for all work submitted to the device before, and frees the memory. Memory that
/// the caller owns ([`from_raw`](Self::from_raw)) is not freed, and its drop does not wait.
#[must_use = "its memory is freed when it is dropped"]
pub struct DeviceMemory {
    device: Device,
    range: Range,
    on_drop: OnDrop,
}

/// A hold on launches: launches that name the memory wait until it is dropped.
#[must_use]
pub(crate) struct LaunchHold {
    device: Device,
    hold: Option<Hold>,
}

impl Drop for LaunchHold {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.device.registry().release(hold);
        }
    }
}

/// What the drop must release.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    /// Nothing: the length is 0, or the range is part of another allocation.
    Nothing,
    /// The registry entry only. The memory belongs to the caller or to a reservation.
    Unregister,
    /// The memory and its registry entry.
    Free,
}

impl Device {
    /// Allocates `bytes` with arbitrary contents, aligned to `align` and to 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn alloc_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, false)
    }

    /// Allocates `bytes` of zeroed memory, aligned to `align` and to 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn zeroed_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, true)
    }
}

impl DeviceMemory {
    /// Names the memory in messages of a tool that observes the program.
    pub(crate) fn label(&self, name: &str) {
        if let Some(tool) = memory_tool().filter(|_| self.range.bytes > 0) {
            let name = memory_name(name);
            self.device.driver().with_context(&mut || tool.name(self.range.address, &name));
        }
    }

    pub(crate) fn new(device: &Device, bytes: u64, align: usize, zeroed: bool) -> Result<DeviceMemory> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(InvalidRequest::Alignment { align, max: MAX_ALIGN }.into());
        }
        let device = device.clone();
        if bytes == 0 {
            return Ok(DeviceMemory { device, range: Range { address: 0, bytes }, on_drop: OnDrop::Nothing });
        }
        let range = device.driver().alloc(bytes, align.max(MIN_ALIGN) as u64, zeroed)?;
        device.registry().insert(range);
        Ok(DeviceMemory { device, range, on_drop: OnDrop::Free })
    }

    /// Registers memory that the caller owns, so that launches accept arguments that name it. The
    /// drop neither frees it nor waits.
    ///
    /// # Safety
    /// The range stays live until this value is dropped and all kernels that were given it have
    /// ended. It overlaps no other allocation of the device, unless it lies inside that allocation.
    pub unsafe fn from_raw(device: &Device, address: u64, bytes: u64) -> DeviceMemory {
        let range = Range { address, bytes };
        let device = device.clone();
        if bytes == 0 || device.registry().holds(range) {
            return DeviceMemory { device, range, on_drop: OnDrop::Nothing };
        }
        device.registry().insert(range);
        DeviceMemory { device, range, on_drop: OnDrop::Unregister }
    }

    /// The mapped part, initially empty, of a reservation of `bytes` at `address`. The reservation
    /// outlives it. If `is_named_whole`, the handle of a pool may name the entire reservation.
    pub(crate) fn of_reservation(
        device: &Device,
        address: u64,
        bytes: u64,
        is_named_whole: bool,
    ) -> DeviceMemory {
        device.registry().reserve(Range { address, bytes }, is_named_whole);
        DeviceMemory {
            device: device.clone(),
            range: Range { address, bytes: 0 },
            on_drop: OnDrop::Unregister,
        }
    }

    /// Sets the mapped part to the first `bytes` of the reservation. If it shrinks, every launch
    /// that passed its check with the old length has been submitted when this returns.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let shrinks = bytes < self.range.bytes;
        self.device.registry().resize(self.range.address, bytes);
        self.range.bytes = bytes;
        if shrinks {
            self.device.registry().settle();
        }
    }

    /// Waits for the device. Launches that name this memory wait until the guard is dropped.
    pub(crate) fn block_launches(&self) -> Result<LaunchHold> {
        // Synchronise before the hold: a running kernel may wait for a kernel that is not launched
        // yet.
        self.device.driver().synchronize()?;
        let hold = self.device.registry().hold(self.range.address);
        let held = LaunchHold { device: self.device.clone(), hold };
        self.device.driver().synchronize()?;
        Ok(held)
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The first address, a `CUdeviceptr`. 0 if the length is 0.
    pub fn address(&self) -> u64 {
        self.range.address
    }

    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        self.range.bytes
    }

    /// A pointer to the first byte, as a kernel argument.
    pub fn ptr(&self) -> DevicePtr<u8> {
        DevicePtr(std::ptr::with_exposed_provenance_mut(self.range.address as usize))
    }

    /// `len` values from byte `offset` on, as a kernel argument.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the slice ends past the end of the memory,
    /// [`Error::InvalidRequest`] if it is not aligned for `T`.
    pub fn slice_at<T: Copy>(&self, offset: u64, len: u64) -> Result<DeviceSlice<T>> {
        let element = size_of::<T>() as u64;
        let bytes = len.checked_mul(element).ok_or(InvalidRequest::SizeOverflow {
            len: usize::try_from(len).unwrap_or(usize::MAX),
            element: Bytes(element),
        })?;
        let address = self.part(offset, bytes)?.address;
        if !address.is_multiple_of(align_of::<T>() as u64) {
            let (offset, align) = (Bytes(offset), align_of::<T>());
            return Err(InvalidRequest::Misaligned { offset, address, align }.into());
        }
        let start = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the slice is inside this memory; a launch checks that the memory is still live.
        Ok(unsafe { DeviceSlice::from_raw_parts(start, len) })
    }

    /// The part of `bytes` bytes from byte `offset` on. Fails unless it is in bounds.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Result<Range> {
        check_range("the memory", offset, bytes, self.bytes())?;
        Ok(Range { address: self.address() + offset, bytes })
    }

    pub(super) fn range(&self) -> Range {
        self.range
    }

    /// Does the work of the drop early. The drop then does nothing. A failure leaves the value
    /// unchanged.
    pub(crate) fn free(&mut self) -> Result<()> {
        if self.on_drop == OnDrop::Nothing {
            return Ok(());
        }
        // Remove the entry before the free: the next allocation may get the same address.
        let entry = self.device.registry().remove(self.range.address);
        self.device.registry().settle();
        if self.on_drop == OnDrop::Free
            && let Err(error) = self.device.driver().free(self.range)
        {
            self.device.registry().put_back(self.range.address, entry);
            return Err(error);
        }
        self.on_drop = OnDrop::Nothing;
        Ok(())
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Retry once. After the drop no object remains that could retry.
        if let Err(error) = self.free().or_else(|_| self.free()) {
            self.device.registry().remove(self.range.address);
            let (bytes, address) = (self.range.bytes, self.range.address);
            tracing::warn!(%error, bytes, address, device = %self.device, "device memory could not be freed");
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x} of {}", Bytes(self.range.bytes), self.range.address, self.device)
    }
}

/// Fails unless `offset + requested <= size`, all in bytes.
pub(super) fn check_range(what: &'static str, offset: u64, requested: u64, size: u64) -> Result<()> {
    match offset.checked_add(requested) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfBounds {
            offset: Bytes(offset),
            requested: Bytes(requested),
            what,
            size: Bytes(size),
        }),
    }
}

// Copies and fills of device memory that block: they wait for all work submitted to the device
// before.

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
