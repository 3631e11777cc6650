//! Streams: queues of work that run in order, concurrently with the host and with other streams.

use super::backend::{EventBackend, StreamBackend};
use super::buffer::DeviceBuffer;
use super::device::Device;
use super::event::Event;
use super::launch::{self, LaunchConfig};
use super::memory::check_range;
use super::module::Module;
use crate::error::Result;
use crate::simt::Stats;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use warpheap_device::kernel::{DeviceData, Kernel};

/// Identifies a stream. Ids are unique within the process and are not reused after a stream is
/// dropped. Clones of a handle have the same id. Two streams made from the same `CUstream` have
/// different ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(usize);

impl StreamId {
    pub(super) fn next() -> StreamId {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        // ordering: relaxed; only uniqueness matters.
        StreamId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, starting from 1, as displayed.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

/// The state that all handles of a stream share. Dropped with the last handle.
pub(super) struct Queue {
    id: StreamId,
    backend: Arc<dyn StreamBackend>,
    /// Notified when the stream ends.
    watchers: Mutex<Vec<Weak<dyn StreamWatcher>>>,
}

/// Is notified when the last handle of a stream is dropped.
pub(crate) trait StreamWatcher: Send + Sync {
    /// No handle is left, so no more work is submitted to the stream. `last` records an event after
    /// all submitted work. It fails if the driver fails. Called once, by the thread that drops the
    /// handle. That thread may hold locks, so an implementation may take leaf locks only.
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>);
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

impl Queue {
    pub fn new(backend: Arc<dyn StreamBackend>) -> Queue {
        Queue { id: StreamId::next(), backend, watchers: Mutex::default() }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let watchers = self.watchers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watcher in std::mem::take(watchers).iter().filter_map(Weak::upgrade) {
            watcher.ended(&|| self.backend.record());
        }
    }
}

impl Stream {
    pub(crate) fn new(device: Device, backend: Arc<dyn StreamBackend>) -> Stream {
        Stream::of(device, Arc::new(Queue::new(backend)))
    }

    /// Another handle of the stream of `queue`.
    pub(super) fn of(device: Device, queue: Arc<Queue>) -> Stream {
        Stream { device, id: queue.id, queue }
    }

    /// A weak handle, which does not keep the stream alive.
    pub(crate) fn downgrade(&self) -> WeakStream {
        WeakStream(Arc::downgrade(&self.queue))
    }

    /// Notifies `watcher` when the stream ends, if `watcher` still exists then.
    pub(crate) fn watch(&self, watcher: Weak<dyn StreamWatcher>) {
        let mut watchers = self.queue.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|other| other.strong_count() > 0);
        watchers.push(watcher);
    }

    /// A stream for a `CUstream` that the caller owns. Dropping this stream does not destroy the
    /// `CUstream`.
    ///
    /// # Errors
    /// [`Error::NotSupported`](crate::Error::NotSupported) on the CPU.
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
        self.queue.backend.raw()
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

    /// Launches `kernel` with `args` over the grid of `config`, after checking all three.
    ///
    /// # Errors
    /// [`InvalidLaunch`](crate::Error::InvalidLaunch), [`Dangling`](crate::Error::Dangling),
    /// [`WrongDevice`](crate::Error::WrongDevice), and for the first launch of a kernel of a module
    /// also [`InvalidModule`](crate::Error::InvalidModule).
    ///
    /// # Safety
    /// From the call until the kernel has ended:
    ///
    /// - **P1, the kernel.** The section *Safety* of the kernel holds for this grid, this shared
    ///   memory and these arguments.
    /// - **P2, the module.** Its kernel of that name was compiled from the source that declares
    ///   `K`, or from source that has no further requirements. A launch checks the sizes of the
    ///   parameters, not what the PTX does with them.
    /// - **P3, memory.** Nothing else writes what the kernel reads or accesses what it writes,
    ///   except by atomics of the same size. This includes other kernels and copies of streams,
    ///   also those of another thread.
    ///   - Memory that an argument names was live when the argument was made, and the allocation
    ///     is the same now: a launch checks only that there is live memory at its addresses.
    ///   - Memory that the kernel reaches otherwise, through pointers in memory for instance, is
    ///     live until the kernel has ended.
    ///   - A block of a host pool ([`alloc`](crate::host_pools)) is live when the launch is called. It
    ///     is freed, and its pool dropped, only after the launch has returned, and freed only on a
    ///     stream that is ordered after the kernel.
    ///   - Where the host then reads memory as values (`read`, `copy_to_vec`), the kernel has
    ///     written no uninitialised bytes, such as the padding of a struct.
    /// - **P4, pools.** Each pool that the kernel receives, as an argument or as the global heap of
    ///   its module, is the one that its handle was made by, and its last reset succeeded: a launch
    ///   checks only the addresses of its memory. A block that the kernel uses or frees was
    ///   allocated since its pool was built or last reset, and was not freed since.
    /// - **P5, ends.** The safety of the kernel, and of what it calls, depends neither on a
    ///   destructor nor on a return. A thread that exits or traps stops without unwinding and leaks
    ///   what it owns. On the CPU, so does every thread of a grid that fails. On the CPU a kernel
    ///   must not use `std::thread::scope`, for instance.
    /// - **P6, thread-locals.** On the CPU the threads of a block take turns on one OS thread: they
    ///   switch at atomics, collectives, pauses, clock reads and `active_mask`. No initialiser and
    ///   no borrow of a thread-local variable spans one of these, and neither does anything else
    ///   that relies on last-in-first-out order within an OS thread.
    ///
    /// For memory that the arguments name, except blocks of host pools, calls that block on the
    /// host may run at any time, on any thread: copies of buffers and of
    /// [`DeviceMemory`](super::DeviceMemory), statistics and checks of pools, their resets and
    /// growths, and drops. Each runs before the launch or waits for the kernel. On a GPU a copy to
    /// the host may show partial results of a running kernel.
    pub unsafe fn launch<K: Kernel>(
        &self,
        module: &Module,
        kernel: K,
        config: &LaunchConfig,
        args: K::Args,
    ) -> Result<()> {
        // SAFETY: the caller's promises P1 to P6.
        unsafe { launch::launch(self, module, kernel, config, args) }
    }

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
        self.device.same_as(to.device(), "the buffer")?;
        let bytes = size_of_val(from);
        check_range("the buffer", 0, bytes as u64, to.bytes())?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: inside the buffer; the caller keeps `from` and `to` valid until the copy
        // completes.
        unsafe { self.queue.backend.write(to.address(), from.as_ptr().cast(), bytes) }
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
        self.device.same_as(from.device(), "the buffer")?;
        let bytes = size_of_val(to);
        check_range("the buffer", 0, bytes as u64, from.bytes())?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: inside the buffer; the caller keeps `to` and `from` valid until the copy
        // completes.
        unsafe { self.queue.backend.read(to.as_mut_ptr().cast(), from.address(), bytes) }
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
        self.device.same_as(from.device(), "the buffer to copy from")?;
        self.device.same_as(to.device(), "the buffer to copy to")?;
        check_range("the buffer", 0, from.bytes(), to.bytes())?;
        if from.bytes() == 0 || from.address() == to.address() {
            return Ok(());
        }
        // SAFETY: inside both buffers, which are distinct. The caller promises that nothing
        // conflicts with the copy until it completes.
        unsafe { self.queue.backend.copy(to.address(), from.address(), from.bytes() as usize) }
    }

