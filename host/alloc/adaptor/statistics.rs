//! Counts what goes through.
//!
//! I1: at a moment without a call under way, `live_blocks = allocs - frees`, and `live_bytes` is the sum of their sizes.
//! I2: `peak >= live`.
//!
//! A block counts from before its allocation returns until after its free was called, which is as long as its user has it: so the
//! peak is of what users had at one time, also while other threads free and allocate.

use crate::alloc::{DeviceAllocator, Usage, lock};
use crate::driver::{Device, Stream};
use crate::error::Result;
use serde::Serialize;
use std::alloc::Layout;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// Counts the calls, what is live, and the most that was.
#[derive(Debug)]
pub struct Statistics<A> {
    upstream: A,
    counts: Mutex<Counts>,
}

/// What went through a [`Statistics`] since it was made. Sizes are those that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AllocStats {
    /// What the upstream holds.
    pub usage: Usage,
    /// Blocks that were allocated and not given back.
    pub live_blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most blocks that were live at one time.
    pub peak_blocks: u64,
    /// The most bytes that were live at one time.
    pub peak_bytes: u64,
    /// Allocations that went well.
    pub allocs: u64,
    /// Frees that went well.
    pub frees: u64,
    /// Allocations that failed.
    pub failed_allocs: u64,
    /// Frees that failed.
    pub failed_frees: u64,
}

/// Signed: a wrong free is taken off until it has failed.
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

    /// The numbers at the moment.
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

    /// What it wraps.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }
}

// SAFETY: the upstream's promise.
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
        // Before: another thread may get the memory, and count it, as soon as the upstream has it.
        lock(&self.counts).take_off(layout);
        // SAFETY: the caller's promise.
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
}
