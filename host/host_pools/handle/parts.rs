//! What a handle becomes if its drop does not free the block: its parts, for code that does not
//! know the handle types, or the error of a failed free.

use crate::driver::Stream;
use crate::error::Error;
use std::alloc::Layout;
use std::fmt;
use warpheap_device::kernel::DevicePtr;

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