    /// Sets every byte of the buffer.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice), or an error of the driver.
    ///
    /// # Safety
    /// Until the stream has completed the fill, nothing else accesses the buffer.
    pub unsafe fn fill_bytes<T: DeviceData>(&self, buffer: &DeviceBuffer<T>, byte: u8) -> Result<()> {
        self.device.same_as(buffer.device(), "the buffer")?;
        let range = buffer.range();
        if range.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the buffer; the caller promises that nothing else accesses it until
        // then.
        unsafe { self.queue.backend.fill(range, byte) }
    }

    /// Records an event after all work submitted so far.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn record(&self) -> Result<Event> {
        Ok(Event::new(self.device.clone(), self.queue.backend.record()?))
    }

    /// Makes all work submitted to this stream from now on wait for `event`, which may belong to
    /// another stream.
    ///
    /// # Errors
    /// [`WrongDevice`](crate::Error::WrongDevice), or an error of the driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.same_as(event.device(), "the event")?;
        self.queue.backend.wait(event.backend().clone())
    }

    /// Waits for all work submitted so far.
    ///
    /// # Errors
    /// An earlier failure, of a kernel for instance. A failed stream stays failed.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.backend.synchronize()
    }

    /// Whether all work submitted so far is done.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn is_done(&self) -> Result<bool> {
        self.queue.backend.is_done()
    }

    /// Whether no work is pending. Does not report or consume a failure.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.backend.is_idle()
    }

    /// Counters of the CPU executor for the last kernel that ended on this stream. `None` on a GPU
    /// and before the first kernel has ended.
    pub fn cpu_stats(&self) -> Option<Stats> {
        self.queue.backend.cpu_stats()
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

    pub(crate) fn driver(&self) -> &dyn StreamBackend {
        &*self.queue.backend
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.device)
    }
}
