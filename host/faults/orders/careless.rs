//! An allocator that loses orders, to test the checks.

use super::super::subjects::Pool;
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use crate::host_pools::{DeviceAllocator, SyncDriverAllocator};
use crate::lock::lock;
use crate::usage::Usage;
use std::alloc::Layout;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// What the next owner of a block waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// Nothing.
    Order,
    /// A point of another stream.
    Stream,
}

/// Freed blocks, each for the next request of its layout, and the events that it waits for.
pub(super) struct Careless {
    upstream: SyncDriverAllocator,
    loss: Loss,
    other: Stream,
    freed: Mutex<Vec<(DevicePtr<u8>, Layout, Option<Event>)>>,
}

impl Careless {
    pub fn new(device: &Device, loss: Loss) -> Result<Careless> {
        let (upstream, other) = (SyncDriverAllocator::new(device), device.stream()?);
        Ok(Careless { upstream, loss, other, freed: Mutex::default() })
    }
}

impl Pool for Careless {}

// SAFETY: A1 and A3 hold for the upstream. A2 does not, which is what the tests find: their kernels
// run one after the other, in one thread, and only write words of live memory.
unsafe impl DeviceAllocator for Careless {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let mut freed = lock(&self.freed);
        let Some(found) = freed.iter().position(|(_, of, _)| *of == layout) else {
            return self.upstream.allocate(layout, stream);
        };
        let (ptr, _, event) = freed.swap_remove(found);
        event.map_or(Ok(()), |event| stream.wait(&event))?;
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, _: &Stream) -> Result<()> {
        let event = match self.loss {
            Loss::Order => None,
            Loss::Stream => Some(self.other.record()?),
        };
        lock(&self.freed).push((ptr, layout, event));
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}
