//! Device memory without a type, given back when it is dropped.

use super::backend::Range;
use super::device::Device;
use super::registry::Hold;
use super::stream::Stream;
use crate::error::{Bytes, Error, InvalidRequest, Result};
use std::fmt;
use warpheap_device::kernel::{Arg, DeviceData, DeviceHandle, DevicePtr, DeviceSlice};

/// Every allocation starts at a multiple of this.
pub(crate) const MIN_ALIGN: usize = 256;
/// The largest alignment that can be asked for: 1 GiB.
const MAX_ALIGN: usize = 1 << 30;

/// A range of device memory. A [`DeviceBuffer`](super::DeviceBuffer) is one with a type; pools stand on this one.
///
/// Dropping it waits for the work that the device was given before, also if the memory is the
/// caller's ([`from_raw`](Self::from_raw)).
#[must_use = "its memory is freed when it is dropped"]
pub struct DeviceMemory {
    device: Device,
    range: Range,
    kept: Kept,
}

/// While it lives, launches that name the memory wait.
#[must_use]
pub(crate) struct HeldOff {
    device: Device,
    hold: Option<Hold>,
}

impl Drop for HeldOff {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.device.registry().let_go(hold);
        }
    }
}

/// What is to be undone at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nothing: there are no bytes.
    Nothing,
    /// Nothing: it is a part of another allocation. Its end waits all the same.
    Part,
    /// The memory is the caller's or a reservation's; only the entry in the registry is ours.
    Entry,
    /// The memory and its entry.
    Memory,
}

