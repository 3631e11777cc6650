//! An upstream without memory, for caching pools that are larger than the memory of the machine.

use crate::prelude::*;
use std::collections::BTreeMap;

/// An upstream of addresses without memory. Nothing may access its blocks.
pub struct Counted {
    device: Device,
    state: Mutex<(u64, BTreeMap<u64, Layout>)>,
}

impl Counted {
    pub fn new(device: &Device) -> Counted {
        Counted { device: device.clone(), state: Mutex::new((1 << 40, BTreeMap::new())) }
    }
}

// SAFETY: each address is allocated once, and these tests neither read nor write any of them.
unsafe impl DeviceAllocator for Counted {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, _: &Stream) -> Result<DevicePtr<u8>> {
        let mut state = self.state.lock().unwrap();
        let start = state.0.next_multiple_of(layout.align() as u64);
        // A gap, so that segments do not touch.
        state.0 = start + layout.size() as u64 + 4096;
        state.1.insert(start, layout);
        Ok(DevicePtr(std::ptr::without_provenance_mut(start as usize)))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, _: &Stream) -> Result<()> {
        assert_eq!(self.state.lock().unwrap().1.remove(&(ptr.0.addr() as u64)), Some(layout));
        Ok(())
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.used_bytes = self.state.lock().unwrap().1.values().map(|of| of.size() as u64).sum();
        usage.reserved_bytes = usage.used_bytes;
        usage
    }
}
