//! A block that gives itself back: what all handles have in common, without types.
//!
//! ```text
//!   Owned ─┬─ allocator, ptr, layout    what is given back, and to whom
//!          ├─ home                      the stream that it is given back on
//!          └─ recorded                  other streams whose work may use it
//! ```
//!
//! I1: with bytes, `ptr` is a live block of `allocator`, allocated with `layout`, and nobody else gives it back. Without bytes it is
//! null, and there is nothing to give back.
//! I2: work that may use the block is work of `home` or of one of `recorded`, or `home` is ordered after it. That is what whoever
//! launches has to see to.
//! I3: each stream is in `home` or in `recorded`, and there once.

use super::error::DeallocateError;
use crate::alloc::{DeviceAllocator, address_of, lock};
use crate::driver::{Device, Stream};
use crate::error::{Error, InvalidFree, Result};
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use warpheap_device::kernel::DevicePtr;

/// A block, given back when this is dropped.
pub(super) struct Owned<A: DeviceAllocator> {
    parts: ManuallyDrop<Parts<A>>,
}

/// The same, not given back.
pub(super) struct Parts<A> {
    pub ptr: DevicePtr<u8>,
    pub layout: Layout,
    pub home: Stream,
    pub recorded: Mutex<Vec<Stream>>,
    pub allocator: A,
}

impl<A: DeviceAllocator> Owned<A> {
    pub fn allocate(allocator: A, layout: Layout, stream: &Stream) -> Result<Owned<A>> {
        allocator.device().same_as(stream.device(), "the stream")?;
        let ptr = if layout.size() > 0 { allocator.allocate(layout, stream)? } else { DevicePtr::null() };
        let (home, recorded) = (stream.clone(), Mutex::default());
        Ok(Owned::from_parts(Parts { ptr, layout, home, recorded, allocator }))
    }

    /// I1 and I2 hold of the parts.
    pub fn from_parts(parts: Parts<A>) -> Owned<A> {
        Owned { parts: ManuallyDrop::new(parts) }
    }

    pub fn into_parts(self) -> Parts<A> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used any more, and not dropped either.
        unsafe { ManuallyDrop::take(&mut this.parts) }
    }

    pub fn parts(&self) -> &Parts<A> {
        &self.parts
    }

    /// Gives the block back on `stream`, or on its own; after a failure it is as it was.
    pub fn deallocate<H>(
        self,
        stream: Option<&Stream>,
        handle: impl FnOnce(Owned<A>) -> H,
    ) -> Result<(), DeallocateError<H>> {
        let parts = self.into_parts();
        match parts.give_back(stream.unwrap_or(&parts.home)) {
            Ok(()) => Ok(()),
            Err(error) => Err(DeallocateError::new(error, handle(Owned::from_parts(parts)))),
        }
    }

    /// From now on it is for work of `stream`, which waits for all that may use it so far.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        self.parts.order(stream)?;
        self.parts.home = stream.clone();
        self.parts.recorded.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }
}

impl<A: DeviceAllocator> Parts<A> {
    pub fn device(&self) -> &Device {
        self.allocator.device()
    }

    /// Work of `stream` may use it as well.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut recorded = lock(&self.recorded);
        let is_known = stream.id() == self.home.id() || recorded.iter().any(|one| one.id() == stream.id());
        if !is_known {
            recorded.push(stream.clone());
        }
        Ok(())
    }

    /// Makes `stream` wait for the work that its other streams were given so far (I2).
    pub fn order(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        // Not under the lock: the driver is called. Mostly there are none.
        let recorded = lock(&self.recorded).clone();
        let users = std::iter::once(&self.home).chain(&recorded);
        users.filter(|user| user.id() != stream.id()).try_for_each(|user| stream.wait(&user.record()?))
    }

    /// After all work that may use it, as long as I1 holds: once.
    fn give_back(&self, stream: &Stream) -> Result<()> {
        self.order(stream)?;
        self.deallocate(stream)
    }

    fn deallocate(&self, stream: &Stream) -> Result<()> {
        if self.layout.size() == 0 {
            return Ok(());
        }
        // SAFETY: it is a live block (I1), and `stream` is ordered after all work that may use it (I2).
        unsafe { self.allocator.deallocate(self.ptr, self.layout, stream) }
    }

    /// Gives it back where nobody can be told of a failure.
    ///
    /// What failed may be one of its streams. When the device is idle, nobody uses the block, and any stream will do.
    fn let_go(&self) {
        let Err(error) = self.give_back(&self.home) else { return };
        let (bytes, address) = (self.layout.size(), address_of(self.ptr));
        // Of a block that is not the allocator's there is nothing to be tried again.
        let again = match &error {
            Error::InvalidFree(InvalidFree::Block { .. }) => Err(error.clone()),
            _ => self.dealloc_idle(),
        };
        match again {
            Ok(()) => {
                tracing::warn!(%error, bytes, address, "a handle waited for the device to free its block")
            }
            Err(again) => tracing::warn!(
                %error, %again, bytes, address,
                "a handle could not free its block, which stays allocated until its allocator goes"
            ),
        }
    }

    fn dealloc_idle(&self) -> Result<()> {
        self.device().driver().drain();
        self.deallocate(&self.device().default_stream()?)
    }
}

impl<A: DeviceAllocator> Drop for Owned<A> {
    fn drop(&mut self) {
        // SAFETY: nobody uses `self` after this.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        parts.let_go();
    }
}
