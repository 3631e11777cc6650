//! What a pool's allocations share with the pool: the allocator, its streams and its log.
//!
//! It lives as long as the pool is open or one of its allocations lives.

use crate::convert::layout;
use crate::failure::{Failure, Result};
use crate::stream_uses::StreamUses;
use crate::streams::{Owners, pointer};
use std::alloc::Layout;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use warpheap::Stream;
use warpheap::driver::RawStreams;
use warpheap::host_pools::{DeviceAllocator, Logged};
use warpheap_device::kernel::DevicePtr;

type Flush = Box<dyn Fn() -> warpheap::Result<()> + Send + Sync>;

/// An allocator of any kind.
pub struct Backing {
    /// The pool, or the adaptor that writes its log.
    allocator: Box<dyn DeviceAllocator>,
    flush: Option<Flush>,
    streams: RawStreams,
    uses: StreamUses,
    /// After all that uses their streams.
    owners: Arc<Owners>,
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Backing {
    /// Allocates from `pool`, and writes each call to the file `log`, if there is one.
    pub fn new(pool: Arc<impl DeviceAllocator + 'static>, log: Option<&Path>) -> Result<Backing> {
        let (streams, uses) = (RawStreams::new(pool.device()), StreamUses::new(pool.device()));
        let owners = Arc::new(Owners::new(pool.device().backend()));
        let Some(path) = log else {
            return Ok(Backing { allocator: Box::new(pool), flush: None, streams, uses, owners });
        };
        let file = File::create(path)
            .map_err(|error| Failure::invalid_file(format!("{}: {error}", path.display())))?;
        let logged = Arc::new(Logged::new(pool, file));
        let for_flush = logged.clone();
        let flush: Flush = Box::new(move || for_flush.flush());
        Ok(Backing { allocator: Box::new(logged), flush: Some(flush), streams, uses, owners })
    }

    /// The stream objects.
    pub fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// The device.
    pub fn device(&self) -> &warpheap::Device {
        self.allocator.device()
    }

    /// The stream of a `CUstream`.
    fn stream(&self, raw: u64) -> Result<Stream> {
        // SAFETY: the documentation of the pools demands that the stream is live until the pool is
        // closed or forgets it, and is not captured.
        Ok(unsafe { self.streams.get(pointer(raw)) }?)
    }

    /// Forgets a stream. The pool then reuses its memory on other streams.
    pub fn forget_stream(&self, raw: u64) {
        self.streams.forget(pointer(raw));
    }

    /// Allocates a block for work on the raw stream.
    pub fn allocate(&self, bytes: u64, align: u64, raw: u64) -> Result<(u64, Layout)> {
        let layout = layout(bytes, align)?;
        let block = self.allocator.allocate(layout, &self.stream(raw)?)?;
        Ok((block.0 as u64, layout))
    }

    /// Records that work of the raw stream uses the live block, too.
    pub fn record_stream(&self, address: u64, raw: u64) -> Result<()> {
        self.uses.record(address, self.stream(raw)?);
        Ok(())
    }

    /// Frees a block after the work submitted so far to the raw stream and to those recorded.
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`], for the work of all these streams.
    pub unsafe fn deallocate(&self, address: u64, layout: Layout, raw: u64) -> Result<()> {
        let (block, stream) = (DevicePtr(address as *mut u8), self.stream(raw)?);
        // SAFETY: the caller's promises P1 and P2; the stream is ordered after those recorded.
        let free = |stream: &Stream| unsafe { self.allocator.deallocate(block, layout, stream) };
        Ok(self.uses.free(address, &stream, free)?)
    }

    /// Writes the buffered rows of the log.
    pub fn flush(&self) -> Result<()> {
        self.flush.as_ref().map_or(Ok(()), |flush| Ok(flush()?))
    }
}
