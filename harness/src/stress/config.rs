//! Configuration of a stress run.

use crate::Error;
use serde::Serialize;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;
use warpheap::driver::Device;

use super::plan::Plan;
use super::subject::{BumpSubject, FreeListSubject, HeapSubject, Subject};
use super::workload::{SizeMix, Workload};
use super::{census, plant};
use warpheap_device::kernel::Kernel;

/// The allocator under stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AllocatorKind {
    /// The bump arena.
    Bump,
    /// The free list: blocks of one size.
    FreeList,
    /// The heap: blocks of any size, which any thread may free.
    Heap,
}

/// A fault to inject, to test that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Plant {
    /// The allocator treats live memory as free and allocates it again.
    Overlap,
    /// A thread frees a block twice.
    DoubleFree,
    /// A thread leaks a block.
    LostBlock,
    /// A thread writes past the end of its block into the next one.
    TornWrite,
}

impl AllocatorKind {
    /// All allocators.
    pub const ALL: [AllocatorKind; 3] = [AllocatorKind::Bump, AllocatorKind::FreeList, AllocatorKind::Heap];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            AllocatorKind::Bump => "bump",
            AllocatorKind::FreeList => "freelist",
            AllocatorKind::Heap => "heap",
        }
    }
}

impl Plant {
    /// All faults.
    pub const ALL: [Plant; 4] = [Plant::Overlap, Plant::DoubleFree, Plant::LostBlock, Plant::TornWrite];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Plant::Overlap => "overlap",
            Plant::DoubleFree => "double-free",
            Plant::LostBlock => "lost-block",
            Plant::TornWrite => "torn-write",
        }
    }

    /// Whether the fault can be injected into the allocator.
    pub const fn suits(self, allocator: AllocatorKind) -> bool {
        !matches!((self, allocator), (Plant::DoubleFree, AllocatorKind::Bump))
    }
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}` is none of {known}")]
pub struct UnknownName {
    got: String,
    known: String,
}

macro_rules! named {
    ($($ty:ident),+) => {$(
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $ty {
            type Err = UnknownName;
            fn from_str(text: &str) -> Result<Self, UnknownName> {
                Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownName {
                    got: text.into(),
                    known: Self::ALL.map(Self::name).join(", "),
                })
            }
        }
    )+};
}
named!(AllocatorKind, Plant, Workload, SizeMix);

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// After this number of rounds.
    Rounds(u64),
    /// After the round in which this time has elapsed.
    Time(Duration),
    /// After the round in which this number of blocks has been freed.
    Pairs(u64),
}

/// Configuration of a stress run. [`new`](Self::new) returns the defaults; each field has a setter
/// of the same name.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StressConfig {
    /// The allocator that [`stress`](super::stress) tests.
    /// [`stress_allocator`](super::stress_allocator) ignores it.
    pub allocator: AllocatorKind,
    /// GPU threads of each stream, rounded up to a multiple of 256 (the threads in a block).
    pub threads: u32,
    /// What the threads do.
    pub workload: Workload,
    /// The smallest and the largest allocation, in bytes. The blocks of a free list have the
    /// largest size.
    pub sizes: RangeInclusive<u64>,
    /// The distribution of the sizes in this range.
    pub mix: SizeMix,
    /// When to stop.
    pub limit: Limit,
    /// Streams that use the pool concurrently.
    pub streams: u32,
    /// Size of the pool in bytes; for a heap, rounded up to a multiple of 1 MiB. Default (`None`):
    /// three quarters of what all threads together would hold, so that the pool runs out of memory
    /// occasionally. In a storm, one sixteenth. Never more than fits on the device.
    pub pool_bytes: Option<u64>,
    /// Seed of everything that the threads do. On one OS thread (replay), a run with the same seed
    /// is identical.
    pub seed: u64,
    /// A fault to inject.
    pub plant: Option<Plant>,
}

macro_rules! setters {
    ($($(#[$meta:meta])* $field:ident: $ty:ty),+ $(,)?) => {$(
        $(#[$meta])*
        #[must_use]
        pub fn $field(mut self, $field: $ty) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

impl StressConfig {
    /// 16 rounds of churn on a heap: 1024 threads in one stream allocate 16 to 256 bytes each time.
    pub fn new() -> Self {
        StressConfig {
            allocator: AllocatorKind::Heap,
            threads: 1024,
            workload: Workload::default(),
            sizes: 16..=256,
            mix: SizeMix::default(),
            limit: Limit::Rounds(16),
            streams: 1,
            pool_bytes: None,
            seed: 1,
            plant: None,
        }
    }

    setters! {
        /// The allocator that [`stress`](super::stress) tests. Default: the heap.
        allocator: AllocatorKind,
        /// GPU threads of each stream, rounded up to a multiple of 256. Default: 1024.
        threads: u32,
        /// What the threads do. Default: [`Workload::Churn`].
        workload: Workload,
        /// The smallest and the largest allocation, in bytes. Default: 16 to 256.
        sizes: RangeInclusive<u64>,
        /// The distribution of the sizes. Default: [`SizeMix::Uniform`].
        mix: SizeMix,
        /// When to stop. Default: after 16 rounds.
        limit: Limit,
        /// Streams that use the pool concurrently. Default: 1.
        streams: u32,
        /// Size of the pool in bytes. Default: `None`, see the [field](#structfield.pool_bytes).
        pool_bytes: Option<u64>,
        /// Seed of everything that the threads do. Default: 1.
        seed: u64,
        /// A fault to inject. Default: none.
        plant: Option<Plant>,
    }

    /// The kernels that [`stress`](super::stress) launches.
    pub fn kernels(&self) -> Vec<&'static str> {
        match self.allocator {
            AllocatorKind::Bump => self.kernels_of::<BumpSubject>(),
            AllocatorKind::FreeList => self.kernels_of::<FreeListSubject>(),
            AllocatorKind::Heap => self.kernels_of::<HeapSubject>(),
        }
    }

    /// The kernels that [`stress_allocator`](super::stress_allocator) launches for `S`.
    pub fn kernels_of<S: Subject>(&self) -> Vec<&'static str> {
        let mut all = vec![S::Stress::NAME, S::Grab::NAME, S::GiveBack::NAME];
        all.extend(S::LAUNCHED.always.iter().chain(&census::LAUNCHED));
        if self.workload.hands_over() {
            all.extend(S::LAUNCHED.handing_over);
        }
        if self.plant.is_some() {
            all.extend(S::LAUNCHED.planted.iter().chain(&plant::LAUNCHED));
        }
        all
    }

    /// Checks that the configuration can run on the device.
    ///
    /// # Errors
    /// [`Error::InvalidStress`], which says what to change, or an error of the driver.
    pub fn validate(&self, device: &Device) -> Result<(), Error> {
        match self.allocator {
            AllocatorKind::Bump => Plan::new::<BumpSubject>(self, device),
            AllocatorKind::FreeList => Plan::new::<FreeListSubject>(self, device),
            AllocatorKind::Heap => Plan::new::<HeapSubject>(self, device),
        }
        .map(drop)
    }
}

impl Default for StressConfig {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in AllocatorKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for plant in Plant::ALL {
            assert_eq!(plant.to_string().parse(), Ok(plant));
        }
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        for mix in SizeMix::ALL {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        let error = "slab".parse::<AllocatorKind>().unwrap_err();
        assert_eq!(error.to_string(), "`slab` is none of bump, freelist, heap");
    }
}
