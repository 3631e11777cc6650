//! Arrays in device memory.

use super::backend::Range;
use super::device::Device;
use super::memory::{DeviceMemory, MIN_ALIGN};
use crate::error::{Bytes, Error, InvalidRequest, Result};
use std::fmt;
use std::marker::PhantomData;
use warpheap_device::kernel::{DeviceData, DevicePtr, DeviceSlice};

/// `len` values of `T` in device memory, freed when dropped.
///
/// The copies here block: they wait for all work submitted to the device so far. A
/// [`Stream`](super::Stream) has asynchronous copies.
#[must_use = "its memory is freed when it is dropped"]
pub struct DeviceBuffer<T: DeviceData> {
    memory: DeviceMemory,
    len: usize,
    _values: PhantomData<T>,
}

impl Device {
    /// Allocates `len` values with arbitrary contents.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn alloc_uninit<T: DeviceData>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::new(self, len, false)
    }

    /// Allocates `len` values of zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn zeroed<T: DeviceData>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::new(self, len, true)
    }

    /// Copies `values` to a new buffer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an earlier failure of the device.
    pub fn from_slice<T: DeviceData>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc_uninit(values.len())?;
        buffer.copy_from_slice(values)?;
        Ok(buffer)
    }
}

impl<T: DeviceData> DeviceBuffer<T> {
    fn new(device: &Device, len: usize, zeroed: bool) -> Result<Self> {
        let element = size_of::<T>();
        let bytes = len.checked_mul(element).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(InvalidRequest::SizeOverflow { len, element: Bytes(element as u64) })?;
        let memory = DeviceMemory::new(device, bytes as u64, align_of::<T>().max(MIN_ALIGN), zeroed)?;
        Ok(DeviceBuffer { memory, len, _values: PhantomData })
    }

    /// The device that owns the memory.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The first address, a `CUdeviceptr`; 0 if the buffer is empty.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// All values, as a kernel argument.
    pub fn slice(&self) -> DeviceSlice<T> {
        // SAFETY: the range is the buffer; a launch checks that it is still live.
        unsafe { DeviceSlice::from_raw_parts(self.ptr().0, self.len as u64) }
    }

    /// The first value, as a kernel argument. A launch checks that this one value is live.
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr(self.memory.ptr().0.cast())
    }

    /// Copies all values to the host.
    ///
    /// # Errors
    /// An earlier failure of the device, or panics of threads, as for
    /// [`Device::synchronize`](super::Device::synchronize).
    pub fn copy_to_vec(&self) -> Result<Vec<T>> {
        let values = self.fetch()?;
        if self.bytes() > 0 {
            self.memory.device().driver().report_panics()?;
        }
        Ok(values)
    }

    /// Copies all values without reporting panics: the next wait of the program reports them.
    pub(crate) fn fetch(&self) -> Result<Vec<T>> {
        let mut values: Vec<T> = Vec::with_capacity(self.len);
        if self.bytes() > 0 {
            // SAFETY: the range is the buffer, and the vector has capacity for it.
            unsafe { self.memory.read_raw(0, values.as_mut_ptr().cast(), self.bytes() as usize) }?;
        }
        // SAFETY: all values were just written, and any bytes are a value of a `DeviceData` type.
        unsafe { values.set_len(self.len) };
        Ok(values)
    }

    /// Replaces all values.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `values` has a different length, or an earlier failure of the
    /// device.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len {
            let requested = Bytes(size_of_val(values) as u64);
            let size = Bytes(self.bytes());
            return Err(Error::OutOfBounds {
                offset: Bytes(0),
                requested,
                what: "the buffer, exactly,",
                size,
            });
        }
        self.memory.write(0, values)
    }

    /// Sets every value.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn fill(&mut self, value: T) -> Result<()> {
        /// Size of the staging copy on the host.
        const CHUNK_BYTES: usize = 1 << 20;
        let chunk_len = (CHUNK_BYTES / size_of::<T>().max(1)).clamp(1, self.len.max(1));
        let chunk = vec![value; chunk_len];
        for start in (0..self.len).step_by(chunk_len) {
            let part = &chunk[..chunk_len.min(self.len - start)];
            self.memory.write((start * size_of::<T>()) as u64, part)?;
        }
        Ok(())
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        self.memory.fill(byte)
    }

    /// The untyped memory.
    pub fn into_memory(self) -> DeviceMemory {
        self.memory
    }

    pub(super) fn range(&self) -> Range {
        self.memory.range()
    }
}

impl<T: DeviceData> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}: {:?}", self.len, std::any::type_name::<T>(), self.memory)
    }
}
