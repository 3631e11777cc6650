//! What a handle is made of, to be passed through code that knows no handles.

use crate::driver::Stream;
use std::alloc::Layout;
use std::fmt;
use warpheap_device::kernel::DevicePtr;

/// What [`PoolBuffer::into_raw`](super::PoolBuffer::into_raw) leaves of a handle, and
/// [`from_raw`](super::PoolBuffer::from_raw) makes one of.
///
/// It gives nothing back. [`DeviceAllocator::deallocate`](crate::alloc::DeviceAllocator::deallocate) does, with `ptr` and `layout`, on
/// `stream` after that was made to wait for those that are `recorded`; not where `layout` has no bytes.
#[must_use = "nothing gives the block back any more"]
pub struct PoolParts<T, A> {
    /// The first value; null if there are no bytes.
    pub ptr: DevicePtr<T>,
    /// How many values.
    pub len: usize,
    /// What the block was allocated as.
    pub layout: Layout,
    /// Whose work uses it, and where it is given back.
    pub stream: Stream,
    /// Other streams whose work may use it.
    pub recorded: Vec<Stream>,
    /// What it was allocated from.
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