impl DeviceMemory {
    pub(crate) fn new(device: &Device, bytes: u64, align: usize, zeroed: bool) -> Result<DeviceMemory> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(InvalidRequest::Alignment { align, most: MAX_ALIGN }.into());
        }
        let device = device.clone();
        if bytes == 0 {
            return Ok(DeviceMemory { device, range: Range { address: 0, bytes }, kept: Kept::Nothing });
        }
        let range = device.driver().alloc(bytes, align.max(MIN_ALIGN) as u64, zeroed)?;
        device.registry().insert(range);
        Ok(DeviceMemory { device, range, kept: Kept::Memory })
    }

    /// Memory of the caller's, so that launches accept arguments that name it. It is not freed.
    /// Dropping the value waits for the work that the device was given before, as with any other.
    ///
    /// # Safety
    /// The range is memory that kernels of the device can access, for as long as this value lives, and it
    /// overlaps no other allocation of the device unless it lies inside it.
    pub unsafe fn from_raw(device: &Device, address: u64, bytes: u64) -> DeviceMemory {
        let range = Range { address, bytes };
        let device = device.clone();
        if bytes == 0 {
            return DeviceMemory { device, range, kept: Kept::Nothing };
        }
        if device.registry().holds(range) {
            return DeviceMemory { device, range, kept: Kept::Part };
        }
        device.registry().insert(range);
        DeviceMemory { device, range, kept: Kept::Entry }
    }

    /// That part of a reservation of `bytes` at `address` which has memory: nothing yet. The
    /// reservation outlives it. The handle of a pool may name all of it, if `is_named_whole` says
    /// so.
    pub(crate) fn of_reservation(
        device: &Device,
        address: u64,
        bytes: u64,
        is_named_whole: bool,
    ) -> DeviceMemory {
        device.registry().reserve(Range { address, bytes }, is_named_whole);
        DeviceMemory { device: device.clone(), range: Range { address, bytes: 0 }, kept: Kept::Entry }
    }

    /// The first `bytes` of the reservation have memory now. If those are fewer, every launch that
    /// has found more is given to the device when this returns.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let shrinks = bytes < self.range.bytes;
        self.device.registry().resize(self.range.address, bytes);
        self.range.bytes = bytes;
        if shrinks {
            self.device.registry().settle();
        }
    }

    /// Waits for the device, and has launches that name this memory wait until the guard goes.
    pub(crate) fn hold_off_launches(&self) -> Result<HeldOff> {
        // Before launches wait: a kernel that runs may wait for one that is yet to be launched.
        self.device.synchronize()?;
        let hold = self.device.registry().hold_off(self.range.address);
        let held = HeldOff { device: self.device.clone(), hold };
        self.device.synchronize()?;
        Ok(held)
    }

    /// The device it is memory of.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its first address, a `CUdeviceptr`; 0 if there are no bytes.
    pub fn address(&self) -> u64 {
        self.range.address
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.range.bytes
    }

    /// Its first byte, for a kernel's argument.
    pub fn ptr(&self) -> DevicePtr<u8> {
        DevicePtr(std::ptr::with_exposed_provenance_mut(self.range.address as usize))
    }

    /// `len` values at byte `offset`, for a kernel's argument.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it reaches past the end, [`Error::InvalidRequest`] if it is not
    /// aligned for `T`.
    pub fn slice_at<T: Copy>(&self, offset: u64, len: u64) -> Result<DeviceSlice<T>> {
        let element = size_of::<T>() as u64;
        let bytes = len.checked_mul(element).ok_or(InvalidRequest::SizeOverflow {
            len: usize::try_from(len).unwrap_or(usize::MAX),
            element: Bytes(element),
        })?;
        check_range("the memory", offset, bytes, self.bytes())?;
        let address = self.address() + offset;
        if !address.is_multiple_of(align_of::<T>() as u64) {
            return Err(Error::InvalidRequest(InvalidRequest::Alignment {
                align: align_of::<T>(),
                most: 1 << address.trailing_zeros().min(30),
            }));
        }
        let start = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: inside this memory; a launch checks that it is still live.
        Ok(unsafe { DeviceSlice::from_raw_parts(start, len) })
    }

    /// Sets every byte, after all work that the device was given before.
    ///
    /// # Errors
    /// What failed since.
    pub fn fill(&mut self, byte: u8) -> Result<()> {
        self.fill_part(0, self.bytes(), byte)
    }

    /// Sets `bytes` bytes from byte `offset` on, after all work that the device was given before.
    /// Launches that name the memory wait meanwhile.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what failed since.
    pub fn fill_part(&mut self, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        check_range("the memory", offset, bytes, self.bytes())?;
        if bytes == 0 {
            return Ok(());
        }
        let _held = self.hold_off_launches()?;
        let part = Range { address: self.address() + offset, bytes };
        // SAFETY: in bounds; `&mut self` keeps other host threads away. The device is idle,
        // launches that name the memory wait, and the backend keeps other kernels away.
        unsafe { self.device.driver().fill(part, byte) }
    }

    /// Copies `from` to byte `offset`, after all work that the device was given before. Launches
    /// that name the memory wait meanwhile.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what failed since.
    pub fn write<T: DeviceData>(&mut self, offset: u64, from: &[T]) -> Result<()> {
        let bytes = size_of_val(from);
        check_range("the memory", offset, bytes as u64, self.bytes())?;
        if bytes == 0 {
            return Ok(());
        }
        let _held = self.hold_off_launches()?;
        // SAFETY: in bounds; `&mut self` keeps other host threads away. The device is idle,
        // launches that name the memory wait, and the backend keeps other kernels away.
        unsafe { self.device.driver().write(self.address() + offset, from.as_ptr().cast(), bytes) }
    }

    /// Copies the handle that `handle` stands for to byte `offset`, after all work that the device
    /// was given before.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what failed since.
    pub(crate) fn write_handle<H: DeviceHandle>(&mut self, offset: u64, handle: &Arg<H>) -> Result<()> {
        let bytes = size_of::<H>();
        check_range("the memory", offset, bytes as u64, self.bytes())?;
        self.device.synchronize()?;
        let from: *const Arg<H> = handle;
        // SAFETY: in bounds, idle, and `&mut self` keeps other host threads away.
        unsafe { self.device.driver().write(self.address() + offset, from.cast(), bytes) }
    }

    /// Copies from byte `offset` to `to`, after all work that the device was given before. On a GPU
    /// the copy may show partial results of a kernel that another thread launches meanwhile.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or what failed since.
    pub fn read<T: DeviceData>(&self, offset: u64, to: &mut [T]) -> Result<()> {
        let bytes = size_of_val(to);
        check_range("the memory", offset, bytes as u64, self.bytes())?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: in bounds; the bytes are those of `to`, and any bytes are values of `T`.
        unsafe { self.read_raw(offset, to.as_mut_ptr().cast(), bytes) }
    }

    /// Copies to `to`, after all work that the device was given before.
    ///
    /// # Safety
    /// `offset + bytes` is in bounds, and `bytes` can be written at `to`.
    pub(super) unsafe fn read_raw(&self, offset: u64, to: *mut u8, bytes: usize) -> Result<()> {
        self.device.synchronize()?;
        // SAFETY: `&self` lets no host thread write, and the backend keeps kernels away that were
        // launched since the wait; the rest is the caller's promise.
        unsafe { self.device.driver().read(to, self.address() + offset, bytes) }
    }

    /// Sets `bytes` bytes from byte `offset` on, as work of a stream of the same device.
    ///
    /// # Safety
    /// Nothing else touches them until the stream has done it.
    pub(crate) unsafe fn fill_on(&self, stream: &Stream, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        check_range("the memory", offset, bytes, self.bytes())?;
        let part = Range { address: self.address() + offset, bytes };
        // SAFETY: in bounds; the rest is the caller's promise.
        if bytes > 0 { unsafe { stream.driver().fill(part, byte) } } else { Ok(()) }
    }

    /// Copies `from` to byte `offset`, as work of a stream of the same device.
    ///
    /// # Safety
    /// Nothing else touches those bytes, and `from` lives and stays as it is, until the stream has done it.
    pub(crate) unsafe fn write_on<T: DeviceData>(
        &self,
        stream: &Stream,
        offset: u64,
        from: &[T],
    ) -> Result<()> {
        let bytes = size_of_val(from);
        check_range("the memory", offset, bytes as u64, self.bytes())?;
        let (to, from) = (self.address() + offset, from.as_ptr().cast());
        // SAFETY: in bounds; the rest is the caller's promise.
        if bytes > 0 { unsafe { stream.driver().write(to, from, bytes) } } else { Ok(()) }
    }

    /// Copies the handle that `handle` stands for to byte `offset`, as work of a stream of the same
    /// device.
    ///
    /// # Safety
    /// As for [`write_on`](Self::write_on).
    pub(crate) unsafe fn write_handle_on<H: DeviceHandle>(
        &self,
        stream: &Stream,
        offset: u64,
        handle: &Arg<H>,
    ) -> Result<()> {
        let bytes = size_of::<H>();
        check_range("the memory", offset, bytes as u64, self.bytes())?;
        let from: *const Arg<H> = handle;
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { stream.driver().write(self.address() + offset, from.cast(), bytes) }
    }

    /// Repeats the `pattern` bytes at byte `offset` until `bytes` bytes are written, as work of a
    /// stream of the same device.
    ///
    /// # Safety
    /// Nothing else touches those bytes until the stream has done it.
    pub(crate) unsafe fn repeat_on(
        &self,
        stream: &Stream,
        offset: u64,
        pattern: u64,
        bytes: u64,
    ) -> Result<()> {
        check_range("the memory", offset, bytes, self.bytes())?;
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { stream.repeat(self.address() + offset, pattern, bytes) }
    }

    pub(super) fn range(&self) -> Range {
        self.range
    }

    /// What dropping it does, of which nothing is left to do then. After a failure it is as it was.
    pub(crate) fn free(&mut self) -> Result<()> {
        if self.kept == Kept::Nothing {
            return Ok(());
        }
        // Before the memory goes: the next allocation may get the same address.
        let is_entry = self.kept != Kept::Part;
        let entry = is_entry.then(|| self.device.registry().remove(self.range.address)).flatten();
        self.device.registry().settle();
        if self.kept != Kept::Memory {
            // The owner of the memory may free it next.
            self.device.driver().drain();
        } else if let Err(error) = self.device.driver().free(self.range) {
            self.device.registry().put_back(self.range.address, entry);
            return Err(error);
        }
        self.kept = Kept::Nothing;
        Ok(())
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Nobody can come back to it: a second try is the last.
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

/// Fails unless `offset + asked` lies within `there`, all in bytes.
pub(super) fn check_range(what: &'static str, offset: u64, asked: u64, there: u64) -> Result<()> {
    match offset.checked_add(asked) {
        Some(end) if end <= there => Ok(()),
        _ => {
            Err(Error::OutOfBounds { offset: Bytes(offset), asked: Bytes(asked), what, there: Bytes(there) })
        }
    }
}
