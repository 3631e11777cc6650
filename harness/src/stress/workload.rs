//! Workloads of the threads, and distributions of the sizes that they request.

use super::config::AllocatorKind;
use serde::Serialize;
use warpheap_device::check::mix::Mix;

/// What threads do in most rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Workload {
    /// Allocate and free. Blocks change owners at the end of a round: the next kernel that uses
    /// them runs on another stream, and in most rounds another thread uses them.
    #[default]
    Churn,
    /// Free blocks that other warps allocate concurrently, in this kernel and in the kernels on the
    /// other streams.
    Exchange,
    /// Kernels on every second stream allocate; kernels on the other streams concurrently free
    /// these blocks.
    Pipeline,
    /// All threads allocate from a pool that is much too small until every allocation fails. Then a
    /// kernel on another stream frees all blocks, and the pool must allocate as much as at first.
    Storm,
}

/// Distribution of the sizes in the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SizeMix {
    /// All sizes with equal probability.
    #[default]
    Uniform,
    /// Powers of two only.
    Powers,
    /// Fifteen of sixteen sizes from the lowest sixteenth of the range.
    MostlySmall,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 4] = [Workload::Churn, Workload::Exchange, Workload::Pipeline, Workload::Storm];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Churn => "churn",
            Workload::Exchange => "exchange",
            Workload::Pipeline => "pipeline",
            Workload::Storm => "storm",
        }
    }

    /// Whether the allocator supports the workload: an arena frees no memory before its reset.
    pub const fn suits(self, allocator: AllocatorKind) -> bool {
        matches!(self, Workload::Churn) || !matches!(allocator, AllocatorKind::Bump)
    }

    /// Whether threads hand blocks to each other while their kernels run.
    pub(super) const fn hands_over(self) -> bool {
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

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SizeMix::Uniform => "uniform",
            SizeMix::Powers => "powers",
            SizeMix::MostlySmall => "mostly-small",
        }
    }

    /// The kernel argument.
    pub(super) const fn on_device(self) -> Mix {
        match self {
            SizeMix::Uniform => Mix::Uniform,
            SizeMix::Powers => Mix::Powers,
            SizeMix::MostlySmall => Mix::Small,
        }
    }

    /// The approximate mean of the sizes.
    pub(super) fn mean(self, least: u32, most: u32) -> u32 {
        let middle = least / 2 + most / 2;
        let mean = match self {
            SizeMix::Uniform => middle,
            // Each power is half of the next, so their sum is less than twice the largest.
            SizeMix::Powers => (2 * (most / 2)) / (most / least).max(2).ilog2() + least / 2,
            SizeMix::MostlySmall => least + (most - least) / 32 + middle / 16,
        };
        mean.clamp(least, most)
    }
}
