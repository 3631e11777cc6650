//! The choices of a run: allocator, workload, distribution of sizes, planted fault.

use serde::{Deserialize, Serialize};
use std::fmt;
use warpheap_device::check::mix::Mix;

/// The allocator under stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "program", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AllocatorKind {
    /// The arena: any size, freed all at once.
    Bump,
    /// The lock-free pool of blocks of one size.
    #[cfg_attr(feature = "program", value(name = "freelist"))]
    FreeList,
    /// The heap: any size, freed by any thread.
    Heap,
}

/// A fault to inject, to test that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "program", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Plant {
    /// The allocator returns memory that is in use.
    Overlap,
    /// A thread frees a block twice (not with bump).
    DoubleFree,
    /// A thread leaks a block.
    LostBlock,
    /// A thread writes past the end of its block.
    ///
    /// It writes into the next block.
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

    /// Whether the fault can be injected into the allocator.
    pub const fn suits(self, allocator: AllocatorKind) -> bool {
        !matches!((self, allocator), (Plant::DoubleFree, AllocatorKind::Bump))
    }
}

/// What threads do in most rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "program", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Workload {
    /// Allocate and free; blocks pass to other threads and streams between kernels.
    ///
    /// Blocks change owners at the end of a round: the next kernel that uses them runs on another
    /// stream, and in most rounds another thread uses them.
    #[default]
    Churn,
    /// Free blocks of other running warps, of any stream.
    ///
    /// These warps allocate concurrently, in this kernel and in the kernels on the other streams.
    Exchange,
    /// Every second stream allocates, and the others free those blocks concurrently.
    Pipeline,
    /// Exhaust a small pool, free everything, and check that as much can be allocated again.
    ///
    /// All threads allocate from a pool that is much too small until every allocation fails. Then a
    /// kernel on another stream frees all blocks, and the pool must allocate as much as at first.
    Storm,
}

/// Distribution of the sizes in the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "program", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SizeMix {
    /// Every size equally often.
    #[default]
    Uniform,
    /// Powers of two only.
    Powers,
    /// 15 of 16 sizes from the lowest sixteenth of the range.
    MostlySmall,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 4] = [Workload::Churn, Workload::Exchange, Workload::Pipeline, Workload::Storm];

    /// Whether the allocator supports the workload: an arena frees no memory before its reset.
    pub const fn suits(self, allocator: AllocatorKind) -> bool {
        matches!(self, Workload::Churn) || !matches!(allocator, AllocatorKind::Bump)
    }

    /// Whether threads exchange blocks while their kernels run.
    pub(super) const fn exchanges(self) -> bool {
        matches!(self, Workload::Exchange | Workload::Pipeline)
    }

    /// The default size of the pool as a fraction of what all threads would hold: `(parts, of)`.
    pub(super) const fn pool_share(self) -> (u64, u64) {
        if matches!(self, Workload::Storm) { (1, 16) } else { (3, 4) }
    }
}

impl SizeMix {
    /// All distributions.
    pub const ALL: [SizeMix; 3] = [SizeMix::Uniform, SizeMix::Powers, SizeMix::MostlySmall];

    /// The kernel argument.
    pub(super) const fn on_device(self) -> Mix {
        match self {
            SizeMix::Uniform => Mix::Uniform,
            SizeMix::Powers => Mix::Powers,
            SizeMix::MostlySmall => Mix::Small,
        }
    }

    /// The approximate mean of the sizes.
    pub(super) fn mean(self, min: u32, max: u32) -> u32 {
        let middle = min / 2 + max / 2;
        let mean = match self {
            SizeMix::Uniform => middle,
            // Each power is half of the next, so their sum is less than twice the largest.
            SizeMix::Powers => (2 * (max / 2)) / (max / min).max(2).ilog2() + min / 2,
            SizeMix::MostlySmall => min + (max - min) / 32 + middle / 16,
        };
        mean.clamp(min, max)
    }
}

macro_rules! named {
    ($($ty:ident),+) => {$(
        impl fmt::Display for $ty {
            /// The name on the command line, which is also the name in a results file.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )+};
}
named!(AllocatorKind, Plant, Workload, SizeMix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_results() {
        assert!(AllocatorKind::ALL.iter().all(|kind| kind.name() == kind.to_string()));
    }

    /// The names on the command line are those in a results file.
    #[cfg(feature = "program")]
    #[test]
    fn all_values_are_choices_of_the_command_line() {
        fn check<T: clap::ValueEnum + fmt::Display>(all: &[T]) {
            let names: Vec<_> =
                T::value_variants().iter().filter_map(|value| value.to_possible_value()).collect();
            let names: Vec<_> = names.iter().map(|name| name.get_name()).collect();
            assert_eq!(names, all.iter().map(T::to_string).collect::<Vec<_>>());
        }
        check(&AllocatorKind::ALL);
        check(&Plant::ALL);
        check(&Workload::ALL);
        check(&SizeMix::ALL);
    }
}
