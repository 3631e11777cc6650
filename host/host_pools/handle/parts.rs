//! The parts of a handle, for code that does not know the handle types.

use crate::driver::Stream;
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
