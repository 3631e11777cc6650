//! Streams: queues of work that run in order, concurrently with the host and with other streams.

use super::backend::{Queue, StreamBackend, StreamId, StreamWatcher, Transfer};
use super::buffer::DeviceBuffer;
use super::device::Device;
use super::event::Event;
use super::memory::check_range;
use crate::error::Result;
use crate::simt::Stats;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Weak};
use warpheap_device::kernel::DeviceData;

/// A queue of work that a device executes in order. Cloning gives another handle to the same queue.
///
/// Only [`synchronize`](Self::synchronize) waits. After a kernel fails, every later call fails.
/// Dropping the last handle does not wait either; the submitted work still completes.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    id: StreamId,
    queue: Arc<Queue>,
}

/// A weak handle of a stream.
#[derive(Clone, Default)]
pub(crate) struct WeakStream(Weak<Queue>);

impl WeakStream {
    /// A handle, if another one still exists. `device` is the stream's device.
    pub fn upgrade(&self, device: &Device) -> Option<Stream> {
        self.0.upgrade().map(|queue| Stream::of(device.clone(), queue))
    }
}

impl Device {
    /// A new stream, not ordered with any other.
    ///
    /// # Errors
    /// An error of the driver. On the CPU a stream is an OS thread:
    /// [`NoThread`](crate::Error::NoThread) if none can be started.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.clone(), self.driver().stream()?))
    }

    /// The default stream of the device, created by the first call. It is not ordered with any
    /// other stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn default_stream(&self) -> Result<Stream> {
        Ok(Stream::of(self.clone(), self.default_queue()?))
    }
}

impl Stream {
    pub(crate) fn new(device: Device, backend: Arc<dyn StreamBackend>) -> Stream {
        Stream::of(device, Arc::new(Queue::new(backend)))
    }

    /// Another handle of the stream of `queue`.
    fn of(device: Device, queue: Arc<Queue>) -> Stream {
        Stream { device, id: queue.id(), queue }
    }

    /// A weak handle, which does not keep the stream alive.
    pub(crate) fn downgrade(&self) -> WeakStream {
        WeakStream(Arc::downgrade(&self.queue))
    }

    /// Notifies `watcher` when the stream ends, if `watcher` still exists then.
    pub(crate) fn watch(&self, watcher: Weak<dyn StreamWatcher>) {
        self.queue.watch(watcher);
    }

    /// A stream for a `CUstream` that the caller owns. Dropping this stream does not destroy the
    /// `CUstream`.
    ///
    /// # Errors
    /// [`Error::NotSupported`](crate::Error::NotSupported) on the CPU.
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) for a stream of another context.
    ///
    /// # Safety
    /// `stream` is a live stream of the device's context. It stays live as long as any handle of
    /// this stream or any of its events. It is not being captured into a graph.
    pub unsafe fn from_raw(device: &Device, stream: *mut c_void) -> Result<Stream> {
        // SAFETY: the caller's promise: a live stream of this context that is not being captured.
        let backend = unsafe { device.driver().foreign_stream(stream) }?;
        Ok(Stream::new(device.clone(), backend))
    }

    /// The `CUstream`; null on the CPU.
    pub fn raw_stream(&self) -> *mut c_void {
        self.driver().raw()
    }

    /// The id of this stream.
    #[inline]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The device that the stream belongs to.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Records an event after all work submitted so far.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn record(&self) -> Result<Event> {
        Ok(Event::new(self.device.clone(), self.driver().record()?))
    }

    /// Makes all work submitted to this stream from now on wait for `event`, which may belong to
    /// another stream.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice), or an error of the driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.same_as(event.device(), "the event")?;
        self.driver().wait(event.backend().clone())
    }

    /// Waits for all work submitted so far.
    ///
    /// # Errors
    /// An earlier failure, of a kernel for instance. A failed stream stays failed. Or panics of
    /// threads since the last report, in kernels of any stream of the device
    /// ([`Module::set_on_panic`](super::Module::set_on_panic)): they are returned once, and the
    /// stream continues.
    pub fn synchronize(&self) -> Result<()> {
        self.settle()?;
        self.device.driver().report_panics()
    }

    /// Waits without reporting panics: the next wait of the program reports them.
    pub(crate) fn settle(&self) -> Result<()> {
        self.driver().synchronize()
    }

    /// Whether all work submitted so far is done.
    ///
    /// # Errors
    /// If it is done, as for [`synchronize`](Self::synchronize). Otherwise an earlier failure.
    pub fn is_done(&self) -> Result<bool> {
        let done = self.driver().is_done()?;
        if done { self.device.driver().report_panics().map(|()| true) } else { Ok(false) }
    }

    /// Whether no work is pending. Does not report or consume a failure.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver().is_idle()
    }

    /// Counters of the CPU executor for the last kernel that ended on this stream. `None` on a GPU
    /// and before the first kernel has ended.
    pub fn cpu_stats(&self) -> Option<Stats> {
        self.driver().cpu_stats()
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
            let copy = Transfer::Copy { to: address + done, from: address, bytes: more as usize };
            // SAFETY: inside `bytes`, and source and target do not overlap. The caller promises
            // live memory that nothing else accesses.
            unsafe { self.driver().transfer(copy) }?;
            done += more;
        }
        Ok(())
    }

    /// Submits a transfer, unless it has no bytes.
    ///
    /// # Safety
    /// The memory is valid, and nothing conflicts with the transfer until it is done.
    pub(crate) unsafe fn submit(&self, transfer: Transfer) -> Result<()> {
        // SAFETY: the caller promises valid memory and no conflict until the transfer is done.
        if transfer.is_empty() { Ok(()) } else { unsafe { self.driver().transfer(transfer) } }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn driver(&self) -> &dyn StreamBackend {
        self.queue.backend()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.device)
    }
}

// Copies and fills of buffers as work of a stream.

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
