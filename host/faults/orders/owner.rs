//! Blocks of a program, and how their frees are ordered.

use super::subjects::Shared;
use crate::driver::fault_injection::Moment;
use crate::driver::{Event, Stream};
use crate::error::Result;
use crate::host_pools::{DeviceAllocator, PoolBuffer, PoolParts, address_of};
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

/// A live block and the work that uses it.
pub(super) struct Owner {
    pub pool: Shared,
    pub ptr: DevicePtr<u8>,
    pub layout: Layout,
    /// The value of its words.
    pub mark: u64,
    pub order: Order,
    /// The work that uses the block.
    pub uses: Vec<Moment>,
}

/// How the free is ordered after the work that uses the block.
pub(super) enum Order {
    /// The stream of the free waits for these events. No handle keeps the streams.
    Events(Vec<Event>),
    /// A handle makes its stream wait for the others.
    Handle { stream: Stream, recorded: Vec<Stream> },
}

impl Owner {
    pub fn range(&self) -> (u64, u64) {
        (address_of(self.ptr), self.layout.size() as u64)
    }

    /// Orders the stream after the first kernel that uses the block.
    pub fn follow_first(&self, stream: &Stream) -> Result<()> {
        match &self.order {
            Order::Events(events) => stream.wait(&events[0]),
            Order::Handle { stream: first, .. } => stream.wait(&first.record()?),
        }
    }

    /// Adds a stream whose last work uses the block.
    pub fn add_user(&mut self, stream: Stream) -> Result<()> {
        match &mut self.order {
            Order::Events(events) => events.push(stream.record()?),
            Order::Handle { recorded, .. } => recorded.push(stream),
        }
        Ok(())
    }

    /// Orders the stream of a free after the work that uses the block. Returns the stream whose
    /// work is the last: that of a handle is not `stream`.
    pub fn follow(&self, stream: &Stream) -> Result<Stream> {
        match &self.order {
            Order::Events(events) => {
                events.iter().try_for_each(|event| stream.wait(event)).map(|()| stream.clone())
            }
            Order::Handle { stream: first, .. } => Ok(first.clone()),
        }
    }

    /// Frees the block on a stream that is ordered after its use.
    pub fn free(&self, stream: &Stream) -> Result<()> {
        // SAFETY: a live block, which its program frees once (P2); the stream is ordered after the
        // work that uses it (P1).
        unsafe { self.pool.deallocate(self.ptr, self.layout, stream) }
    }

    /// Frees the block by a handle, if it has one: `how` selects the call.
    pub fn free_handle(self, stream: &Stream, how: usize) {
        let Owner { pool, ptr, layout, order: Order::Handle { stream: first, recorded }, .. } = self else {
            return;
        };
        let (ptr, len) = (DevicePtr(ptr.0.cast::<u8>()), layout.size());
        let parts = PoolParts { ptr, len, layout, stream: first, recorded: Vec::new(), allocator: pool };
        // SAFETY: a live block of the allocator, which only the handle frees; `record_stream` names
        // the other streams whose work uses it.
        let mut buffer = unsafe { PoolBuffer::from_raw(parts) };
        recorded.iter().for_each(|other| buffer.record_stream(other).unwrap());
        match how {
            0 => buffer.move_to(stream).unwrap(),
            1 => buffer.deallocate_on(stream).unwrap(),
            _ => drop(buffer),
        }
    }
}
