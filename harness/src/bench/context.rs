//! What the measurements share: the timer, the sizes, and the plan of a figure.

use super::load::Load;
use super::results::Figure;
use super::timing::{self, Timer};
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

type Measure = Box<dyn Fn(&Bench, &str) -> Result<Figure>>;

/// A measurable figure.
pub(super) struct Plan {
    pub name: String,
    /// Kernels that it launches, in addition to those of the timing. A launch of any other kernel
    /// is rejected.
    launched: &'static [&'static str],
    measure: Measure,
}

impl Plan {
    pub fn new(
        name: impl Into<String>,
        launched: &'static [&'static str],
        measure: impl Fn(&Bench, &str) -> Result<Figure> + 'static,
    ) -> Plan {
        Plan { name: name.into(), launched, measure: Box::new(measure) }
    }

    /// All kernels that it launches.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.launched.iter().chain(&timing::LAUNCHED).copied()
    }

    pub fn measure(&self, bench: &Bench) -> Result<Figure> {
        (self.measure)(bench, &self.name)
    }
}
