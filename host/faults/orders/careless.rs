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

struct Freed {
    ptr: DevicePtr<u8>,
    layout: Layout,
    event: Option<Event>,
}

/// Freed blocks, each for the next request of its layout, which waits for the event.
pub(super) struct Careless {
    upstream: SyncDriverAllocator,
    loss: Loss,
    other: Stream,
    freed: Mutex<Vec<Freed>>,
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
        let Some(found) = freed.iter().position(|of| of.layout == layout) else {
            return self.upstream.allocate(layout, stream);
        };
        let Freed { ptr, event, .. } = freed.swap_remove(found);
        event.map_or(Ok(()), |event| stream.wait(&event))?;
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, _: &Stream) -> Result<()> {
        let event = match self.loss {
            Loss::Order => None,
            Loss::Stream => Some(self.other.record()?),
        };
        lock(&self.freed).push(Freed { ptr, layout, event });
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}
