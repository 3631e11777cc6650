//! A pool of device memory that a program calls with raw streams.
//!
//! Several streams may use a block. A pool must not reuse it before the work that these streams
//! have at the free. The stream of the free should not wait for them: it may be ahead of them on
//! purpose. So the block is freed on a stream of its own, which waits for all of them, and the pool
//! takes care of the rest.
//!
//! I1: `recorded` counts the entries of `by_block`. It changes under the lock.

use crate::lock::lock;
use crate::streams::RawStreams;
use std::alloc::Layout;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Device, Result, Stream};
use warpheap_device::kernel::DevicePtr;

/// A pool, with the streams that it is called with.
#[derive(Debug)]
pub struct RawPool<P> {
    /// Dropped before the streams.
    pool: P,
    streams: RawStreams,
    uses: StreamUses,
}

impl<P: DeviceAllocator> RawPool<P> {
    /// No streams yet.
    pub fn new(pool: P) -> RawPool<P> {
        let (streams, uses) = (RawStreams::new(pool.device()), StreamUses::new(pool.device()));
        RawPool { pool, streams, uses }
    }

    /// The pool.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    /// Allocates a block for work on the raw stream.
    ///
    /// # Errors
    /// Those of [`RawStreams::get`] and of [`DeviceAllocator::allocate`].
    ///
    /// # Safety
    /// That of [`RawStreams::get`].
    pub unsafe fn allocate(&self, layout: Layout, raw: *mut c_void) -> Result<DevicePtr<u8>> {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.streams.get(raw) }?;
        self.pool.allocate(layout, &stream)
    }

    /// Records that work of the raw stream uses the live block, too.
    ///
    /// # Errors
    /// Those of [`RawStreams::get`].
    ///
    /// # Safety
    /// That of [`RawStreams::get`].
    pub unsafe fn record(&self, block: DevicePtr<u8>, raw: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        self.uses.record(block, unsafe { self.streams.get(raw) }?);
        Ok(())
    }

    /// Frees a block after the work submitted so far to the raw stream and to those recorded.
    ///
    /// # Errors
    /// Those of [`RawStreams::get`] and of [`DeviceAllocator::deallocate`].
    ///
    /// # Safety
    /// That of [`RawStreams::get`]; P1 and P2 of [`DeviceAllocator::deallocate`], for the work of
    /// all these streams.
    pub unsafe fn deallocate(&self, block: DevicePtr<u8>, layout: Layout, raw: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.streams.get(raw) }?;
        // SAFETY: the caller's promises P1 and P2; the stream is ordered after those recorded.
        let free = |after: &Stream| unsafe { self.pool.deallocate(block, layout, after) };
        self.uses.free(block, &stream, free)
    }

    /// Forgets a raw stream before the program destroys it. The pool then reuses its memory on
    /// other streams. Does nothing for a stream that the pool was not called with.
    pub fn forget(&self, raw: *mut c_void) {
        self.streams.forget(raw);
    }
}

/// The recorded streams of the live blocks of a pool.
#[derive(Debug)]
pub struct StreamUses {
    device: Device,
    recorded: AtomicUsize,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// By the addresses of the blocks.
    by_block: HashMap<usize, Vec<Stream>>,
    /// The stream of the frees, made by the first one.
    frees: Option<Stream>,
}

impl StreamUses {
    /// No streams yet.
    pub fn new(device: &Device) -> StreamUses {
        StreamUses { device: device.clone(), recorded: AtomicUsize::new(0), blocks: Mutex::default() }
    }

    /// Records that work of `stream` uses the live block.
    pub fn record(&self, block: DevicePtr<u8>, stream: Stream) {
        let mut blocks = lock(&self.blocks);
        let streams = blocks.by_block.entry(block.0.addr()).or_default();
        if streams.iter().all(|known| known.id() != stream.id()) {
            streams.push(stream);
        }
        self.recorded.store(blocks.by_block.len(), Relaxed);
    }

    /// Frees the block after the work of `stream` and of the recorded streams. `free` gets a stream
    /// that is ordered after it. After an error, the streams are still recorded.
    ///
    /// # Errors
    /// That of `free`, or of a wait for the device.
    pub fn free(
        &self,
        block: DevicePtr<u8>,
        stream: &Stream,
        free: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        // Relaxed: the caller orders a free of the block after the calls that recorded its streams.
        if self.recorded.load(Relaxed) == 0 {
            return free(stream);
        }
        let Some(mut users) = self.take(block) else { return free(stream) };
        // The free is in the order of this stream anyway.
        users.retain(|user| user.id() != stream.id());
        if users.is_empty() {
            return free(stream);
        }
        let freed = match self.after(stream, &users) {
            Ok(after) => free(&after),
            // One of the streams may not exist any more, but its work ends as that of the others.
            Err(_) => self.device.synchronize().and_then(|()| free(stream)),
        };
        if freed.is_err() {
            users.into_iter().for_each(|user| self.record(block, user));
        }
        freed
    }

    fn take(&self, block: DevicePtr<u8>) -> Option<Vec<Stream>> {
        let mut blocks = lock(&self.blocks);
        let taken = blocks.by_block.remove(&block.0.addr());
        self.recorded.store(blocks.by_block.len(), Relaxed);
        taken
    }

    /// A stream that waits for the work that these streams have now.
    fn after(&self, stream: &Stream, users: &[Stream]) -> Result<Stream> {
        let after = self.stream_of_frees()?;
        for user in std::iter::once(stream).chain(users) {
            after.wait(&user.record()?)?;
        }
        Ok(after)
    }

    fn stream_of_frees(&self) -> Result<Stream> {
        let mut blocks = lock(&self.blocks);
        match &blocks.frees {
            Some(stream) => Ok(stream.clone()),
            None => Ok(blocks.frees.insert(self.device.stream()?).clone()),
        }
    }
}
