//! A block that is freed on drop: the untyped base of all handles.
//!
//! ```text
//! Owned ─┬─ allocator, ptr, layout    the block, and the allocator that frees it
//!        ├─ alloc_stream              the stream that it is freed on
//!        └─ recorded                  other streams with work that may use it
//! ```
//!
//! I1: if `layout` has bytes, `ptr` is a live block of `allocator`, allocated with `layout`, and no
//! other code frees it. Otherwise it is null, and there is nothing to free. I2: work that may use
//! the block is work of `alloc_stream` or of a stream in `recorded`, or `alloc_stream` is ordered
//! after it. The code that launches must maintain this. I3: each stream is in `alloc_stream` or in
//! `recorded`, once.

use super::error::DeallocateError;
use crate::driver::{Device, Stream};
use crate::error::{Error, InvalidFree, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::lock::lock;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use warpheap_device::kernel::DevicePtr;

/// A block, freed when this is dropped.
pub(super) struct Owned<A: DeviceAllocator> {
    parts: ManuallyDrop<OwnedParts<A>>,
}

/// The parts of [`Owned`], which are not freed on drop.
pub(super) struct OwnedParts<A> {
    pub ptr: DevicePtr<u8>,
    pub layout: Layout,
    pub alloc_stream: Stream,
    pub recorded: Mutex<Vec<Stream>>,
    pub allocator: A,
}

impl<A: DeviceAllocator> Owned<A> {
    pub fn allocate(allocator: A, layout: Layout, stream: &Stream) -> Result<Owned<A>> {
        allocator.device().same_as(stream.device(), "the stream")?;
        let ptr = if layout.size() > 0 { allocator.allocate(layout, stream)? } else { DevicePtr::null() };
        let (alloc_stream, recorded) = (stream.clone(), Mutex::default());
        Ok(Owned::from_parts(OwnedParts { ptr, layout, alloc_stream, recorded, allocator }))
    }

    /// Requires I1 and I2 of the parts.
    pub fn from_parts(parts: OwnedParts<A>) -> Owned<A> {
        Owned { parts: ManuallyDrop::new(parts) }
    }

    pub fn into_parts(self) -> OwnedParts<A> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used again nor dropped, so the parts are taken once.
        unsafe { ManuallyDrop::take(&mut this.parts) }
    }

    pub fn parts(&self) -> &OwnedParts<A> {
        &self.parts
    }

    /// Frees the block on `stream`, or on its own stream. After a failure it is unchanged.
    pub fn deallocate<H>(
        self,
        stream: Option<&Stream>,
        handle: impl FnOnce(Owned<A>) -> H,
    ) -> Result<(), DeallocateError<H>> {
        let parts = self.into_parts();
        match parts.free(stream.unwrap_or(&parts.alloc_stream)) {
            Ok(()) => Ok(()),
            Err(error) => Err(DeallocateError::new(error, handle(Owned::from_parts(parts)))),
        }
    }

    /// Makes `stream` the block's stream, after it waits for all work that may use the block so
    /// far.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.parts.order(stream)?;
        self.parts.alloc_stream = stream.clone();
        self.parts.recorded.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }
}

impl<A: DeviceAllocator> OwnedParts<A> {
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

    /// Frees the block after all work that may use it. May succeed only once, while I1 holds.
    fn free(&self, stream: &Stream) -> Result<()> {
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
    fn free_or_log(&self) {
        let Err(error) = self.free(&self.alloc_stream) else { return };
        let (bytes, address) = (self.layout.size(), address_of(self.ptr));
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

impl<A: DeviceAllocator> Drop for Owned<A> {
    fn drop(&mut self) {
        // SAFETY: `self` is not used after this, so the parts are taken once.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        parts.free_or_log();
    }
}
