//! The untyped parts of a handle, which frees the block on drop.
//!
//! ```text
//! OwnedParts ─┬─ allocator, ptr, layout    the block, and the allocator that frees it
//!             ├─ alloc_stream              the stream that it is freed on
//!             └─ recorded                  other streams with work that may use it
//! ```
//!
//! I1: if `layout` has bytes, `ptr` is a live block of `allocator`, allocated with `layout`, and no
//! other code frees it. Otherwise it is null, and there is nothing to free. I2: work that may use
//! the block is work of `alloc_stream` or of a stream in `recorded`, or `alloc_stream` is ordered
//! after it. The code that launches must maintain this. I3: each stream is in `alloc_stream` or in
//! `recorded`, once.

use crate::driver::{Device, Stream};
use crate::error::{Error, InvalidFree, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::lock::lock;
use std::alloc::Layout;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpheap_device::kernel::DevicePtr;

/// A block and its streams. A drop of this does not free the block.
pub(super) struct OwnedParts<A> {
    pub ptr: DevicePtr<u8>,
    pub layout: Layout,
    pub alloc_stream: Stream,
    pub recorded: Mutex<Vec<Stream>>,
    pub allocator: A,
}

impl<A: DeviceAllocator> OwnedParts<A> {
    pub fn allocate(allocator: A, layout: Layout, stream: &Stream) -> Result<OwnedParts<A>> {
        allocator.device().same_as(stream.device(), "the stream")?;
        let ptr = if layout.size() > 0 { allocator.allocate(layout, stream)? } else { DevicePtr::null() };
        let (alloc_stream, recorded) = (stream.clone(), Mutex::default());
        Ok(OwnedParts { ptr, layout, alloc_stream, recorded, allocator })
    }

    pub fn address(&self) -> u64 {
        address_of(self.ptr)
    }

    pub fn device(&self) -> &Device {
        self.allocator.device()
    }

    /// Records that work of `stream` may use the block too.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut recorded = lock(&self.recorded);
        let is_known = |other: &Stream| other.id() == stream.id();
        if !is_known(&self.alloc_stream) && !recorded.iter().any(is_known) {
            recorded.push(stream.clone());
        }
        Ok(())
    }

    /// Makes `stream` wait for the work submitted to the block's other streams so far (I2).
    pub fn order(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        // Outside the lock: this calls the driver. Usually there are no recorded streams.
        let recorded = lock(&self.recorded).clone();
        let users = std::iter::once(&self.alloc_stream).chain(&recorded);
        users.filter(|user| user.id() != stream.id()).try_for_each(|user| stream.wait(&user.record()?))
    }

    /// The block's stream, after it has waited for the others.
    pub fn ordered(&self) -> Result<&Stream> {
        self.order(&self.alloc_stream).map(|()| &self.alloc_stream)
    }

    /// Makes `stream` the block's stream, after it waits for all work that may use the block so
    /// far.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.order(stream)?;
        self.alloc_stream = stream.clone();
        self.recorded.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// Frees the block after all work that may use it. May succeed only once, while I1 holds.
    pub fn free(&self, stream: &Stream) -> Result<()> {
        self.order(stream)?;
        self.deallocate(stream)
    }

    fn deallocate(&self, stream: &Stream) -> Result<()> {
        if self.layout.size() == 0 {
            return Ok(());
        }
        // SAFETY: a live block (P2, by I1), and `stream` is ordered after all work that may use it
        // (P1, by I2).
        unsafe { self.allocator.deallocate(self.ptr, self.layout, stream) }
    }

    /// Frees the block where no caller can handle a failure.
    ///
    /// The failure may be that of one of its streams. When the device is idle, no work uses the
    /// block, and any stream will do.
    pub fn free_or_log(&self) {
        let Err(error) = self.free(&self.alloc_stream) else { return };
        let (bytes, address) = (self.layout.size(), self.address());
        // If the block does not belong to the allocator, a retry is useless.
        let again = match &error {
            Error::InvalidFree(InvalidFree::Block { .. }) => Err(error.clone()),
            _ => self.free_when_idle(),
        };
        match again {
            Ok(()) => {
                tracing::warn!(%error, bytes, address, "a handle waited for the device to free its block")
            }
            Err(again) => tracing::warn!(
                %error, %again, bytes, address,
                "a handle could not free its block, which stays allocated until its allocator is dropped"
            ),
        }
    }

    fn free_when_idle(&self) -> Result<()> {
        self.device().driver().drain();
        self.deallocate(&self.device().default_stream()?)
    }
}

// What a handle becomes if its drop does not free the block: its parts, for code that does not
// know the handle types, or the error of a failed free.

/// The result of [`PoolBuffer::into_raw`](super::PoolBuffer::into_raw), and the input of
/// [`from_raw`](super::PoolBuffer::from_raw).
///
/// Dropping it does not free the block. To free it, make `stream` wait for the streams in
/// `recorded` and call
/// [`DeviceAllocator::deallocate`](crate::host_pools::DeviceAllocator::deallocate) with `ptr` and
/// `layout` on `stream`. If `layout` has zero bytes, there is nothing to free.
#[must_use = "nothing else frees the block"]
pub struct PoolParts<T, A> {
    /// The first value; null if there are no bytes.
    pub ptr: DevicePtr<T>,
    /// Number of values.
    pub len: usize,
    /// Layout of the block's allocation.
    pub layout: Layout,
    /// The handle's stream: its work uses the block, and the block is freed on it.
    pub stream: Stream,
    /// Other streams with work that may use it.
    pub recorded: Vec<Stream>,
    /// The allocator of the block.
    pub allocator: A,
}

impl<T, A> fmt::Debug for PoolParts<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded: Vec<_> = self.recorded.iter().map(|stream| stream.id().number()).collect();
        f.debug_struct("PoolParts")
            .field("ptr", &self.ptr.0)
            .field("len", &self.len)
            .field("layout", &self.layout)
            .field("stream", &self.stream.id().number())
            .field("recorded", &recorded)
            .finish_non_exhaustive()
    }
}

/// A handle could not be freed. It is returned in this error unchanged.
///
/// Dropping this drops the handle, which tries once more. `?` converts this into an [`Error`] and
/// drops the handle too.
#[derive(thiserror::Error)]
#[error("a handle could not be freed: {source}; DeallocateError::into_handle returns it")]
#[must_use = "it contains the handle, which is freed when this is dropped"]
pub struct DeallocateError<H> {
    source: Error,
    /// Boxed, to keep results of a free small.
    handle: Box<H>,
}

impl<H> DeallocateError<H> {
    pub(super) fn new(source: Error, handle: H) -> DeallocateError<H> {
        DeallocateError { source, handle: Box::new(handle) }
    }

    /// Reason of the failure.
    pub fn error(&self) -> &Error {
        &self.source
    }

    /// The handle, to be used or freed again.
    pub fn into_handle(self) -> H {
        *self.handle
    }

    /// The error and the handle.
    pub fn into_parts(self) -> (Error, H) {
        (self.source, *self.handle)
    }
}

impl<H> fmt::Debug for DeallocateError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeallocateError").field(&self.source).finish_non_exhaustive()
    }
}

impl<H> From<DeallocateError<H>> for Error {
    fn from(failed: DeallocateError<H>) -> Error {
        failed.into_parts().0
    }
}
