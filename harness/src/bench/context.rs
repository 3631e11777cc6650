//! What the measurements share: the timer and the sizes.

use super::load::Load;
use super::timing::Timer;
use crate::Result;
use crate::kernels::bench::Sizes;
use std::time::Duration;
use warpheap::device_pools::{FreeList, Heap};
use warpheap::driver::{Device, Module};

pub(super) const THREADS: u32 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

pub(super) struct Bench {
    pub timer: Timer,
    /// Figures are measured with a fraction 1/2^`shrink` of the threads and memory. 0 except in
    /// tests.
    pub shrink: u32,
}

impl Bench {
    pub fn new(device: &Device, module: &Module, rounds: u32, shrink: u32) -> Result<Self> {
        let (device, module) = (device.clone(), module.clone());
        let stream = device.stream()?;
        let timer = Timer { device, module, stream, rounds, budget: Duration::MAX };
        Ok(Bench { timer, shrink })
    }

    /// A load of `threads`.
    pub fn load(&self, threads: u32, sizes: Sizes) -> Result<Load<'_>> {
        Load::new(&self.timer, threads >> self.shrink, sizes)
    }

    /// A heap of `bytes`.
    pub fn heap(&self, bytes: u64) -> warpheap::Result<Heap> {
        Heap::builder(bytes >> self.shrink).build(&self.timer.device)
    }

    /// A free list of `blocks` blocks.
    pub fn freelist(&self, blocks: u32, size: u64) -> warpheap::Result<FreeList> {
        FreeList::builder(blocks.into(), size).build(&self.timer.device)
    }
}
