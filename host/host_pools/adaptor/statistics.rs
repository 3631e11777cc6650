//! Counts calls and live memory.
//!
//! I1: while no call is in progress, `live_blocks = allocs - frees`, and `live_bytes` is the sum of
//! their sizes. I2: `peak >= live`.
//!
//! A block counts from before its allocation returns until after its free was called, which is as
//! long as its user owns it. The peak is therefore the most that users owned at one time, even
//! while other threads allocate and free.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use serde::Serialize;
use std::alloc::Layout;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// Counts calls, live memory and its high-water marks.
#[derive(Debug)]
pub struct Statistics<A> {
    upstream: A,
    counts: Mutex<Counts>,
}

/// Counts of a [`Statistics`] since it was created. Sizes are requested sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AllocStats {
    /// Usage of the upstream.
    pub usage: Usage,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// High-water mark of live blocks.
    pub peak_blocks: u64,
    /// High-water mark of live bytes.
    pub peak_bytes: u64,
    /// Successful allocations.
    pub allocs: u64,
    /// Successful frees.
    pub frees: u64,
    /// Failed allocations.
    pub failed_allocs: u64,
    /// Failed frees.
    pub failed_frees: u64,
}

/// Signed: an invalid free is subtracted until it has failed.
#[derive(Debug, Default)]
struct Counts {
    blocks: i64,
    bytes: i64,
    peak_blocks: i64,
    peak_bytes: i64,
    allocs: u64,
    frees: u64,
    failed_allocs: u64,
    failed_frees: u64,
}

impl Counts {
    fn add(&mut self, layout: Layout) {
        self.blocks += 1;
        self.bytes += layout.size() as i64;
        self.peak_blocks = self.peak_blocks.max(self.blocks);
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    fn take_off(&mut self, layout: Layout) {
        self.blocks -= 1;
        self.bytes -= layout.size() as i64;
    }
}

impl<A: DeviceAllocator> Statistics<A> {
    /// Counts the calls of `upstream` from now on.
    pub fn new(upstream: A) -> Statistics<A> {
        Statistics { upstream, counts: Mutex::default() }
    }

    /// Current counts.
    pub fn stats(&self) -> AllocStats {
        let usage = self.upstream.usage();
        let counts = lock(&self.counts);
        let number = |signed: i64| u64::try_from(signed).unwrap_or(0);
        AllocStats {
            usage,
            live_blocks: number(counts.blocks),
            live_bytes: number(counts.bytes),
            peak_blocks: number(counts.peak_blocks),
            peak_bytes: number(counts.peak_bytes),
            allocs: counts.allocs,
            frees: counts.frees,
            failed_allocs: counts.failed_allocs,
            failed_frees: counts.failed_frees,
        }
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<A: DeviceAllocator> DeviceAllocator for Statistics<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let done = self.upstream.allocate(layout, stream);
        let mut counts = lock(&self.counts);
        match done {
            Ok(_) => {
                counts.allocs += 1;
                counts.add(layout);
            }
            Err(_) => counts.failed_allocs += 1,
        }
        done
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // Before the call: another thread may get the memory, and count it, as soon as the upstream
        // has it.
        lock(&self.counts).take_off(layout);
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        let mut counts = lock(&self.counts);
        match done {
            Ok(()) => counts.frees += 1,
            Err(_) => {
                counts.failed_frees += 1;
                counts.add(layout);
            }
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}
